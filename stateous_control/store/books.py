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
from stateous_contract.codes import Code, Refused
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load_text
from stateous_control.rules.access import OPEN, Access
from stateous_control.rules.book import Book, Held, Task, Timer, Token
from stateous_control.rules.children import names_ahead
from stateous_control.rules.policy import read_policy
from stateous_control.rules.queues import kind_of
from stateous_control.store.columns import raw_of
from stateous_control.store.pool import Row, Session
from stateous_control.store.statements import statements
from stateous_control.store.supervised import Supervised, read_supervised

RETRY_DELAY_S_MAX: Final = 60.0
_IDS_AT_ONCE: Final = 500
_VALUES: Final = msgspec.json.Decoder(dict[str, Raw])
_COUNTS: Final = msgspec.json.Decoder(dict[str, int])
_STATUSES: Final = {status.value: status for status in TokenStatus}
_TASK_STATES: Final = {state.value: state for state in TaskState}


@dataclass(slots=True)
class Wanted:
    """What a book is to be opened for. A name or task that does not exist is simply not in the book.

    `scoped` are tasks that are opened only if they belong to this owner.
    `memory` names keys of memory (task, key) and `keys` idempotency keys (owner, name, key) whose presence matters.
    `starts` and `moves` are how many tokens may be started and how often a token may enter a state; held events come on
    top. `births` are the names that the children of a started token may get at once. `needs_timers` is False where no
    task can end, `needs_leases` where no lease is judged.
    """

    tasks: set[int] = field(default_factory=set)
    scoped: set[tuple[int, str]] = field(default_factory=set)
    token_ids: set[int] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)
    memory: set[tuple[int, str]] = field(default_factory=set)
    keys: set[tuple[str, str, str]] = field(default_factory=set)
    births: set[tuple[str, str]] = field(default_factory=set)
    supervision: Supervised = field(default_factory=Supervised)
    starts: int = 0
    moves: int = 0
    needs_timers: bool = False
    needs_leases: bool = False

    def add(self, other: Wanted, owners: frozenset[str] | None = None) -> None:
        """Take in what another operation of the same transaction wants; None stands for all owners."""
        if owners is None:
            self.tasks |= other.tasks
        else:
            self.scoped |= {(task, owner) for task in other.tasks for owner in owners}
        self.scoped |= other.scoped
        self.token_ids |= other.token_ids
        self.names |= other.names
        self.memory |= other.memory
        self.keys |= other.keys
        self.births |= other.births
        self.supervision.add(other.supervision)
        self.starts += other.starts
        self.moves += other.moves
        self.needs_timers = self.needs_timers or other.needs_timers
        self.needs_leases = self.needs_leases or other.needs_leases


@dataclass(slots=True)
class OpenBook:
    """A book with what the store must remember to write it back: contexts and pauses as they were read.

    `access` is the caller whose operation is being applied: what is not its own it does not find.
    """

    book: Book
    names: dict[tuple[str, str], Token]
    contexts: dict[int, str]
    statuses: dict[int, TokenStatus]
    access: Access = OPEN

    def token(self, owner: str, name: str) -> Token:
        """Return the token of exactly this name, if it exists for the caller. Raises `Refused`."""
        token = self.names.get((owner, name.lower()))
        if token is None or token.name != name or not self.access.covers(owner):
            raise Refused(Code.TOKEN_NOT_FOUND, f"there is no token {name!r}")
        return token

    def task(self, task_id: int) -> Task:
        """Return the task of this id, if it exists for the caller. Raises `Refused`."""
        task = self.book.tasks.get(task_id)
        if task is None or not self.access.covers_task(self.book.tokens[task.token_id].owner, task.state):
            raise Refused(Code.TASK_NOT_FOUND, f"there is no task {task_id}")
        return task


