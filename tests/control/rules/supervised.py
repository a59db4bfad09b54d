"""What supervision does to one book, for rule tests: a desk with a worker, people, and a clock."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from control.rules.kitchen import Kitchen, graph_of
from msgspec import Raw
from stateous_contract.messages import Ask, Park, Wait

from stateous_control.rules import durable, expiry, pausing, questions, retrying, waits
from stateous_control.rules.book import Question, Task

DECISIONS = Raw(b'{"run":"r","node":null,"visited":[],"bindings":{}}')
EXPIRING = graph_of(
    {"a": {"emits": ["done"]}, "b": {"emits": ["done"]}},
    {"done": {}, "expired": {}},
    [
        {"from": "__start__", "to": "a"},
        {"from": "a", "to": "__end__", "on": "done"},
        {"from": "a", "to": "b", "on": "expired"},
        {"from": "b", "to": "__end__", "on": "done"},
    ],
)


def desk(**more: Any) -> Kitchen:
    kitchen = Kitchen(**more)
    kitchen.book.question_ids = itertools.count(1)
    return kitchen


def held(kitchen: Kitchen, path: str = "plain") -> Task:
    return kitchen.claim(kitchen.started(path), instance="i")


def ask(
    kitchen: Kitchen, task: Task, key: str = "go", occurrence: int = 1, **more: Any
) -> tuple[Question, bool]:
    said: dict[str, Any] = {
        "supervisor": "s",
        "instance": "i",
        "attempt": task.attempt,
        "key": key,
        "occurrence": occurrence,
        "data": Raw(b"1"),
        "ttl_s": 60.0,
        "locked_decisions": DECISIONS,
    }
    return questions.ask(kitchen.book, task, Ask(**said | more))


def answer(kitchen: Kitchen, question: Question, value: Any = True, **more: Any) -> Task:
    task = kitchen.book.tasks[question.task_id]
    said: dict[str, Any] = {"generation": task.generation, "actor": "ann"}
    return questions.answer(kitchen.book, question, Raw(json.dumps(value).encode()), **said | more)


def park(kitchen: Kitchen, task: Task, **more: Any) -> bool:
    said: dict[str, Any] = {
        "supervisor": "s",
        "instance": "i",
        "attempt": task.attempt,
        "wait": Wait(kind="pause"),
        "locked_decisions": DECISIONS,
    }
    return pausing.park_paused(kitchen.book, task, Park(**said | more))


def wait(
    kitchen: Kitchen,
    task: Task,
    kind: str = "sleep",
    step: str = "here",
    *,
    child: int | None = None,
    **parts: Any,
) -> Any:
    """Park for something; the value of a wait that is over, or None for a parked task."""
    said = Park(
        supervisor="s",
        instance="i",
        attempt=task.attempt,
        wait=Wait(kind=kind, task=child, **parts),
        step=step,
        occurrence=1,
        locked_decisions=DECISIONS,
    )
    value = waits.park(kitchen.book, task, said)
    return None if value is None else json.loads(bytes(value))


def signal(
    kitchen: Kitchen, task: Task, name: str = "go", payload: Any = None, key: str | None = None
) -> Any:
    raw = None if payload is None else Raw(json.dumps(payload).encode())
    return waits.signal_task(kitchen.book, task, name, raw, key=key, actor="ann")


def outcome(kitchen: Kitchen, task: Task, step: str = "here") -> Any:
    """What stands for a step, decoded."""
    return json.loads(bytes(kitchen.book.checkpoints[task.id, 1, step, 1].value))


def store(kitchen: Kitchen, task: Task, value: Any = 1, **more: Any) -> Any:
    said: dict[str, Any] = {"version": 1, "attempt": task.attempt, "supervisor": "s", "instance": "i"}
    said |= {"step": "build", "occurrence": 1}
    kept = durable.store(kitchen.book, task, value=Raw(json.dumps(value).encode()), **said | more)
    return json.loads(bytes(kept))


def pause(kitchen: Kitchen, task: Task) -> None:
    pausing.request_pause(kitchen.book, task, generation=task.generation, actor="ann")


def resume(kitchen: Kitchen, task: Task) -> None:
    pausing.resume_task(kitchen.book, task, generation=task.generation, actor="ann")


def kinds(task: Task) -> list[str]:
    return [entry.kind for entry in task.entries]


def retry(kitchen: Kitchen, task: Task, name: str = "again", *, is_copying: bool = True) -> Task:
    retrying.check(kitchen.book, task, task.generation)
    return retrying.retry(kitchen.book, task, name, is_copying=is_copying, actor="ann")[1]


def expire(kitchen: Kitchen, task: Task) -> None:
    task.expires_at = kitchen.book.now
    kitchen.pass_time(1)
    expiry.expire(kitchen.book, task)


ENDS: dict[str, Callable[[Kitchen, Task], object]] = {
    "completed": lambda kitchen, task: kitchen.report(task, event="noted", instance="i"),
    "failed": lambda kitchen, task: kitchen.report(task, "failed", error="x", instance="i", retryable=False),
    "expired": expire,
    "cancelled": lambda kitchen, task: kitchen.cancel(kitchen.token_of(task)),
}
CALLS: dict[str, Callable[[Kitchen, Task], object]] = {
    "ask": ask,
    "park": park,
    "checkpoint": store,
    "pause": pause,
    "resume": resume,
}
