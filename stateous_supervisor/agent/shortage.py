"""Whether the kernel killed a process of ours because memory ran out, by what our control group counts (A-23).

Version 2 of control groups only, where every unit of systemd has one; elsewhere nothing is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc/self/cgroup")
MOUNT: Final = Path("/sys/fs/cgroup")


class Kills(NamedTuple):
    """How many processes of a control group were killed for want of memory since it was made."""

    group: str
    killed: int


def kills(proc: Path = PROC, mount: Path = MOUNT) -> Kills:
    """Return the count of the group that this process is in now; 0 where nobody counts.

    Args:
        proc: the file that names our groups.
        mount: where the hierarchy of version 2 is.
    """
    try:
        group = next(line[3:] for line in proc.read_text("utf-8").splitlines() if line.startswith("0::"))
        events = (mount / group.lstrip("/") / "memory.events").read_text("utf-8")
        return Kills(
            group, next(int(line[9:]) for line in events.splitlines() if line.startswith("oom_kill "))
        )
    except (OSError, ValueError, StopIteration):
        return Kills("", 0)


def is_between(before: Kills, after: Kills) -> bool:
    """Return whether a process was killed between the two. A group that we were moved to counts from 0."""
    return after.killed > (before.killed if before.group == after.group else 0)