async def keep_own(session: Session, wanted: Wanted) -> None:
    """Let a book be opened for those of the `scoped` tasks that belong to their owner; the others are not touched.

    A statement of its own, and only where callers have keys: the owner of a task never changes.
    """
    if wanted.scoped:
        rows = await session.fetch(
            statements.own_tasks, [task for task, _ in wanted.scoped], [owner for _, owner in wanted.scoped]
        )
        wanted.tasks |= {row["id"] for row in rows}


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
        task_ttl_s: how long a task may live before it expires, None for ever.

    """

    def __init__(
        self, *, releases_max: int, retry_delay_s: float = 1.0, task_ttl_s: float | None = None
    ) -> None:
        self.graphs: dict[str, Graph] = {}
        self._releases_max = releases_max
        self._retry_delay_s = retry_delay_s
        self._task_ttl_s = task_ttl_s
        self._ids_per_move = 1
        self._has_children = False
        self._task_ids = Ids(statements.reserve_task_ids)
        self._token_ids = Ids(statements.reserve_token_ids)
        self._question_ids = Ids(statements.reserve_question_ids)

    def keep(self, graph: Graph) -> None:
        """Have a graph ready for the tokens that move by it."""
        self.graphs[graph.checksum] = graph
        self._ids_per_move = max(self._ids_per_move, graph.ids_per_move)
        self._has_children = self._has_children or graph.has_children

    async def open(self, session: Session, wanted: Wanted) -> OpenBook:
        """Lock, then read. The book's time is read after the locks, so it is never before another's last change."""
        rows = await _lock(session, wanted)
        tokens = {row["id"]: _token(row) for row in rows}
        await self._load_graphs(
            session, {token.graph for token in tokens.values()} - self.graphs.keys() - {""}
        )
        tasks = await session.fetch(statements.read_tasks, list(tokens), sorted(wanted.tasks))
        book = Book(
            now=tasks[0]["now"],
            graphs=self.graphs,
            task_ids=iter(self._task_ids),
            token_ids=iter(self._token_ids),
            retry_delay_s=self._delays(),
            releases_max=self._releases_max,
            question_ids=iter(self._question_ids),
            task_ttl_s=self._task_ttl_s,
            chance=iter(random.random, None),
            tokens=tokens,
            named={(token.owner, token.name.lower()): token for token in tokens.values()},
            tasks={row["id"]: _task(row) for row in tasks if row["id"] is not None},
        )
        opened = OpenBook(
            book,
            book.named,
            {row["id"]: row["context"] for row in rows},
            {token.id: token.status for token in tokens.values()},
        )
        await self._read_more(session, wanted, opened)
        await self._read_names(session, wanted, book)
        entries = wanted.starts + wanted.moves + len(book.held)
        await self._task_ids.ensure(session, entries * self._ids_per_move)
        births = entries * self._ids_per_move if self._has_children else 0
        await self._token_ids.ensure(session, wanted.starts + births)
        await self._question_ids.ensure(session, wanted.supervision.asks)
        return opened

    async def _read_names(self, session: Session, wanted: Wanted, book: Book) -> None:
        """Find out which names that children may get are taken; where nobody can get any it costs nothing."""
        ahead = wanted.births | names_ahead(book) if self._has_children else wanted.births
        if ahead:
            owners, names = zip(*sorted(ahead), strict=True)
            rows = await session.fetch(statements.taken_names, list(owners), list(names))
            book.names_taken = {(row["owner"], row["name"]) for row in rows}

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
                [kind_of(task.state) for task, _ in places],
                [key for _, key in places],
            )
            book.memory_present = {(row["token_id"], row["state"], row["key"]) for row in rows}
        await read_supervised(session, wanted.supervision, book)
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
                self.keep(load_text(row["document"]))

    def _delays(self) -> list[float]:
        """The waits by failures so far, each with its own bit of chance, so that retries do not come in step."""
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, nothing secret
        return [min(RETRY_DELAY_S_MAX, self._retry_delay_s * 2**n) * spread for n in range(12)]


async def _lock(session: Session, wanted: Wanted) -> list[Row]:
    """Lock tokens in id order, then the children of those that have some (ADR 6)."""
    tasks = sorted(wanted.tasks)
    owners, names = [owner for owner, _ in wanted.names], [name for _, name in wanted.names]
    rows = await session.fetch(statements.lock_tokens, tasks, sorted(wanted.token_ids), owners, names)
    roots = [row["id"] for row in rows if row["has_children"]]
    if not roots:
        return rows
    return [*rows, *await session.fetch(statements.lock_children, tasks, owners, names, roots)]


def _token(row: Row) -> Token:
    values: tuple[Any, ...] = tuple(row)
    return Token(
        id=values[0],
        owner=values[1],
        name=values[2],
        graph=values[3] or "",  # an anchor has none
        workflow=values[4],
        state=values[5],
        status=_STATUSES[values[6]],
        visit=values[7],
        context=_VALUES.decode(values[8]),
        entered_at=values[9],
        entered_by=values[10],
        entered_payload=raw_of(values[11]),
        entered_error=values[12],
        seq=values[13],
        visits=_COUNTS.decode(values[14]),
        events=_COUNTS.decode(values[15]),
        parent=values[16],
        parent_id=values[17],
        root_id=values[18],
        is_current=values[19],
        has_children=values[20],
        paused_at=values[21],
        late_events=values[22],
    )


def _task(row: Row) -> Task:
    values: tuple[Any, ...] = tuple(row)
    return Task(
        id=values[1],
        token_id=values[2],
        state=values[3],
        visit=values[4],
        current_state=_TASK_STATES[values[5]],
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
        pause_requested_at=values[19],
        expires_at=values[20],
        log_seq=values[21],
        version=values[22],
        saved_bytes=values[23],
        retried_from=values[24],
        given_back=values[25],
        parent_id=values[26],
        result=raw_of(values[27]),
        error=values[28],
        ended_at=values[29],
        policy=read_policy(values[30]),
    )


def _timer(row: Row) -> Timer:
    return Timer(
        id=row["id"],
        token_id=row["token_id"],
        kind=row["kind"],
        event=row["event"],
        payload=raw_of(row["payload"]),
        due_at=row["due_at"],
        set_at=row["set_at"],
    )


def _held(row: Row) -> Held:
    return Held(
        id=row["id"],
        token_id=row["token_id"],
        arrival=row["arrival"],
        event=row["event"],
        payload=raw_of(row["payload"]),
        task_id=row["task_id"],
        state=row["state"],
        visit=row["visit"],
        context=raw_of(row["context"]),
        schedules=raw_of(row["schedules"]),
        error=row["error"],
    )
