"""The loop that writes the outbox: it gathers what is to be written and commits it at once, in one thread.

Callers add rows to `batch` and say what is to happen when they are on disk. While the disk refuses, rows wait
in memory in their order and are tried again each second; outcomes are sent all the same (`then`), grants wait
(`flush`) or are given back (`is_kept`), and nothing more is claimed (`is_writable`) (A-41).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import anyio
import anyio.to_thread

from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.outbox import ASIDE_MAX, Batch, Envelope, Outbox, WriteFailed, name_of
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.wake import Wake

RETRY_S: Final = 1.0
COMMIT_S: Final = 60.0  # a disk that takes longer has not refused, it hangs
LATER_S: Final = 0.1


class Journal:
    """What stands between the loops and the outbox. `batch` is what the next commit writes."""

    def __init__(self, outbox: Outbox, log: Log) -> None:
        self.mended: Callable[[], None] = lambda: None
        self.promise: Promise = nothing
        self.batch = Batch()
        self.is_writable = True
        self.is_copied = outbox.found.is_copied
        self.aside = [*outbox.found.earlier, *outbox.found.aside]
        self._outbox = outbox
        self._log = log
        self._thens: list[Callable[[], None]] = []
        self._waiters: list[anyio.Event] = []
        self._askers: list[anyio.Event] = []
        self._is_hurried = False
        self._some = Wake()
        self._urgent = Wake()
        self._down_since = 0.0
        self._served: list[anyio.Event] = []
        self._is_over = False
        self._limiter = anyio.CapacityLimiter(1)
        self._next_id = outbox.next_id

    def new_id(self) -> int:
        """Return the id of the next message; ids rise in the order in which messages were made."""
        self._next_id += 1
        return self._next_id - 1

    def write_soon(self, then: Callable[[], None] | None = None) -> None:
        """Have `batch` written; `then` is called when it is, or when the disk refused it for now."""
        if then is not None:
            self._thens.append(then)
        self._ring()

    def write_later(self) -> None:
        """Have `batch` written with the next commit, or in `LATER_S` if there is none: what is in it is not urgent."""
        self._some.ring()

    def _ring(self) -> None:
        self._some.ring()
        self._urgent.ring()

    async def flush(self) -> None:
        """Return when everything that is in `batch` now is on disk, however long the disk refuses; see `hurry`."""
        if self._is_over:
            return
        flushed = anyio.Event()
        self._waiters.append(flushed)
        self._ring()
        await flushed.wait()

    async def is_kept(self) -> bool:
        """Have everything that is in `batch` now written, and return whether the disk took it; it is tried once."""
        if self._is_over:
            return False
        asked = anyio.Event()
        self._askers.append(asked)
        self._ring()
        await asked.wait()
        return self.is_writable

    def hurry(self) -> None:
        """From now on nobody waits for a disk that refuses: the process is about to end."""
        self._is_hurried = True
        if not self.is_writable:
            self._let_go(self._waiters)

    def set_aside(self, envelope: Envelope, error: str) -> None:
        """Keep a message that can never be delivered, and say so (A-40)."""
        record = name_of(envelope)
        self.aside = [*self.aside, f"{record}: {error}"][-ASIDE_MAX:]
        self.batch.aside.append((error, envelope))
        self.write_later()
        self._log.tell("outbox.set_aside", record=record, error=error)

    async def run(self) -> None:
        """Commit batch after batch, for ever. Once it was cancelled, nobody waits for it."""
        try:
            await self._commit_all()
        finally:
            self._is_over = True
            self._let_go([*self._served, *self._waiters, *self._askers])

    async def _commit_all(self) -> None:
        while True:
            self.promise(math.inf)
            await self._some.wait()
            await self._urgent.wait(anyio.current_time() + LATER_S)
            self.promise(COMMIT_S)
            batch, self.batch = self.batch, Batch()
            thens, self._thens = self._thens, []
            waiters, self._waiters = self._waiters, []
            askers, self._askers = self._askers, []
            self._served = [*waiters, *askers]
            try:
                await self._commit(batch)
            except WriteFailed as error:
                self.batch = batch.before(self.batch)
                self._waiters = waiters + self._waiters
                self._fail(error)
                self._let_go([*askers, *(self._waiters if self._is_hurried else ())])
                _call(thens)
                await anyio.sleep(RETRY_S)
                self._ring()
                continue
            self._mend()
            self._let_go([*waiters, *askers])
            _call(thens)

    def _let_go(self, waiters: Iterable[anyio.Event]) -> None:
        for waiter in waiters:
            waiter.set()

    def _fail(self, error: WriteFailed) -> None:
        if self.is_writable:
            self.is_writable = False
            self._down_since = anyio.current_time()
            self._log.tell("outbox.failed", error=str(error), next_in_s=RETRY_S)

    def _mend(self) -> None:
        if not self.is_writable:
            self.is_writable = True
            self.mended()
            self._log.tell("outbox.mended", down_s=round(anyio.current_time() - self._down_since, 1))

    async def _commit(self, batch: Batch) -> None:
        if batch.is_empty:
            return
        if self._outbox.is_in_memory:
            self._outbox.commit(batch)
        else:
            await anyio.to_thread.run_sync(self._outbox.commit, batch, limiter=self._limiter)


def _call(thens: list[Callable[[], None]]) -> None:
    for then in thens:
        then()
