"""What a sweep sees to now and then, not in each pass: forgetting, and counting what nobody serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from stateous_control.engine.retention import Windows, forget
from stateous_control.logs import logger
from stateous_control.store.pool import Mode, Pool
from stateous_control.store.statements import statements

PRUNE_EVERY_S: Final = 60.0
COUNT_EVERY_S: Final = 10.0
COUNTED_MAX: Final = 100_000
FORGET_EVERY_S: Final = 60.0
FORGET_BATCHES_MAX: Final = 20
FOR_EVER: Final = Windows()

log = logger()

Chore = Callable[[], Awaitable[None]]


class Chores:
    """The chores of one control plane.

    Args:
        pool: the database. requests_kept_s: how long request ids of claims are remembered.
        live_s: a supervisor that was not heard for so long is away. windows: how long what has ended is kept.

    """

    def __init__(
        self, pool: Pool, *, requests_kept_s: float, live_s: float, windows: Windows = FOR_EVER
    ) -> None:
        self.unroutable = 0
        self._pool = pool
        self._requests_kept_s = requests_kept_s
        self._live_s = live_s
        self._windows = windows
        self._due: list[tuple[float, Chore]] = [
            (PRUNE_EVERY_S, self._prune),
            (COUNT_EVERY_S, self._count),
            (FORGET_EVERY_S, self._forget),
        ]
        self._done_at: dict[Chore, float] = {}

    async def see_to(self) -> None:
        """Do what is due; raises `Unavailable` where the database does not answer."""
        clock = asyncio.get_running_loop().time
        for every_s, chore in self._due:
            if clock() - self._done_at.get(chore, float("-inf")) >= every_s:
                await chore()
                self._done_at[chore] = clock()

    async def _prune(self) -> None:
        await self._pool.run(
            lambda session: session.fetch(statements.prune, self._requests_kept_s), Mode.PLAIN
        )

    async def _count(self) -> None:
        """Count the tasks that no live supervisor serves; they cost nothing and must be seen (S2-57, DX-22)."""
        rows = await self._pool.run(
            lambda session: session.fetch(statements.unroutable, self._live_s, COUNTED_MAX), Mode.PLAIN
        )
        self.unroutable = rows[0]["waiting"]

    async def _forget(self) -> None:
        done = await forget(self._pool, self._windows, batches_max=FORGET_BATCHES_MAX)
        if any(asdict(done).values()):
            log.info("retention.done", **asdict(done))
