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
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Literal, TypeVar

from msgspec import Raw
from stateous_contract.states import LIVE_TASK_STATES, QuestionStatus, TaskState, TokenStatus

from stateous_control.graph.document import Graph, Machine
from stateous_control.rules.awaited import Signal, Wait
from stateous_control.rules.lines import Entry, MemoryWrite, TaskEntry
from stateous_control.rules.policy import OWN, Policy
from stateous_control.rules.queues import is_routine


@dataclass(slots=True)
class Token:
    """A row of ``tokens``. Counters live on the row, so nothing costs more as history grows.

    `context` keeps each top-level value as the text it came as. `visits` counts entries by state, `events` accepted
    events by name. `entered_by` is the event that brought the token here, `entered_payload` its payload (None: null).

    A child of a parallel state has its parent's name and id and the id of the family's `root`, whose row is the lock of
    the whole family. It `is_current` while its parent is in the visit that started it. `has_children` says that a
    token has had some; the root has it for all of the family.
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
    parent_id: int | None = None
    root_id: int | None = None
    is_current: bool = False
    has_children: bool = False
    paused_at: datetime | None = None
    late_events: int = 0
    is_new: bool = False
    is_changed: bool = False
    is_kin_changed: bool = False


@dataclass(slots=True)
class Task:
    """A row of ``tasks`` together with its lease. `attempt` fences, `failures` spends the retry budget.

    `ready_at` None means that nobody may claim it now. `held_ready_at` keeps `ready_at` while its token is paused.
    `state` is the queue that claims find it in: a child workflow's states carry its name in front,
    ``<workflow>/<state>``, and versions above 1 follow. `version` is that of the routine it was made for.
    `retries` and `policy` are copied when the task is made. `supervisor` and `instance` name who holds or last held it.
    `report_digest` is that of the newest accepted report, of `report_attempt`. `pause_requested_at` is a person's
    request for this task alone; while it or the token's stands, `held_ready_at` has what `ready_at` would be.
    `saved_bytes` is the size of what replay reads: answers and checkpoints. `question` is the one that is open,
    `wait` the one that the task is parked on.
    `releases` counts those of dead hosts and agents, `given_back` those that nobody is to blame for.
    `entries` are new lines of the task's log, `new_decisions` the `locked_decisions` of a park.
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
    pause_requested_at: datetime | None = None
    expires_at: datetime | None = None
    log_seq: int = 0
    version: int = 1
    policy: Policy = OWN
    saved_bytes: int = 0
    retried_from: int | None = None
    parent_id: int | None = None
    new_input: Raw | None = None
    result: Raw | None = None
    error: str | None = None
    ended_at: datetime | None = None
    given_back: int = 0
    new_decisions: Raw | None = None
    question: Question | None = None
    wait: Wait | None = None
    entries: list[TaskEntry] = field(default_factory=list)
    is_new: bool = False
    is_changed: bool = False

    @property
    def is_routine(self) -> bool:
        """Whether it returns a value and moves no token: a routine without a graph, or a child."""
        return is_routine(self.state)

    def record(self, kind: str, **data: Any) -> None:
        """Append a line to the task's log; the numbers have no gaps (S1-106, S1-107)."""
        self.log_seq += 1
        self.is_changed = True
        self.entries.append(TaskEntry(self.log_seq, kind, data))


@dataclass(slots=True)
class Question:
    """A row of ``questions``. `key` and `occurrence` name it within its task for ever, whatever the code becomes.

    `attempt` and `asked_by` are the attempt and supervisor that asked. `cause` says why it was closed unanswered.
    `notify_at` is when people are told next, `tellings` how often they were, `notify_tries` how often in vain since.
    """

    id: int
    task_id: int
    key: str
    occurrence: int
    data: Raw
    schema: Raw | None
    choices: Raw | None
    status: QuestionStatus
    attempt: int
    asked_by: str | None
    asked_at: datetime
    expires_at: datetime
    remind_s: int | None = None
    answer: Raw | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    cause: str | None = None
    tellings: int = 0
    notify_at: datetime | None = None
    notify_tries: int = 0
    is_new: bool = False
    is_changed: bool = False

    def end(self, status: QuestionStatus, cause: str) -> None:
        """End it without an answer."""
        self.status, self.cause, self.notify_at = status, cause, None
        self.is_changed = True


CheckpointPlace = tuple[int, int, str, int]
"""Where a checkpoint stands: task, version, step, occurrence."""


@dataclass(slots=True)
class Checkpoint:
    """The one value of a step that was passed. `seq` is the line of the task's log that tells of it."""

    seq: int
    value: Raw
    is_new: bool = False


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


_Row = TypeVar("_Row", Task, Timer, Held)


