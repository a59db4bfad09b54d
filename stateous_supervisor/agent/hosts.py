"""What the agent needs of a routine host, and the loop that always has one: start, read, bury, start again.

A `Host` is a child process (`host_process`), the runner inside this process (`--inline`), or a scripted
double in tests. The loop knows none of them. It hands frames to the roster, tells it when a host died, and
starts the next host at once; hosts that keep dying are started with backoff (A-23).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import anyio

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.link.frames import (
    Began,
    BrokenFile,
    Frame,
    Logged,
    Noted,
    Outcome,
    Remembered,
    RoutineFacts,
    ToAgent,
)

STEADY_S: Final = 60.0  # a host that lived this long owes no backoff


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

    @property
    def is_stalled(self) -> bool:
        """Whether it has not read for so long that it should get no more work."""

    def send(self, messages: Sequence[Frame]) -> None:
        """Send messages as one frame. Never waits, never fails: a host that is gone says so by `receive`."""

    async def receive(self) -> Sequence[ToAgent]:
        """Return what has come, one or more messages.

        Raises:
            HostEnded: there is nothing more to come.
        """


class HostSource(Protocol):
    """Starts hosts."""

    def open(self, generation: int) -> AbstractAsyncContextManager[Host]:
        """Start a host and load the folder; on exit it is ended, with all that belongs to it.

        Raises:
            HostUnusable: on entry.
        """


class Hosts:
    """The loop over hosts. `ready` is set once the first one has loaded the folder.

    Args:
        source: starts hosts.
        roster: gets what they say.
        is_strict: refuse a folder with a file that does not load.
        changed: called when a host is ready or gone.
    """

    def __init__(
        self,
        source: HostSource,
        roster: Roster,
        log: Log,
        luck: random.Random,
        *,
        is_strict: bool,
        changed: Callable[[], None],
    ) -> None:
        self.ready = anyio.Event()
        self._source = source
        self._roster = roster
        self._log = log
        self._luck = luck
        self._changed = changed
        self._is_strict = is_strict
        self._deaths = 0

    async def run(self) -> None:
        """Have a host, for ever.

        Raises:
            Fault: the first host cannot be used, or the folder is not fit to start with (78).
        """
        generation = 0
        while True:
            generation += 1
            started_at = anyio.current_time()
            try:
                async with self._source.open(generation) as host:
                    started_at = anyio.current_time()
                    self._welcome(host)
                    await self._read(host)
            except HostEnded as ended:
                if anyio.current_time() - started_at >= STEADY_S:
                    self._deaths = 0
                wait_s = self._bury(generation, ended.reason)
            except HostUnusable as unusable:
                if not self.ready.is_set():
                    raise Fault(Exit.CONFIG, unusable.sentence) from None
                self._deaths += 1
                wait_s = cadence.backoff_s(self._deaths, self._luck.random())
                self._log.tell("host.failed", error=unusable.sentence, next_in_s=round(wait_s, 1))
            await anyio.sleep(wait_s)

    def _welcome(self, host: Host) -> None:
        self._check(host)
        for broken in host.broken:
            self._log.tell("folder.broken", file=broken.file, line=broken.line, error=broken.error)
        states = [routine.state for routine in host.routines]
        self._log.tell("host.started", host=host.generation, pid=host.pid, python=host.python, states=states)
        self._roster.welcome(host)
        self.ready.set()
        self._changed()

    def _check(self, host: Host) -> None:
        """Refuse a folder that is not fit to start with; one that became so later is tried again (A-05)."""
        try:
            check(host, is_strict=self._is_strict and not self.ready.is_set())
        except Fault as fault:
            if not self.ready.is_set():
                raise
            raise HostUnusable(fault.sentence) from None

    async def _read(self, host: Host) -> None:
        while True:
            self.hear(host.generation, await host.receive())

    def hear(self, generation: int, messages: Sequence[ToAgent]) -> None:
        """Take messages of a host; kinds that this agent does not know yet are nothing."""
        roster = self._roster
        now = anyio.current_time()
        for message in messages:
            if isinstance(message, Outcome):
                roster.end(message, now)
            elif isinstance(message, Began):
                roster.happen((message.task, message.attempt), message, now)
            elif isinstance(message, Noted | Remembered):
                roster.take_word(message)
            elif isinstance(message, Logged):
                self._log_line(generation, message)

    def _log_line(self, generation: int, line: Logged) -> None:
        keys: Mapping[str, object] = {"host": generation, "text": line.text}
        event = "host.printed"
        if line.task is not None and line.attempt is not None:
            event = "routine.logged"
            keys = {**self._roster.names((line.task, line.attempt)), "text": line.text}
        self._log.tell_at(line.level, event, keys)

    def _bury(self, generation: int, reason: str) -> float:
        """Settle what the host had; return how long to wait before the next one starts (A-23)."""
        running = self._roster.bury(generation, reason)
        self._changed()
        self._deaths += 1
        wait_s = 0.0 if self._deaths == 1 else cadence.backoff_s(self._deaths - 1, self._luck.random())
        self._log.tell(
            "host.ended", host=generation, reason=reason, running=running, next_in_s=round(wait_s, 1)
        )
        return wait_s


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
