"""A small kitchen for rule tests: a graph, a book without a database, and the one move that the store makes, the claim."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Report, Schedule
from stateous_contract.states import Move, TaskState

from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load
from stateous_control.rules import leases, moves, notes, reports, steering, timers
from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.lines import Entry

START_AT = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_S = 120.0
WORKFLOW = Path(__file__).parents[3] / "contract/conformance/workflow.json"


def load_press() -> Graph:
    """The workflow of the conformance suite: its exchanges and these tests speak of the same states."""
    return load(json.loads(WORKFLOW.read_text("utf-8")))


PRESS = load_press()


def raw(value: Any) -> Raw | None:
    """A user's value as text; None stays None."""
    return None if value is None else Raw(msgspec.json.encode(value))


def graph_of(
    states: dict[str, Any], events: dict[str, Any], transitions: list[dict[str, Any]], **more: Any
) -> Graph:
    """A graph with one workflow, loaded as a file would be."""
    base = {"stateous": 1, "workflow": "small", "schemas": {}}
    return load({**base, "states": states, "events": events, "transitions": transitions, **more})


@dataclass
class Kitchen:
    """One book that is never written: every step is a rule on it. `pass_time` is its clock."""

    graph: Graph = PRESS
    retry_delay_s: list[float] = field(default_factory=lambda: [1.0, 2.0, 4.0])
    releases_max: int = 3

    def __post_init__(self) -> None:
        self.book = Book(
            now=START_AT,
            graphs={self.graph.checksum: self.graph},
            task_ids=itertools.count(1),
            token_ids=itertools.count(1),
            retry_delay_s=self.retry_delay_s,
            releases_max=self.releases_max,
        )

    def pass_time(self, seconds: float) -> None:
        self.book.now += timedelta(seconds=seconds)

    def start(self, name: str = "a", **context: Any) -> Token:
        return moves.start_token(self.book, self.graph, name=name, owner="default", context=raw(context))

    def started(self, path: str, **context: Any) -> Task:
        """A queued task of a fresh token whose first state is `path`."""
        return self.task_of(self.start(f"t{len(self.book.tokens)}", path=path, **context))

    def claimed(self, path: str, **context: Any) -> Task:
        return self.claim(self.started(path, **context))

    def paused(self, path: str) -> Token:
        """A paused token whose task is queued."""
        token = self.token_of(self.started(path))
        self.pause(token)
        return token

    def waiting(self, path: str) -> Task:
        task = self.claimed(path)
        self.report(task, "waiting")
        return task

    def claim(self, task: Task, supervisor: str = "s", instance: str | None = None) -> Task:
        """What the store's one statement does for a task that is ready (T2)."""
        assert task.ready_at is not None, "the task is not ready"
        assert task.ready_at <= self.book.now, "the task is not ready yet"
        moves.change(task, Move.CLAIM)
        task.attempt += 1
        task.supervisor, task.instance = supervisor, instance
        task.lease_until = self.book.now + timedelta(seconds=LEASE_S)
        token = self.token_of(task)
        self.book.log(token, "task_claimed", task=task.id, supervisor=supervisor, attempt=task.attempt)
        return task

    def claim_again(self, task: Task) -> Task:
        """Let the retry delay pass, then claim."""
        assert task.ready_at is not None, "the task is not ready"
        self.book.now = max(self.book.now, task.ready_at)
        return self.claim(task)

    def report(self, task: Task, kind: str = "event", **parts: Any) -> Token:
        """A report of the holder's current attempt, unless `supervisor` or `attempt` say something else."""
        is_held = task.current_state is TaskState.RUNNING
        parts.setdefault("supervisor", "s" if is_held else None)
        parts.setdefault("attempt", task.attempt if is_held else None)
        for key in ("payload", "context"):
            parts[key] = raw(parts.get(key))
        parts["schedules"] = [
            Schedule(event=one["event"], after=one["after"], payload=raw(one.get("payload")))
            for one in parts.get("schedules") or ()
        ]
        return reports.report(self.book, task, Report(kind=kind, **parts))

    def fire(self, token: Token, event: str, payload: Any = None, key: str | None = None) -> bool:
        return steering.fire(self.book, token, event, raw(payload), key=key)

    def pause(self, token: Token) -> None:
        steering.pause(self.book, token)

    def resume(self, token: Token) -> None:
        steering.resume(self.book, token)

    def cancel(self, token: Token) -> None:
        steering.cancel(self.book, token)

    def fire_due(self) -> int:
        """What one pass of the sweep does with timers."""
        due = sorted(
            (timer for timer in self.book.timers if not timer.is_deleted), key=lambda timer: timer.due_at
        )
        return sum(timers.fire_timer(self.book, timer) for timer in due)

    def end_lease(self, task: Task) -> bool:
        return leases.end_lease(self.book, task, LEASE_S)

    def note(self, task: Task, text: str = "hm", *, attempt: int | None = None, **who: Any) -> None:
        notes.note(self.book, task, text, attempt=attempt, **who)

    def remember(self, task: Task, key: str, value: Any, *, attempt: int | None = None, **who: Any) -> None:
        notes.remember(self.book, task, key, raw(value), attempt=attempt, **who)

    def token_of(self, task: Task) -> Token:
        return self.book.tokens[task.token_id]

    def task_of(self, token: Token) -> Task:
        """The token's one live task."""
        (task,) = self.book.live_tasks(token)
        return task

    def entries(self, token: Token) -> list[Entry]:
        return [entry for entry in self.book.entries if entry.token_id == token.id]

    def history(self, token: Token, *, after: int = 0) -> list[tuple[str, Any]]:
        """The token's history as a client reads it: kinds and decoded data."""
        return [
            (entry.kind, msgspec.json.decode(msgspec.json.encode(entry.data)))
            for entry in self.entries(token)[after:]
        ]

    def kinds(self, token: Token, *, after: int = 0) -> list[str]:
        return [entry.kind for entry in self.entries(token)[after:]]


def refusal(rule: Any, *args: Any, **parts: Any) -> Code:
    """Return the code that a rule refuses with; one that does not refuse fails the test."""
    with pytest.raises(Refused) as caught:
        rule(*args, **parts)
    assert caught.value.sentence.strip(), "a refusal says why"
    return caught.value.code


def everything(book: Book) -> Any:
    """A copy of all that rules may change except the history, to be compared with what it is later."""
    return copy.deepcopy(
        (
            book.tokens,
            book.tasks,
            book.timers,
            book.held,
            book.memory,
            book.memory_cleared,
            book.keys_new,
            book.questions,
            book.checkpoints,
            book.waits,
            book.signals,
        )
    )


def unchanged(book: Book, before: Any) -> bool:
    """Whether nothing has changed since `before`; a line of history may have been added, and counted."""
    now = everything(book)
    for tokens in (before[0], now[0]):
        for token in tokens.values():
            token.seq, token.late_events, token.is_changed = 0, 0, False
    return bool(before == now)
