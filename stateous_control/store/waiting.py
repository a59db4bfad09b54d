"""Reads and writes waits and signals. A book without them costs no statement; called by `supervised.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.limits import SIGNALS_KEPT_MAX
from stateous_contract.states import WAIT_PREFIXES

from stateous_control.rules.awaited import Part, Signal, Wait
from stateous_control.rules.book import Book
from stateous_control.store.columns import columns
from stateous_control.store.pool import Row, Session
from stateous_control.store.statements import statements

_PARTS: Final = msgspec.json.Decoder(list[Part])


@dataclass(slots=True)
class Awaited:
    """What a book is to hold of waits and signals; the waits that its tasks are parked on are always there.

    `waits` are task, step and occurrence, `names` a task and a signal's name that it may take. `tasks` and `tokens`
    (owner and name) are sent signals, each with the sender's key, or None.
    """

    waits: set[tuple[int, str, int]] = field(default_factory=set)
    names: set[tuple[int, str]] = field(default_factory=set)
    tasks: set[tuple[int, str | None]] = field(default_factory=set)
    tokens: set[tuple[str, str, str | None]] = field(default_factory=set)

    def add(self, other: Awaited) -> None:
        """Take in what another operation of the same transaction wants."""
        self.waits |= other.waits
        self.names |= other.names
        self.tasks |= other.tasks
        self.tokens |= other.tokens


async def read_awaited(session: Session, wanted: Awaited, book: Book) -> None:
    """Read what is wanted, the waits that tasks in the book are parked on, and the signals that may end them."""
    parked = [task.id for task in book.tasks.values() if (task.reason or "").startswith(WAIT_PREFIXES)]
    if parked or wanted.waits:
        for row in await session.fetch(statements.read_waits, parked, *columns(sorted(wanted.waits), 3)):
            _take_in(book, _wait(row))
    names = wanted.names | {
        (task_id, part.name)
        for (task_id, _, _), wait in book.waits.items()
        for part in wait.parts
        if part.name is not None and task_id in parked
    }
    sent = _addresses(wanted, book)
    keyed = [address for address in sent if address[2] is not None]
    if names or keyed:
        taking = [
            (task, book.tasks[task].token_id, name) for task, name in sorted(names) if task in book.tasks
        ]
        rows = await session.fetch(statements.read_signals, *columns(taking, 3), *columns(keyed, 3))
        book.signals = [_signal(row) for row in rows]
    if sent:
        addresses = [address[:2] for address in sent]
        for row in await session.fetch(statements.count_signals, *columns(addresses, 2), SIGNALS_KEPT_MAX):
            book.signals_kept[row["task_id"], row["token_id"]] = row["kept"]


def _addresses(wanted: Awaited, book: Book) -> list[tuple[int | None, int | None, str | None]]:
    """Return where signals are sent: a task or a token, and the key."""
    tokens = ((book.named.get((owner, name.lower())), key) for owner, name, key in wanted.tokens)
    return [
        *((task, None, key) for task, key in wanted.tasks),
        *((None, token.id, key) for token, key in tokens if token is not None),
    ]


def _take_in(book: Book, wait: Wait) -> None:
    book.waits[wait.task_id, wait.step, wait.occurrence] = wait
    if wait.is_open and wait.task_id in book.tasks:
        book.tasks[wait.task_id].wait = wait


async def write_awaited(session: Session, book: Book) -> None:
    """Write what has changed."""
    waits = [_written(wait) for wait in book.waits.values() if wait.is_new or wait.is_changed]
    if waits:
        await session.fetch(statements.write_waits, *columns(waits, 7))
    fresh = [_whole(signal) for signal in book.signals if signal.is_new]
    if fresh:
        await session.fetch(statements.insert_signals, *columns(fresh, 8))
    taken = [
        (signal.id, signal.taken_by) for signal in book.signals if signal.is_changed and not signal.is_new
    ]
    if taken:
        await session.fetch(statements.take_signals, *columns(taken, 2))


def _wait(row: Row) -> Wait:
    return Wait(
        task_id=row["task_id"],
        step=row["step"],
        occurrence=row["occurrence"],
        parts=_PARTS.decode(row["parts"]),
        began_at=row["began_at"],
        is_open=row["is_open"],
    )


def _written(wait: Wait) -> tuple[Any, ...]:
    parts = msgspec.json.encode(wait.parts).decode()
    return (wait.task_id, wait.step, wait.occurrence, parts, wait.began_at, wait.due_at, wait.is_open)


def _signal(row: Row) -> Signal:
    payload = row["payload"]
    return Signal(
        id=row["id"],
        task_id=row["task_id"],
        token_id=row["token_id"],
        name=row["name"],
        payload=None if payload is None else Raw(payload.encode()),
        sent_at=row["sent_at"],
        sent_by=row["sent_by"],
        key=row["key"],
        taken_by=row["taken_by"],
    )


def _whole(signal: Signal) -> tuple[Any, ...]:
    payload = None if signal.payload is None else bytes(signal.payload).decode()
    return (
        signal.task_id,
        signal.token_id,
        signal.name,
        payload,
        signal.key,
        signal.sent_at,
        signal.sent_by,
        signal.taken_by,
    )
