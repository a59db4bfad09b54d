"""Warns about a host that hangs, and says when it is over: a blocked loop by its pulses, a held interpreter by silence.

A-22: within 2 s a line names place, task and how long; it is repeated at growing intervals. Meanwhile no task is
claimed that would only wait: of `async def` routines where the loop is blocked, of any where the host says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

import anyio

from stateous_supervisor.agent.dumps import Hang, Line
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.wake import Wake
from stateous_supervisor.link.frames import Pulse, RoutineFacts

LATE_S: Final = 0.9  # the host itself shows where a loop hangs that is later than this
SILENT_S: Final = 1.6  # three pulses
LOOK_S: Final = 0.2
STOOD_S: Final = 1.0  # an agent that looks so much too late stood still itself, perhaps with its host
UNHEARD_LOOK_S: Final = 60.0  # how soon the watch over a host that never pulsed notices that it is gone
AGAIN_S: Final = 2.0
AGAIN_MAX_S: Final = 300.0

Key = tuple[int, int]


class Watched(Protocol):
    """What this needs of a host. `has_pulse`: it pulses from the moment that it is loaded."""

    has_pulse: bool
    generation: int
    routines: Sequence[RoutineFacts]

    async def hang(self) -> Hang | None:
        """Return where the host hangs, if that can be seen from outside. May take a second."""


class Stalls:
    """The watch over one host. `paused` are the states that are better not claimed now.

    Args:
        host: it; one without a pulse is watched from the first one on that it gives all the same.
        running: gives task and attempt of what runs in the host in one state.
        names: gives the keys that stand on the lines of an attempt.
        changed: called when `paused` or `is_silent` did.
        silent: called with when it was last heard, again and again while it says nothing.
    """

    def __init__(
        self,
        host: Watched,
        log: Log,
        *,
        running: Callable[[str], Sequence[Key]],
        names: Callable[[Key], dict[str, object]],
        changed: Callable[[], None],
        silent: Callable[[float], None],
    ) -> None:
        self.paused: Collection[str] = ()
        self.is_silent = False
        self._host = host
        self._log = log
        self._running = running
        self._names = names
        self._changed = changed
        self._silent = silent
        self._heard_at: float | None = None
        self._pulsed = Wake()
        self._since: float | None = None
        self._is_told = False
        self._next_at = 0.0
        self._wait_s = AGAIN_S

    def silent_s(self, now: float) -> float:
        """Return for how long the host has said nothing; 0 while it says something."""
        return now - self._heard_at if self.is_silent and self._heard_at is not None else 0.0

    def take(self, pulse: Pulse, now: float) -> None:
        """Take a pulse: the host lives, and says itself whether and where its loop hangs."""
        self._heard_at = now
        self._pulsed.ring()
        if pulse.loop_lag_s <= LATE_S or pulse.stack is None:
            self._clear(now)
            return
        states = [r.state for r in self._host.routines if r.is_async and r.isolation != "process"]
        if self._is_due(now, now - pulse.loop_lag_s, states):
            key = (pulse.task, pulse.attempt)
            self._warn(
                now, "loop", pulse.stack, [] if key[0] is None or key[1] is None else [(key[0], key[1])]
            )

    async def watch(self, is_there: Callable[[], bool]) -> None:
        """Notice a host that says nothing, as long as it is there."""
        if self._host.has_pulse:
            # Work may have come to it already, and silenced it before its first pulse.
            self._heard_at = self._heard_at or anyio.current_time()
        while True:
            await self._until_late()
            if not is_there():
                break  # its silence means nothing: it is gone
            now = anyio.current_time()
            heard_at = self._heard_at
            if heard_at is None or now - heard_at < SILENT_S:
                continue
            if self._is_due(now, heard_at, [r.state for r in self._host.routines], is_silent=True):
                hang = await self._host.hang()
                if self._heard_at == heard_at and is_there():
                    self._warn(now, "host", hang and hang.place, self._owners(hang.frames if hang else ()))
            if self._heard_at == heard_at and is_there():
                self._silent(heard_at)
        self.paused, self.is_silent = (), False

    async def _until_late(self) -> None:
        """Sleep until its silence would be one: an idle agent wakes for nothing else."""
        now = anyio.current_time()
        if self._heard_at is None:
            await self._pulsed.wait(now + UNHEARD_LOOK_S)
        else:
            look_at = max(now + LOOK_S, self._heard_at + SILENT_S)
            await anyio.sleep_until(look_at)
            stood_s = anyio.current_time() - look_at
            if stood_s > STOOD_S:  # what it said meanwhile, if it could, is not read yet
                self._heard_at += stood_s

    def _is_due(self, now: float, since: float, states: Collection[str], *, is_silent: bool = False) -> bool:
        """Note that it hangs, and return whether it is time to say so."""
        if self._since is None:
            self._since, self._next_at, self._wait_s = since, now, AGAIN_S
        if (set(states), is_silent) != (set(self.paused), self.is_silent):
            self.paused, self.is_silent = states, is_silent
            self._changed()
        if now < self._next_at:
            return False
        self._next_at, self._wait_s = now + self._wait_s, min(self._wait_s * 2, AGAIN_MAX_S)
        return True

    def _warn(self, now: float, what: str, place: str | None, owners: Sequence[Key]) -> None:
        self._is_told = True
        blocked_s = round(now - (self._since if self._since is not None else now), 1)
        names = self._names(owners[0]) if len(owners) == 1 else {}
        tasks = [key[0] for key in owners] if len(owners) > 1 else None
        keys = {"host": self._host.generation, "what": what, "place": place, "blocked_s": blocked_s}
        self._log.tell("host.blocked", **keys, tasks=tasks, **names)

    def _clear(self, now: float) -> None:
        if self._since is None:
            return
        blocked_s, self._since = round(now - self._since, 1), None
        if self._is_told:
            self._is_told = False
            self._log.tell("host.unblocked", host=self._host.generation, blocked_s=blocked_s)
        self.paused, self.is_silent = (), False
        self._changed()

    def _owners(self, frames: Iterable[Line]) -> Sequence[Key]:
        """Return the attempts whose routine these frames can belong to."""
        for frame in frames:
            for routine in self._host.routines:
                if (frame.file, frame.name) == (routine.file, routine.name.rpartition(".")[2]):
                    return self._running(routine.state)
        return []
