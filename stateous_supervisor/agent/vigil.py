"""The loop that looks, every second or few, for what no request tells: a box that slept, a key file that changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from stateous_supervisor.agent import cadence, clocks
from stateous_supervisor.agent.assignment import Slept
from stateous_supervisor.agent.cadence import Reading
from stateous_supervisor.agent.contact import Contact
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.roster import Roster

LOOK_S: Final = 1.0
IDLE_LOOK_S: Final = 5.0  # while nothing is held and nobody refuses us, a sleep costs less than waking for it

Ring = Callable[[], None]
Clocks = Callable[[], Reading | None]
Pause = Callable[[float], Awaitable[None]]


class Vigil:
    """Looks, and rings.

    Args:
        clocks: reads both clocks; for tests.
        pause: waits some seconds between two looks; for tests.

    `on_wake` is called after a suspend; `on_key` when another key is there than before, so that whoever asks whether
    it is accepted asks now (A-51).
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        contact: Contact,
        roster: Roster,
        log: Log,
        *,
        clocks: Clocks = clocks.read,
        pause: Pause = anyio.sleep,
    ) -> None:
        self.on_wake: Sequence[Ring] = ()
        self.on_key: Sequence[Ring] = ()
        self.promise: Promise = nothing
        self._control_plane = control_plane
        self._contact = contact
        self._roster = roster
        self._log = log
        self._clocks = clocks
        self._pause = pause

    async def run(self) -> None:
        """Look, for ever."""
        before, key = self._clocks(), self._control_plane.key()
        while True:
            look_s = LOOK_S if self._roster.assignments or self._contact.standing.is_refused else IDLE_LOOK_S
            self.promise(look_s)
            await self._pause(look_s)
            now = self._clocks()
            if before is not None and now is not None:
                self._find_slept(cadence.slept_s(before, now))
            before = now or before
            fresh = self._control_plane.key()
            if fresh != key:
                key = fresh
                _ring(self.on_key)

    def _find_slept(self, span_s: float) -> None:
        """Count the sleep into every lease, give up connections that nobody holds any more, and beat (A-33)."""
        if span_s <= 0:
            return
        self._log.tell("box.suspended", slept_s=round(span_s, 1))
        slept = Slept(span_s)
        for key in list(self._roster.assignments):
            self._roster.happen(key, slept)
        self._control_plane.drop()
        _ring(self.on_wake)


def _ring(rings: Sequence[Ring]) -> None:
    for ring in rings:
        ring()
