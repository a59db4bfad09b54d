"""Group commit: what arrives while a transaction is out goes into the next one together.

Each operation is run by the pure rules on one book and gets its own answer: a refusal stays its own, and an
operation that breaks is taken out and the others run again without it. Nobody waits for company: an operation that
finds a free writer goes at once, alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from stateous_contract.codes import Refused

from stateous_control.logs import logger
from stateous_control.rules.access import OPEN, Access
from stateous_control.rules.book import Book
from stateous_control.rules.routines import settle
from stateous_control.store.books import OpenBook, Shelf, Wanted, keep_own
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import LockedOut, Mode, Pool, Session
from stateous_control.store.writing import write_back

WEIGHT_MAX: Final = 500
QUEUE_MAX: Final = 20_000

log = logger()


Answer = TypeVar("Answer")


@dataclass(eq=False, slots=True)
class Operation(Generic[Answer]):
    """One request to change something.

    Args:
        wanted: what the book must hold. apply: runs the rules and returns the answer; raises `Refused`.
        keys: what it is about; operations with a key in common run one after the other, in the order they came.
        weight: how many single changes it stands for. access: who asks; what is not its own is not found.

    """

    wanted: Wanted
    apply: Callable[[OpenBook], Answer]
    keys: frozenset[Hashable]
    weight: int
    access: Access = OPEN
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Broken(Exception):
    """An operation raised what no rule should raise; nothing of the transaction is kept."""

    def __init__(self, operation: Operation[Any], error: Exception) -> None:
        super().__init__(str(error))
        self.operation = operation
        self.error = error


class Gathering:
    """The operations that wait, and the writers that carry them out.

    Args:
        pool, shelf: the database and what books share. committed: is told each book after its commit.

    """

    def __init__(self, pool: Pool, shelf: Shelf, committed: Callable[[Book], None]) -> None:
        self._pool = pool
        self._shelf = shelf
        self._committed = committed
        self._waiting: deque[Operation[Any]] = deque()
        self._busy: set[Hashable] = set()
        self._arrived = asyncio.Condition()
        self.operations = 0
        self.transactions = 0

    async def run(self, operation: Operation[Answer]) -> Answer:
        """Carry out `operation` and return its answer; raises `Refused` and `Unavailable`."""
        if len(self._waiting) >= QUEUE_MAX:
            raise Unavailable(f"{QUEUE_MAX} changes wait for the database already")
        self._waiting.append(operation)
        async with self._arrived:
            self._arrived.notify()
        return await operation.answer

    def stop(self) -> None:
        """Answer what nobody will carry out any more."""
        while self._waiting:
            _answer(self._waiting.popleft(), Unavailable("this control plane stops"))

    async def write(self) -> None:
        """Be one of the writers, for ever."""
        while True:
            async with self._arrived:
                while not (chosen := self._choose()):
                    await self._arrived.wait()
            keys = frozenset[Hashable]().union(*(operation.keys for operation in chosen))
            self._busy |= keys
            try:
                await self._carry_out(chosen)
            finally:
                self._busy -= keys
                for operation in chosen:
                    _answer(operation, Unavailable("this control plane stops"))
            if self._waiting:
                async with self._arrived:
                    self._arrived.notify()

    def _choose(self) -> list[Operation[Any]]:
        """Take what came first, as much as fits; what another writer is at, and what came after that, stays in line."""
        chosen: list[Operation[Any]] = []
        kept: deque[Operation[Any]] = deque()
        blocked = set(self._busy)
        weight = 0
        while self._waiting and weight < WEIGHT_MAX:
            operation = self._waiting.popleft()
            if operation.answer.cancelled():
                continue
            if not blocked.isdisjoint(operation.keys):
                blocked |= operation.keys
                kept.append(operation)
                continue
            chosen.append(operation)
            weight += operation.weight
        kept.extend(self._waiting)
        self._waiting = kept
        return chosen

    async def _carry_out(self, operations: list[Operation[Any]]) -> None:
        """Run operations in one transaction and answer each; whatever happens, each gets an answer."""
        left = list(operations)
        while left:
            mode = Mode.GROUP if len(left) > 1 else Mode.WRITE
            try:
                answers, book = await self._pool.run(lambda session: self._transact(session, left), mode)
            except Broken as broken:
                log.exception("operation.broken", exc_info=broken.error)
                left.remove(broken.operation)
                _answer(broken.operation, broken.error)
            except Exception as error:  # the top of a loop: nobody is left without an answer, whatever it was
                await self._carry_out_apart(left, error)
                return
            else:
                self.operations += len(left)
                self.transactions += 1
                self._committed(book)
                for operation, answer in zip(left, answers, strict=True):
                    _answer(operation, answer)
                return

    async def _carry_out_apart(self, operations: list[Operation[Any]], error: Exception) -> None:
        """Find out whose fault it was: neither a row that somebody holds nor bad data may cost the neighbours more."""
        is_away = isinstance(error, Unavailable) and not isinstance(error, LockedOut)
        if len(operations) == 1 or is_away:
            if not isinstance(error, Refused):
                log.error("operation.broken", exc_info=error)
            for operation in operations:
                _answer(operation, error)
            return
        size = 1 if isinstance(error, LockedOut) else (len(operations) + 1) // 2
        for first in range(0, len(operations), size):
            await self._carry_out(operations[first : first + size])

    async def _transact(self, session: Session, operations: list[Operation[Any]]) -> tuple[list[Any], Book]:
        wanted = Wanted()
        for operation in operations:
            wanted.add(operation.wanted, operation.access.owners)
        await keep_own(session, wanted)
        opened = await self._shelf.open(session, wanted)
        answers = [_applied(operation, opened) for operation in operations]
        await write_back(session, opened)
        return answers, opened.book


def _applied(operation: Operation[Any], opened: OpenBook) -> Any:
    opened.access = operation.access
    try:
        return _settled(operation.apply(opened), opened)
    except Refused as refusal:
        return refusal
    except Exception as error:  # the boundary between one operation and the others of its transaction
        raise Broken(operation, error) from error


def _settled(answer: Any, opened: OpenBook) -> Any:
    """See to trees of tasks before the next operation looks at the book."""
    settle(opened.book)
    return answer


def _answer(operation: Operation[Any], answer: Any) -> None:
    if operation.answer.done():
        return
    if isinstance(answer, Exception):
        operation.answer.set_exception(answer)
    else:
        operation.answer.set_result(answer)