@dataclass(slots=True)
class Book:
    """Everything one transaction works on. The store fills the rows in before the first rule runs; rules `add`.

    Args:
        now: the database's clock when the rows were locked; the only time that rules know.
        graphs: the graphs of the tokens in the book, by checksum.
        task_ids: fresh task ids, reserved from the database's sequence.
        retry_delay_s: how long the next attempt waits, by failures so far; chance is mixed in by the caller.
        chance: numbers from 0 to 1 that nobody foresees, one for each wait that is drawn.
        named: the tokens here by owner and name in lower case; `names_taken` those of others that children may get.
        starts: digest of a start's key, and what it began; `starts_new`: whether that is a token.
        signals: oldest first; `signals_kept`: how many, by task or token.
    """

    now: datetime
    graphs: dict[str, Graph]
    task_ids: Iterator[int]
    token_ids: Iterator[int]
    retry_delay_s: list[float]
    releases_max: int
    tokens: dict[int, Token] = field(default_factory=dict)
    named: dict[tuple[str, str], Token] = field(default_factory=dict)
    names_taken: set[tuple[str, str]] = field(default_factory=set)
    tasks: dict[int, Task] = field(default_factory=dict)
    timers: list[Timer] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    memory: list[MemoryWrite] = field(default_factory=list)
    memory_present: set[tuple[int, str, str]] = field(default_factory=set)
    memory_cleared: set[int] = field(default_factory=set)
    keys_used: set[tuple[int, str]] = field(default_factory=set)
    keys_new: list[tuple[int, str]] = field(default_factory=list)
    question_ids: Iterator[int] = field(default_factory=lambda: iter(()))
    questions: dict[int, Question] = field(default_factory=dict)
    checkpoints: dict[CheckpointPlace, Checkpoint] = field(default_factory=dict)
    retries: dict[int, int] = field(default_factory=dict)
    waits: dict[tuple[int, str, int], Wait] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    starts: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    starts_new: list[tuple[str, str, bool]] = field(default_factory=list)
    signals_kept: dict[tuple[int | None, int | None], int] = field(default_factory=dict)
    task_ttl_s: float | None = None
    chance: Iterator[float] = field(default_factory=lambda: repeat(1.0))
    # Rows by token, made at the first look: a book of 500 tokens is not searched 500 times.
    _tasks_of: dict[int, list[Task]] | None = field(default=None, repr=False)
    _timers_of: dict[int, list[Timer]] | None = field(default=None, repr=False)
    _held_of: dict[int, list[Held]] | None = field(default=None, repr=False)
    _children_of: dict[int, list[Token]] | None = field(default=None, repr=False)

    def machine(self, token: Token) -> Machine:
        """The workflow that the token moves in: of the graph it was started on, for its whole life."""
        return self.graphs[token.graph].machines[token.workflow]

    def children(self, token: Token) -> list[Token]:
        """The children that run, or have run to their end, in the visit that the token is in, as they were started."""
        if not token.has_children:
            return []
        if self._children_of is None:
            self._children_of = {}
            for child in self.tokens.values():
                if child.parent_id is not None:
                    self._children_of.setdefault(child.parent_id, []).append(child)
        mine = [child for child in self._children_of.get(token.id, ()) if child.is_current]
        return sorted(mine, key=lambda child: child.id)

    def family(self, token: Token) -> Iterator[Token]:
        """The token, then its children and theirs."""
        yield token
        for child in self.children(token):
            yield from self.family(child)

    def root(self, token: Token) -> Token:
        """The token that the family began with: itself, unless it is a child."""
        return token if token.root_id is None else self.tokens[token.root_id]

    def add_token(self, token: Token) -> None:
        """Put a new token in; a child only after its parent."""
        self.tokens[token.id] = token
        self.named[token.owner, token.name.lower()] = token
        if token.parent_id is not None and self._children_of is not None:
            self._children_of.setdefault(token.parent_id, []).append(token)

    def log(self, token: Token, kind: str, /, **data: Any) -> None:
        """Append a line to the token's history; the sequence has no gaps (S1-106). An anchor has none."""
        if not token.graph:
            return
        token.seq += 1
        token.is_changed = True
        self.entries.append(Entry(token.id, token.seq, self.now, kind, data))

    def live_tasks(self, token: Token) -> list[Task]:
        """The tasks of the token's visits that are not over, in id order; children of tasks are no part of a visit."""
        return [task for task in self.tree(token) if task.parent_id is None]

    def tree(self, token: Token) -> list[Task]:
        """Everything under the token, or an anchor, that is not over, in id order."""
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
        """Put a new task in, with the first line of its log."""
        if self.task_ttl_s is not None:
            task.expires_at = self.now + timedelta(seconds=self.task_ttl_s)
        task.record("created")
        self.tasks[task.id] = task
        if self._tasks_of is not None:
            self._tasks_of.setdefault(task.token_id, []).append(task)

    def question_of(self, task: Task, key: str, occurrence: int) -> Question | None:
        """The question of this name, whatever became of it; it must have been asked for when the book was opened."""
        return next(
            (
                question
                for question in self.questions.values()
                if (question.task_id, question.key, question.occurrence) == (task.id, key, occurrence)
            ),
            None,
        )

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
