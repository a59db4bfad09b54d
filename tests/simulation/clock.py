"""Time as a life has it: it goes to the next deadline as soon as nobody can go on, and a box may sleep through some of it."""

from __future__ import annotations

import math

import anyio
import trio.abc

from stateous_supervisor.agent.cadence import Reading

LOOK_S = 14.0


class Jumping(trio.abc.Clock):
    """A clock that jumps. Unlike `trio.testing.MockClock` it needs no turn of the loop, and no count of all tasks, to do so.

    It may do that because a life has no thread and no socket: where no task can go on, only a deadline is left to come.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def start_clock(self) -> None:
        """Begin at 0, as it was made."""

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump: trio asks this where it has nothing to run until `deadline`."""
        if math.isinf(deadline):
            return deadline  # before the life has begun
        self.now = max(self.now, deadline)
        return 0.0


class BoxClocks:
    """The two clocks of one box: `sleeps` lets one of them go on alone (A-33)."""

    def __init__(self) -> None:
        self._slept_s = 0.0
        self._woken = anyio.Event()

    def read(self) -> Reading:
        now = anyio.current_time()
        return Reading(boot_s=now + self._slept_s, monotonic_s=now)

    def sleeps(self, span_s: float) -> None:
        self._slept_s += span_s
        self._woken.set()
        self._woken = anyio.Event()

    async def pause(self, look_s: float) -> None:
        """Sleep between two looks of the agent: `look_s` after the box woke up, and longer where there is nothing to see.

        Looks each second were most of what happened in a life. An agent whose loops turn is not late by this (A-55).
        """
        with anyio.move_on_after(LOOK_S):
            await self._woken.wait()
            await anyio.sleep(look_s)
