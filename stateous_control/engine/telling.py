"""Tells people outside of questions that wait for them, and reminds them. How is the caller's: a command, or a URL.

At least once: a question is taken with a pause that grows, told, and noted as told. Who dies in between leaves it due
again. After `TRIES_MAX` deliveries in vain it is left alone and the log says so; it stays in every list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from stateous_contract.codes import Refused

from stateous_control.engine.gathering import Operation
from stateous_control.engine.people import notice_of
from stateous_control.engine.supervising import given_up, told
from stateous_control.logs import logger
from stateous_control.rules.book import Book
from stateous_control.store.pool import Mode, Pool, Row
from stateous_control.store.statements import statements

Deliver = Callable[[bytes], Awaitable[None]]
"""Carries one notice (JSON text) out; raises `NotDelivered` where nobody took it."""

CarryOut = Callable[[Operation[None]], Awaitable[None]]
"""Carries out a change."""

LOOK_S: Final = 1.0
AT_ONCE_MAX: Final = 8
TRIES_MAX: Final = 8
PAUSE_S: Final = 40.0
"""The first pause after a delivery in vain: longer than one delivery may take."""

log = logger()


class NotDelivered(Exception):
    """Nobody took the notice. The text is one plain sentence."""


class Telling:
    """The teller of one control plane.

    Args:
        pool: the database. deliver: how people are told; None tells nobody.
        pause_s: the pause after the first delivery in vain, doubled for each further one.

    """

    def __init__(self, pool: Pool, deliver: Deliver | None, pause_s: float = PAUSE_S) -> None:
        self.delivered = 0
        self.failed = 0
        self._pool = pool
        self._deliver = deliver
        self._pause_s = pause_s
        self._woken = asyncio.Event()

    def committed(self, book: Book) -> None:
        """Look soon where a transaction asked a question."""
        if any(question.is_new for question in book.questions.values()):
            self._woken.set()

    async def run(self, carry_out: CarryOut) -> None:
        """Tell, for ever; without a way to tell there is nothing to do."""
        if self._deliver is None:
            return
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                while await self.tell(self._deliver, carry_out) == AT_ONCE_MAX:
                    pass
            except Refused:
                continue  # the database is away; what is due stays due
            except Exception:  # the top of a loop: a fault of ours must not silence the next question
                log.exception("question.untold")

    async def tell(self, deliver: Deliver, carry_out: CarryOut) -> int:
        """Take what is due and tell it; return how many were taken."""
        rows = await self._pool.run(
            lambda session: session.fetch(statements.take_notices, AT_ONCE_MAX, self._pause_s), Mode.WRITE
        )
        await asyncio.gather(*(self._tell_one(row, deliver, carry_out) for row in rows))
        return len(rows)

    async def _tell_one(self, row: Row, deliver: Deliver, carry_out: CarryOut) -> None:
        try:
            await deliver(notice_of(row))
        except NotDelivered as why:
            self.failed += 1
            is_last = row["notify_tries"] >= TRIES_MAX
            log.warning("question.undelivered", question=row["id"], reason=str(why), given_up=is_last)
            if is_last:
                await carry_out(given_up(row["task_id"], row["id"]))
            return
        self.delivered += 1
        log.info("question.told", question=row["id"], task=row["task_id"], times=row["tellings"] + 1)
        await carry_out(told(row["task_id"], row["id"]))
