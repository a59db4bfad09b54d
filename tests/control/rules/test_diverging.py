"""Replays that do not come by what they had passed, as rules on one book (S2-13, C12)."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal
from control.rules.supervised import DECISIONS, ENDS, desk, held, kinds, pause, resume, store
from stateous_contract.codes import Code
from stateous_contract.messages import Park, Wait
from stateous_contract.states import TaskState, status_of

from stateous_control.rules import diverging
from stateous_control.rules.book import Task


def diverge(kitchen: Kitchen, task: Task, *, found: str | None = "made#1", **more: Any) -> None:
    said: dict[str, Any] = {"supervisor": "s", "instance": "i", "attempt": task.attempt}
    place = {"step": "build", "occurrence": 1, "locked_decisions": DECISIONS}
    wait = Wait(kind="nondeterminism", found=found)
    diverging.park(kitchen.book, task, Park(**said | place | more, wait=wait))


def test_a_diverged_task_is_parked_and_says_why_s2_13() -> None:
    kitchen = desk()
    task = held(kitchen)
    store(kitchen, task)
    diverge(kitchen, task)

    assert (task.current_state, task.reason) == (TaskState.PARKED, "nondeterminism:build")
    assert status_of(task.current_state, task.reason) == "waiting"
    assert (task.ready_at, task.lease_until, task.failures) == (None, None, 0)
    line = task.entries[-1]
    assert (line.kind, line.data["step"], line.data["found"]) == ("diverged", "build", "made#1")
    assert (task.id, 1, "build", 1) in kitchen.book.checkpoints, "what was passed stands"


def test_the_same_again_changes_nothing() -> None:
    kitchen = desk()
    task = held(kitchen)
    diverge(kitchen, task)
    before = everything(kitchen.book)
    diverge(kitchen, task)
    assert everything(kitchen.book) == before


def test_a_person_resumes_it_and_it_may_park_again() -> None:
    kitchen = desk()
    task = held(kitchen)
    diverge(kitchen, task)
    resume(kitchen, task)
    assert (task.reason, task.ready_at) == ("resuming:nondeterminism:build", kitchen.book.now)

    kitchen.claim_again(task)
    task.instance = "i"
    diverge(kitchen, task)
    assert (task.reason, task.attempt, task.failures) == ("nondeterminism:build", 2, 0)


def test_a_pause_that_was_requested_ends_with_the_same_resume() -> None:
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    diverge(kitchen, task)
    assert task.reason == "nondeterminism:build"

    resume(kitchen, task)
    assert (task.pause_requested_at, task.ready_at) == (None, kitchen.book.now)


@pytest.mark.parametrize("end", ["expired", "cancelled"])
def test_it_ends_as_every_parked_task_does(end: str) -> None:
    kitchen = desk()
    task = held(kitchen)
    diverge(kitchen, task)
    ENDS[end](kitchen, task)
    assert (task.current_state, task.generation, kinds(task)[-1]) == (TaskState(end), 4, end)


def test_a_late_or_foreign_worker_parks_nothing_s2_58() -> None:
    kitchen = desk()
    task = held(kitchen)
    assert refusal(lambda: diverge(kitchen, task, attempt=2)) is Code.TASK_NOT_HELD
    assert refusal(lambda: diverge(kitchen, task, instance="other")) is Code.TASK_NOT_HELD
    ENDS["cancelled"](kitchen, task)
    assert refusal(lambda: diverge(kitchen, task)) is Code.TASK_CANCELLED
