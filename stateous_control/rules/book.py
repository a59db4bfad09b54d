"""The open book: what one transaction has locked and read, what rules change in it, and what is to be written back.

Rules are pure functions that read and change a `Book`; they never see a database, a clock or chance. The store fills a
book (rows locked in the one lock order) and afterwards writes what changed, each kind of row in one statement however
many rows there are. So a report, a fire, a sweep and a cancel are the same three steps: load, decide, write.

A rule checks first and changes last: when it raises `Refused`, the book holds no half of its change (only an
``event_rejected`` line may remain), and the other operations of the same transaction go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from msgspec import Raw
from stateous_contract.states import LIVE_TASK_STATES, TaskState, TokenStatus

from stateous_control.graph.document import Graph, Machine


@dataclass(slots=True)
class Token:
    """A row of ``tokens``. Counters live on the row, so nothing costs more as history grows.

    `context` keeps each top-level value as the text it came as. `visits` counts entries by state, `events` accepted
    events by name. `entered_by` is the event that brought the token here, `entered_payload` its payload (None: null).
    """

    id: int
    owner: str
    name: str
    graph: str
    workflow: str
    state: str
    status: TokenStatus
    visit: int
    context: dict[str, Raw]
    entered_at: datetime
    entered_by: str
    entered_payload: Raw | None
    entered_error: str | None
    seq: int
    visits: dict[str, int]
    events: dict[str, int]
    parent: str | None = None
    paused_at: datetime | None = None
    is_new: bool = False
    is_changed: bool = False


@dataclass(slots=True)
class Task:
    """A row of ``tasks`` together with its lease. `attempt` fences, `failures` spends the retry budget.

    `ready_at` None means that nobody may claim it now. `held_ready_at` keeps `ready_at` while its token is paused.
    `state` is what claims name: a child workflow's states carry its name in front, ``<workflow>/<state>``.
    `retries` is the policy, copied when the task was made. `supervisor` and `instance` name who holds or last held it.
    `report_digest` is that of the newest accepted report, of `report_attempt`.
    """

    id: int
    token_id: int
    state: str
    visit: int
    current_state: TaskState
    attempt: int
    failures: int
    retries: int
    generation: int
    ready_at: datetime | None
    reason: str | None = None
    held_ready_at: datetime | None = None
    supervisor: str | None = None
    instance: str | None = None
    releases: int = 0
    is_suspect: bool = False
    report_attempt: int | None = None
    report_digest: str | None = None
    lease_until: datetime | None = None
    is_new: bool = False
    is_changed: bool = False


@dataclass(slots=True)
class Timer:
    """A row of ``timers``: a state's own timeout (`kind` timeout) or one that a routine asked for (`kind` timer)."""

    id: int | None
    token_id: int
    kind: Literal["timeout", "timer"]
    event: str
    payload: Raw | None
    due_at: datetime
    set_at: datetime
    is_new: bool = False
    is_changed: bool = False
    is_deleted: bool = False


@dataclass(slots=True)
class Held:
    """An event that arrived while its token was paused. `outcome` is set when a task's report brought it."""

    id: int | None
    token_id: int
    arrival: int
    event: str
    payload: Raw | None
    task_id: int | None = None
    state: str | None = None
    visit: int | None = None
    context: Raw | None = None
    schedules: Raw | None = None
    error: str | None = None
    is_new: bool = False
    is_deleted: bool = False


@dataclass(slots=True)
class Entry:
    """One new line of a token's history."""

    token_id: int
    seq: int
    at: datetime
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class MemoryWrite:
    """One key of a state's memory; `value` None deletes it."""

    token_id: int
    state: str
    key: str
    value: Raw | None


_Row = TypeVar("_Row", Task, Timer, Held)


@dataclass(slots=True)
class Book:
    """Everything one transaction works on. The store fills the rows in before the first rule runs; rules `add`.

    Args:
        now: the database's clock when the rows were locked; the only time that rules know.
        graphs: the graphs of the tokens in the book, by checksum.
        task_ids: fresh task ids, reserved from the database's sequence.
        retry_delay_s: how long the next attempt waits, by failures so far; chance is mixed in by the caller.
    """

    now: datetime
    graphs: dict[str, Graph]
    task_ids: Iterator[int]
    token_ids: Iterator[int]
    retry_delay_s: list[float]
    releases_max: int
    tokens: dict[int, Token] = field(default_factory=dict)
    tasks: dict[int, Task] = field(default_factory=dict)
    timers: list[Timer] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    memory: list[MemoryWrite] = field(default_factory=list)
    memory_present: set[tuple[int, str, str]] = field(default_factory=set)
    memory_cleared: set[int] = field(default_factory=set)
    keys_used: set[tuple[int, str]] = field(default_factory=set)
    keys_new: list[tuple[int, str]] = field(default_factory=list)
    # Rows by token, made at the first look: a book of 500 tokens is not searched 500 times.
    _tasks_of: dict[int, list[Task]] | None = field(default=None, repr=False)
    _timers_of: dict[int, list[Timer]] | None = field(default=None, repr=False)
    _held_of: dict[int, list[Held]] | None = field(default=None, repr=False)

    def machine(self, token: Token) -> Machine:
        """The workflow that the token moves in: of the graph it was started on, for its whole life."""
        return self.graphs[token.graph].machines[token.workflow]

    def log(self, token: Token, kind: str, **data: Any) -> None:
        """Append a line to the token's history; the sequence has no gaps (S1-106)."""
        token.seq += 1
        token.is_changed = True
        self.entries.append(Entry(token.id, token.seq, self.now, kind, data))

    def live_tasks(self, token: Token) -> list[Task]:
        """The token's tasks that are not over, in id order."""
        if self._tasks_of is None:
            self._tasks_of = _by_token(self.tasks.values())
        mine = self._tasks_of.get(token.id)
        if not mine:
            return []
        live = [task for task in mine if task.current_state in LIVE_TASK_STATES]
        return live if len(live) < 2 else sorted(live, key=lambda task: task.id)

    def timers_of(self, token: Token) -> list[Timer]:
        """The token's timers that are still set, as they were loaded or added."""
        if self._timers_of is None:
            self._timers_of = _by_token(self.timers)
        return [timer for timer in self._timers_of.get(token.id, ()) if not timer.is_deleted]

    def held_of(self, token: Token) -> list[Held]:
        """The events that wait for the token's resume, in the order that they arrived in."""
        if self._held_of is None:
            self._held_of = _by_token(self.held)
        mine = [held for held in self._held_of.get(token.id, ()) if not held.is_deleted]
        return sorted(mine, key=lambda held: held.arrival)

    def add_task(self, task: Task) -> None:
        """Put a new task in."""
        self.tasks[task.id] = task
        if self._tasks_of is not None:
            self._tasks_of.setdefault(task.token_id, []).append(task)

    def add_timer(self, timer: Timer) -> None:
        """Put a new timer in."""
        self.timers.append(timer)
        if self._timers_of is not None:
            self._timers_of.setdefault(timer.token_id, []).append(timer)

    def add_held(self, held: Held) -> None:
        """Put a held event in."""
        self.held.append(held)
        if self._held_of is not None:
            self._held_of.setdefault(held.token_id, []).append(held)


def _by_token(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    found: dict[int, list[_Row]] = {}
    for row in rows:
        found.setdefault(row.token_id, []).append(row)
    return found
