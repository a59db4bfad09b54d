"""What the agent needs of a routine host, and of what starts hosts.

A host is a child process (`host_process`), the runner inside this process (`--inline`), or a scripted double in
tests. Also what makes one, or its folder, unfit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from stateous_supervisor.agent.dumps import Hang
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.link.frames import BrokenFile, Frame, RoutineFacts, ToAgent


class HostEnded(Exception):
    """The host is gone. Ordinary: `reason` names the signal or the exit code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HostUnusable(Exception):
    """No host can be started: interpreter, SDK or the link's protocol is not what is needed (A-25)."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Host(Protocol):
    """A host whose files are loaded. `generation` numbers the hosts of one agent from 1."""

    generation: int
    pid: int
    python: str
    routines: Sequence[RoutineFacts]
    broken: Sequence[BrokenFile]
    faults: Sequence[str]
    has_pulse: bool

    @property
    def is_stalled(self) -> bool:
        """Whether it has not read for so long that it should get no more work."""

    def send(self, messages: Sequence[Frame]) -> None:
        """Send messages as one frame. Never waits, never fails: a host that is gone says so by `receive`."""

    def kill(self) -> None:
        """End it by force, where it is a process. Waits for nothing; `receive` says that it ended."""

    async def hang(self) -> Hang | None:
        """Return where the host hangs, if that can be seen from outside. May take a second."""

    async def receive(self) -> Sequence[ToAgent]:
        """Return what has come, one or more messages.

        Raises:
            HostEnded: there is nothing more to come.
        """


class HostSource(Protocol):
    """Starts hosts. `can_add`: several may run beside each other."""

    can_add: bool

    def open(self, generation: int) -> AbstractAsyncContextManager[Host]:
        """Start a host and load the folder; on exit it is ended, with all that belongs to it.

        Raises:
            HostUnusable: on entry.
        """


def check(host: Host, *, is_strict: bool) -> None:
    """Refuse a folder that is not fit to run (A-05, A-06).

    Raises:
        Fault: faults of the folder, no routine at all, or, if strict, a file that does not load (78).
    """
    faults = list(host.faults)
    if is_strict:
        faults += [f"{where(broken)}: {broken.error}" for broken in host.broken]
    if not faults and not host.routines:
        why = "".join(f"; {where(broken)}: {broken.error}" for broken in host.broken)
        faults = [f"the folder has no routine that can be used{why}"]
    if faults:
        raise Fault(Exit.CONFIG, "\n".join(faults))


def where(broken: BrokenFile) -> str:
    """Return the place of a broken file."""
    return broken.file if broken.line is None else f"{broken.file}:{broken.line}"


def check_broken(host: Host, known: Collection[str]) -> None:
    """Refuse a reload that would take away what a file gave that was good before.

    Args:
        host: the new one.
        known: the files that were broken before.

    Raises:
        Fault: a file broke (78).
    """
    fresh = [f"{where(broken)}: {broken.error}" for broken in host.broken if broken.file not in known]
    if fresh:
        raise Fault(Exit.CONFIG, "\n".join(fresh))
