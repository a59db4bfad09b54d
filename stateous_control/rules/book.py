"""The open book: what one transaction has locked and read, what rules change in it, and what is to be written back.

Rules are pure functions that read and change a `Book`; they never see a database, a clock or chance. The store fills a
book (rows locked in the one lock order) and afterwards writes what changed, each kind of row in one statement however
many rows there are. So a report, a fire, a sweep and a cancel are the same three steps: load, decide, write.

A rule checks first and changes last: when it raises `Refused`, the book holds no half of its change (only an
``event_rejected`` line may remain), and the other operations of the same transaction go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from msgspec import Raw
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.graph.document import Graph


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
    lease_ended: bool = False


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


@dataclass(slots=True)
class Book:
    """Everything one transaction works on.

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

    def log(self, token: Token, kind: str, **data: Any) -> None:
        """Append a line to the token's history; the sequence has no gaps (S1-106)."""
        token.seq += 1
        token.is_changed = True
        self.entries.append(Entry(token.id, token.seq, self.now, kind, data))

    def live_tasks(self, token: Token) -> list[Task]:
        """The token's tasks that are not over, in id order."""
        mine = (t for t in self.tasks.values() if t.token_id == token.id and not t.current_state.is_final)
        return sorted(mine, key=lambda t: t.id)
