"""Opens a book for one transaction: locks tokens in id order, reads what the rules need, reserves fresh ids.

The number of statements does not depend on how many tokens or tasks there are. Nothing here decides anything, and
`writing.py` carries the changes back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load_text
from stateous_control.rules.book import Book, Held, Task, Timer, Token
from stateous_control.store.pool import Row, Session
from stateous_control.store.statements import statements

RETRY_DELAY_S_MAX: Final = 60.0
_IDS_AT_ONCE: Final = 500
_VALUES: Final = msgspec.json.Decoder(dict[str, Raw])
_COUNTS: Final = msgspec.json.Decoder(dict[str, int])


@dataclass(slots=True)
class Wanted:
    """What a book is to be opened for. A name or task that does not exist is simply not in the book.

    `memory` names keys of memory (task, key) and `keys` idempotency keys (owner, name, key) whose presence matters.
    `starts` and `moves` are how many tokens may be started and how often a token may enter a state; held events come on
    top. `needs_timers` is False where no task can end, `needs_leases` where no lease is judged.
    """

    tasks: set[int] = field(default_factory=set)
    token_ids: set[int] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)
    memory: set[tuple[int, str]] = field(default_factory=set)
    keys: set[tuple[str, str, str]] = field(default_factory=set)
    starts: int = 0
    moves: int = 0
    needs_timers: bool = False
    needs_leases: bool = False

    def add(self, other: Wanted) -> None:
        """Take in what another operation of the same transaction wants."""
        self.tasks |= other.tasks
        self.token_ids |= other.token_ids
        self.names |= other.names
        self.memory |= other.memory
        self.keys |= other.keys
        self.starts += other.starts
        self.moves += other.moves
        self.needs_timers = self.needs_timers or other.needs_timers
        self.needs_leases = self.needs_leases or other.needs_leases


@dataclass(slots=True)
class OpenBook:
    """A book with what the store must remember to write it back: contexts and pauses as they were read."""

    book: Book
    names: dict[tuple[str, str], Token]
    contexts: dict[int, str]
    statuses: dict[int, TokenStatus]


class Ids:
    """Ids reserved from a sequence, many at once. Those left at the end of the process are gaps and nothing else."""

    def __init__(self, statement: str) -> None:
        self._statement = statement
        self._reserved: deque[int] = deque()

    async def ensure(self, session: Session, count: int) -> None:
        """Hold at least `count` ids when this returns."""
        while len(self._reserved) < count:
            rows = await session.fetch(self._statement, max(_IDS_AT_ONCE, count))
            self._reserved.extend(row["id"] for row in rows)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self._reserved.popleft()


class Shelf:
    """What books share over the life of a process: loaded graphs, reserved ids, and the settings that rules need.

    Args:
        releases_max: releases of a dead host before each counts as a failure.
        retry_delay_s: what the first retry waits, doubled for each further failure; 0 retries at once.

    """

    def __init__(self, *, releases_max: int, retry_delay_s: float = 1.0) -> None:
        self.graphs: dict[str, Graph] = {}
        self._releases_max = releases_max
        self._retry_delay_s = retry_delay_s
        self._task_ids = Ids(statements.reserve_task_ids)
        self._token_ids = Ids(statements.reserve_token_ids)

    async def open(self, session: Session, wanted: Wanted) -> OpenBook:
        """Lock, then read. The book's time is read after the locks, so it is never before another's last change."""
        rows = await session.fetch(
            statements.lock_tokens,
            sorted(wanted.tasks),
            sorted(wanted.token_ids),
            [owner for owner, _ in wanted.names],
            [name for _, name in wanted.names],
        )
        tokens = {row["id"]: _token(row) for row in rows}
        await self._load_graphs(session, {token.graph for token in tokens.values()} - self.graphs.keys())
        tasks = await session.fetch(statements.read_tasks, list(tokens), sorted(wanted.tasks))
        book = Book(
            now=tasks[0]["now"],
            graphs=self.graphs,
            task_ids=iter(self._task_ids),
            token_ids=iter(self._token_ids),
            retry_delay_s=self._delays(),
            releases_max=self._releases_max,
            tokens=tokens,
            tasks={row["id"]: _task(row) for row in tasks if row["id"] is not None},
        )
        opened = OpenBook(
            book,
            {(token.owner, token.name.lower()): token for token in tokens.values()},
            {row["id"]: row["context"] for row in rows},
            {token.id: token.status for token in tokens.values()},
        )
        await self._read_more(session, wanted, opened)
        await self._task_ids.ensure(session, wanted.starts + wanted.moves + len(book.held))
        await self._token_ids.ensure(session, wanted.starts)
        return opened

    async def _read_more(self, session: Session, wanted: Wanted, opened: OpenBook) -> None:
        book = opened.book
        ids = list(book.tokens)
        if wanted.needs_timers:
            book.timers = [_timer(row) for row in await session.fetch(statements.read_timers, ids)]
        if wanted.needs_leases:
            for row in await session.fetch(statements.read_leases, list(book.tasks)):
                book.tasks[row["task_id"]].lease_until = row["until"]
        if any(token.status is TokenStatus.PAUSED for token in book.tokens.values()):
            book.held = [_held(row) for row in await session.fetch(statements.read_held, ids)]
        if wanted.memory:
            places = [(book.tasks[task], key) for task, key in wanted.memory if task in book.tasks]
            rows = await session.fetch(
                statements.read_memory_keys,
                [task.token_id for task, _ in places],
                [task.state for task, _ in places],
                [key for _, key in places],
            )
            book.memory_present = {(row["token_id"], row["state"], row["key"]) for row in rows}
        if wanted.keys:
            used = [
                (opened.names[owner, name.lower()].id, key)
                for owner, name, key in wanted.keys
                if (owner, name.lower()) in opened.names
            ]
            rows = await session.fetch(
                statements.read_keys, [token for token, _ in used], [key for _, key in used]
            )
            book.keys_used = {(row["token_id"], row["key"]) for row in rows}

    async def _load_graphs(self, session: Session, missing: set[str]) -> None:
        if missing:
            for row in await session.fetch(statements.graph_documents, sorted(missing)):
                self.graphs[row["checksum"]] = load_text(row["document"])

    def _delays(self) -> list[float]:
        """The waits by failures so far, each with its own bit of chance, so that retries do not come in step."""
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, nothing secret
        return [min(RETRY_DELAY_S_MAX, self._retry_delay_s * 2**n) * spread for n in range(12)]


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text.encode())


def _token(row: Row) -> Token:
    return Token(
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        graph=row["graph"],
        workflow=row["workflow"],
        state=row["state"],
        status=TokenStatus(row["status"]),
        visit=row["visit"],
        context=_VALUES.decode(row["context"]),
        entered_at=row["entered_at"],
        entered_by=row["entered_by"],
        entered_payload=_raw(row["entered_payload"]),
        entered_error=row["entered_error"],
        seq=row["seq"],
        visits=_COUNTS.decode(row["visits"]),
        events=_COUNTS.decode(row["events"]),
        parent=row["parent"],
        paused_at=row["paused_at"],
    )


def _task(row: Row) -> Task:
    values: tuple[Any, ...] = tuple(row)
    return Task(
        id=values[1],
        token_id=values[2],
        state=values[3],
        visit=values[4],
        current_state=TaskState(values[5]),
        attempt=values[6],
        failures=values[7],
        retries=values[8],
        generation=values[9],
        ready_at=values[10],
        reason=values[11],
        held_ready_at=values[12],
        supervisor=values[13],
        instance=values[14],
        releases=values[15],
        is_suspect=values[16],
        report_attempt=values[17],
        report_digest=values[18],
    )


def _timer(row: Row) -> Timer:
    return Timer(
        id=row["id"],
        token_id=row["token_id"],
        kind=row["kind"],
        event=row["event"],
        payload=_raw(row["payload"]),
        due_at=row["due_at"],
        set_at=row["set_at"],
    )


def _held(row: Row) -> Held:
    return Held(
        id=row["id"],
        token_id=row["token_id"],
        arrival=row["arrival"],
        event=row["event"],
        payload=_raw(row["payload"]),
        task_id=row["task_id"],
        state=row["state"],
        visit=row["visit"],
        context=_raw(row["context"]),
        schedules=_raw(row["schedules"]),
        error=row["error"],
    )
