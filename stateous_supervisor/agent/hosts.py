"""The loop that always has a routine host: start, read, bury, start again.

It hands frames to the roster, tells it when a host died, and starts the next host at once; where hosts keep dying,
with backoff (A-23). A suspect gets a host of its own, and a host in which too many routines go on
although their attempt is over is replaced (A-30), as is one that says it is not fit for more, or says nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host import (
    Host,
    HostEnded,
    HostSource,
    HostUnusable,
    check,
    check_broken,
)
from stateous_supervisor.agent.lines import Key, Line
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.output import Nowhere, Sink
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.receivers import served_by
from stateous_supervisor.agent.replacing import Replacing
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.agent.stalls import Stalls
from stateous_supervisor.link.frames import (
    Began,
    BrokenFile,
    Call,
    Logged,
    Noted,
    Outcome,
    Pulse,
    Remembered,
    RoutineFacts,
    ToAgent,
    Unfit,
)

START_S: Final = 600.0  # a folder with many files may take its time
ALONE_MAX: Final = 8  # so many suspects run at once; others wait for a host of their own


class Hosts:
    """The loop over hosts. `ready` is set once the first one has loaded the folder; `output` keeps what routines print.

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
        self.output: Sink = Nowhere()
        self.ready = anyio.Event()
        self.lines: list[Line] = []
        self.promise: Promise = nothing
        self.called: Callable[[Call], None] = lambda _call: None
        self._source = source
        self._roster = roster
        self._log = log
        self._changed = changed
        self._is_strict = is_strict
        self._generation = 0
        self._tasks: TaskGroup | None = None
        self._starting = anyio.Lock()
        self._alone = anyio.Semaphore(ALONE_MAX)
        self._replacing = Replacing(
            roster,
            log,
            luck,
            lines=self.lines,
            start_beside=lambda: self._start_beside(None),
            changed=changed,
        )
        roster.alone = self._start_alone

    @property
    def generation(self) -> int:
        """The number of the host that takes new work; 0 without one."""
        hosts = [line.host for line in self.lines if line.host is not None and not line.is_retired]
        return max((host.generation for host in hosts), default=0)

    @property
    def abandoned(self) -> int:
        """How many routines go on although their attempt is over."""
        return sum(line.abandoned for line in self.lines if line.host is not None)

    @property
    def broken(self) -> Sequence[BrokenFile]:
        """The files that the newest host left out."""
        hosts = [line.host for line in self.lines if line.host is not None and not line.is_retired]
        return hosts[-1].broken if hosts else ()

    def routines(self, generation: int) -> Sequence[RoutineFacts]:
        """What the host of that generation loaded; 0 asks for the one that takes new work."""
        wanted = generation or self.generation
        hosts = [line.host for line in self.lines if line.host is not None]
        return next((host.routines for host in hosts if host.generation == wanted), ())

    async def run(self) -> None:
        """Have a host, for ever.

        Raises:
            Fault: the first host cannot be used, or the folder is not fit to start with (78).
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = self._replacing.tasks = tasks
            try:
                await self._have(Line(self._source))
            except Exception as error:  # kept as it is: a task group would wrap it
                failure = error
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def reload(self, source: HostSource) -> None:
        """Start a host of `source` beside the one that there is; if it is good it gets all work from now on (A-45).

        Raises:
            Fault: it cannot be used, or a file broke that was good; the old host goes on (78).
        """
        line = await self._start_beside(source)
        if line.fault is not None:
            raise Fault(Exit.CONFIG, line.fault)

    async def _start_beside(self, source: HostSource | None) -> Line:
        """Start a host beside the one that there is; of the same source as that where none is given."""
        assert self._tasks is not None, "the first host has not been started"
        async with self._starting:
            line = Line(source or self._source)
            self._tasks.start_soon(self._have_next, line)
            await line.settled.wait()
            if line.fault is None:
                self._source = line.source
            return line

    def _start_alone(self, key: Key) -> bool:
        """Start a host for one suspect, so that its next death has one culprit; return whether there can be one."""
        if self._tasks is None or not self._source.can_add:
            return False
        self._tasks.start_soon(self._have_alone, key)
        return True

    async def _have_alone(self, key: Key) -> None:
        async with self._alone:
            line = Line(self._source, key)
            line.settled.set()
            await self._have_next(line)
            self._roster.give_up(key)

    async def _have_next(self, line: Line) -> None:
        try:
            await self._have(line)
        except Exception as error:  # the top of a loop: a reload that fails must not end the hosts that run
            if line.settled.is_set():
                raise
            line.fault = error.sentence if isinstance(error, Fault) else repr(error)
        finally:
            line.settled.set()

    async def _have(self, line: Line) -> None:
        """Have a host of this line until it is retired."""
        self.lines.append(line)
        try:
            with line.scope:
                while True:
                    self._generation += 1
                    await anyio.sleep(await self._live(line, self._generation))
                    if line.is_retired:
                        break
        finally:
            self.lines.remove(line)
        if line.is_retired and line.suspect is None:
            self._log.tell("host.retired", host=line.generation)

    async def _live(self, line: Line, generation: int) -> float:
        """Start a host and read it to its end; return how long to wait before the next one (A-23)."""
        started_at = anyio.current_time()
        self.promise(START_S)
        try:
            async with line.source.open(generation) as host:
                started_at = anyio.current_time()
                self._welcome(line, host)
                await self._read(line, host)
                return 0.0
        except HostEnded as ended:
            return self._bury(generation, ended.reason, line, anyio.current_time() - started_at)
        except HostUnusable as unusable:
            if not line.settled.is_set():
                raise Fault(Exit.CONFIG, unusable.sentence) from None
            wait_s = self._replacing.unusable_s()
            self._log.tell("host.failed", error=unusable.sentence, next_in_s=round(wait_s, 1))
            return wait_s
        except Exception:  # a fault of ours: whoever is told of it must not find work that nobody does
            self._roster.bury(generation, "the agent let go of it")
            raise
        finally:
            line.host, line.generation = None, generation
            self._roster.leave(generation)
            self.promise(math.inf)

    def _welcome(self, line: Line, host: Host) -> None:
        self._check(line, host)
        self.promise(math.inf)
        for broken in host.broken:
            self._log.tell("folder.broken", file=broken.file, line=broken.line, error=broken.error)
        states = list(served_by(host.routines))
        self._log.tell("host.started", host=host.generation, pid=host.pid, python=host.python, states=states)
        line.welcome(host, anyio.current_time())
        self._watch(line, host)
        if line.suspect is None:
            self._open(line, host)
        else:
            self._roster.start_alone(host, line.suspect)
        self._changed()

    def _open(self, line: Line, host: Host) -> None:
        """Give this host what waits and all work from now on."""
        self._roster.paused = ()
        self._roster.welcome(host)
        for other in self.lines:
            if other is not line and not other.is_retired:
                self._retire(other)
        line.settled.set()
        self.ready.set()

    def _watch(self, line: Line, host: Host) -> None:
        """Warn when this host hangs, for as long as it is there (A-22)."""

        def changed() -> None:
            if not line.is_retired and line.host is host:
                self._roster.paused = stalls.paused
                if stalls.is_silent:
                    self._roster.close(host.generation)
                elif not line.is_unfit and not self._roster.is_ready:
                    self._roster.welcome(host)
                self._changed()

        stalls = line.stalls = Stalls(
            host,
            self._log,
            running=lambda state: self._roster.running_in(host.generation, state),
            names=self._roster.names,
            changed=changed,
            silent=lambda heard_at: self.hear(host.generation, self._replacing.judge(line, heard_at), line),
        )
        if self._tasks is not None:
            self._tasks.start_soon(stalls.watch, lambda: line.host is host)

    def _check(self, line: Line, host: Host) -> None:
        """Refuse a folder that is not fit to start with; one that became so later is tried again (A-05)."""
        try:
            check(host, is_strict=self._is_strict and not line.settled.is_set())
            if self.ready.is_set() and not line.settled.is_set():
                check_broken(host, {broken.file for broken in self.broken})
        except Fault as fault:
            if not line.settled.is_set():
                raise
            raise HostUnusable(fault.sentence) from None

    def _retire(self, line: Line) -> None:
        """Give this line no more work, and end it once its routines have ended."""
        line.is_retired = True
        if line.host is None or not self._roster.has_work_in(line.host.generation):
            line.scope.cancel()

    async def _read(self, line: Line, host: Host) -> None:
        while not (line.is_retired and not self._roster.has_work_in(host.generation)):
            self.hear(host.generation, await host.receive(), line)

    def hear(self, generation: int, messages: Sequence[ToAgent], line: Line | None = None) -> None:
        """Take messages of a host; kinds that this agent does not know yet are nothing."""
        roster = self._roster
        now = anyio.current_time()
        for message in messages:
            if isinstance(message, Outcome):
                if line is not None:
                    line.abandoned += message.is_abandoned
                roster.end(message, now)
            elif isinstance(message, Began):
                roster.happen((message.task, message.attempt), message, now)
            elif isinstance(message, Noted | Remembered):
                roster.take_word(message)
            elif isinstance(message, Call):
                self.called(message)
            elif isinstance(message, Logged):
                self._log_line(generation, message)
            elif line is not None:
                self._hear_of_itself(message, line, now)

    def _hear_of_itself(self, message: ToAgent, line: Line, now: float) -> None:
        if isinstance(message, Unfit):
            self._replacing.take_out(line, message)
        elif isinstance(message, Pulse):
            self._replacing.take_pulse(line, message, now)

    def _log_line(self, generation: int, line: Logged) -> None:
        keys: Mapping[str, object] = {"host": generation, "text": line.text}
        event = "host.printed"
        if line.task is not None and line.attempt is not None:
            event = "routine.logged"
            key = (line.task, line.attempt)
            self.output.take(key, line.level, line.text)
            keys = {**self._roster.names(key), "text": line.text}
        self._log.tell_at(line.level, event, keys)

    def _bury(self, generation: int, reason: str, line: Line, lived_s: float) -> float:
        """Settle what the host had; return how long to wait before the next one starts (A-23)."""
        reason = line.end or reason
        running = self._roster.bury(generation, reason, others=line.abandoned)
        self._changed()
        if line.is_retired:
            self._log.tell("host.ended", host=generation, reason=reason, running=running)
            return 0.0
        wait_s = self._replacing.next_host_s(lived_s)
        self._log.tell(
            "host.ended", host=generation, reason=reason, running=running, next_in_s=round(wait_s, 1)
        )
        return wait_s
