"""What the host, its nursery and the keepers of isolated routines say to each other. Values only.

Written and read as frames, like the link's. A `Hatch` travels with the four descriptors that `Ends` names.
"""

from __future__ import annotations

from typing import NamedTuple

from stateous_supervisor.link.frames import Frame


class Ends(NamedTuple):
    """The far ends of what the host keeps of one routine: its link, its output, and its keeper's socket."""

    link: int
    out: int
    err: int
    keeper: int


class Ready(Frame, tag="ready"):
    """Nursery to host: the folder is imported. `fault` says why it cannot fork, if it cannot."""

    fault: str | None = None


class Hatch(Frame, tag="hatch"):
    """Host to nursery: make a process for one attempt; its grant comes over its own link.

    The host ends it after `timeout_s`; where it does not, because it hangs, the keeper does.
    """

    task: int
    attempt: int
    memory_bytes: int | None = None
    grace_s: float = 5.0
    timeout_s: float | None = None


class End(Frame, tag="end"):
    """Host to keeper: SIGTERM to the routine and all it started; after `grace_s` SIGKILL."""

    grace_s: float


class Started(Frame, tag="started"):
    """Keeper to host: the routine's process runs."""

    pid: int


class Ended(Frame, tag="ended"):
    """Keeper to host: the routine's process is gone, and after an `End` all that it started too.

    `code` is as of `subprocess`: negative for a signal. `cpu_s` and `peak_bytes` count all that it started and waited
    for, or, in a control group, simply all.
    """

    code: int
    cpu_s: float
    peak_bytes: int
    is_out_of_memory: bool = False
