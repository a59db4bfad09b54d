"""Pauses as rules on one book: a task and its token have separate requests."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal
from control.rules.supervised import (
    answer,
    ask,
    desk,
    held,
    park,
    pause,
    resume,
)
from stateous_contract.codes import Code
from stateous_contract.states import TaskState

from stateous_control.rules import pausing
from stateous_control.rules.book import Task


def test_a_pause_is_a_request_and_leaves_the_state() -> None:
    """S1-68, S1-72."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    assert (task.current_state, task.pause_requested_at) == (TaskState.RUNNING, kitchen.book.now)


def test_a_worker_parks_at_its_next_point_and_the_flag_is_gone() -> None:
    """S1-29, S1-71, S1-74."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    assert park(kitchen, task)
    assert (task.current_state, task.reason) == (TaskState.PARKED, "user_paused")
    assert (task.pause_requested_at, task.ready_at, task.failures) == (None, None, 0)
    assert task.entries[-1].kind == "paused"


def test_without_a_request_nobody_parks() -> None:
    """S1-05: the attempt goes on, and the point counts as passed."""
    kitchen = desk()
    task = held(kitchen)
    assert not park(kitchen, task, step="here", occurrence=1)
    assert task.current_state is TaskState.RUNNING
    assert (task.id, 1, "here", 1) in kitchen.book.checkpoints


def test_a_paused_point_is_passed_on_replay() -> None:
    """S1-76."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    assert park(kitchen, task, step="here", occurrence=1)
    assert bytes(kitchen.book.checkpoints[task.id, 1, "here", 1].value) == b"null"


def test_parking_again_answers_the_same() -> None:
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    park(kitchen, task)
    before = everything(kitchen.book)
    assert park(kitchen, task)
    assert everything(kitchen.book) == before


def test_a_resumed_task_is_ready_and_does_not_park_by_itself() -> None:
    """S1-74, S1-77."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    park(kitchen, task)
    resume(kitchen, task)
    assert (task.reason, task.ready_at) == ("resuming:user_paused", kitchen.book.now)
    kitchen.claim_again(task)
    task.instance = "i"
    assert not park(kitchen, task)


def test_a_task_that_ends_before_its_next_point_completes() -> None:
    """S1-73."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    kitchen.report(task, event="noted", instance="i")
    assert task.current_state is TaskState.COMPLETED


def test_a_pending_task_is_not_handed_out_while_a_pause_is_requested() -> None:
    """S1-75."""
    kitchen = desk()
    task = kitchen.started("plain")
    ready_at = task.ready_at
    pause(kitchen, task)
    assert (task.current_state, task.ready_at) == (TaskState.PENDING, None)
    resume(kitchen, task)
    assert (task.ready_at, task.pause_requested_at) == (ready_at, None)


def test_a_paused_attempt_that_fails_is_not_handed_out_again() -> None:
    """S1-75: the request stands until somebody withdraws it."""
    kitchen = desk()
    task = held(kitchen, "sturdy")
    pause(kitchen, task)
    kitchen.report(task, "released", reason="drain", instance="i")
    assert (task.current_state, task.ready_at) == (TaskState.PENDING, None)
    assert task.held_ready_at is not None


def test_a_parked_task_stays_when_its_wait_ends_under_a_pause() -> None:
    """S1-75."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    pause(kitchen, task)
    assert task.reason == "awaiting_user_answer:go"
    answer(kitchen, question)
    assert (task.reason, task.ready_at, task.pause_requested_at) == ("user_paused", None, None)
    resume(kitchen, task)
    assert task.ready_at == kitchen.book.now


def ready_for(kitchen: Kitchen) -> Task:
    task = held(kitchen)
    answer(kitchen, ask(kitchen, task)[0])
    return task


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (lambda kitchen: kitchen.started("plain"), Code.NOT_PARKED),
        (held, Code.NOT_PARKED),
        (lambda kitchen: kitchen.waiting("plain"), Code.TASK_WAITS),
        (ready_for, Code.ALREADY_RESUMED),
    ],
    ids=["pending", "running", "waiting", "resumed"],
)
def test_a_task_that_is_not_paused_is_not_resumed(begin: Any, code: Code) -> None:
    """S1-81."""
    kitchen = desk()
    task = begin(kitchen)
    before = everything(kitchen.book)
    assert refusal(resume, kitchen, task) is code
    assert everything(kitchen.book) == before


def test_a_task_that_waits_for_an_answer_is_not_resumed_without_it() -> None:
    """S1-82."""
    kitchen = desk()
    task = held(kitchen)
    ask(kitchen, task)
    assert refusal(resume, kitchen, task) is Code.TASK_WAITS


def test_the_second_of_two_resumes_is_told() -> None:
    """S1-79, S1-84."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    park(kitchen, task)
    generation = task.generation
    resume(kitchen, task)
    code = refusal(pausing.resume_task, kitchen.book, task, generation=generation, actor="ben")
    assert code is Code.ALREADY_RESUMED


@pytest.mark.parametrize("reason", [None, "nondeterminism:build", "something_new:1"])
def test_a_park_of_an_unknown_kind_can_be_resumed_by_hand(reason: str | None) -> None:
    """S1-26."""
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    park(kitchen, task)
    task.reason = reason
    resume(kitchen, task)
    assert task.ready_at is not None


def test_a_pause_with_an_old_generation_is_refused() -> None:
    """S1-100: the stale dashboard."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    seen = task.generation
    answer(kitchen, question)
    kitchen.claim_again(task)
    code = refusal(pausing.request_pause, kitchen.book, task, generation=seen, actor="ann")
    assert code is Code.STALE_GENERATION
    assert task.pause_requested_at is None


def test_a_tokens_pause_parks_its_task_and_its_resume_readies_it() -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    kitchen.pause(token)
    assert park(kitchen, task)
    assert (task.reason, task.ready_at) == ("user_paused", None)
    kitchen.resume(token)
    assert (task.reason, task.ready_at) == ("resuming:user_paused", kitchen.book.now)


def test_a_task_is_not_resumed_while_its_token_is_paused() -> None:
    kitchen = desk()
    task = held(kitchen)
    pause(kitchen, task)
    park(kitchen, task)
    kitchen.pause(kitchen.token_of(task))
    assert refusal(resume, kitchen, task) is Code.TOKEN_PAUSED


def test_a_tokens_resume_leaves_the_tasks_own_pause() -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    pause(kitchen, task)
    kitchen.pause(token)
    park(kitchen, task)
    kitchen.resume(token)
    assert (task.reason, task.ready_at) == ("user_paused", None)
    resume(kitchen, task)
    assert task.ready_at is not None


def test_a_pause_of_a_task_that_its_tokens_pause_parked_goes_on_after_the_tokens_resume() -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    kitchen.pause(token)
    park(kitchen, task)
    pause(kitchen, task)
    kitchen.resume(token)
    assert (task.reason, task.ready_at, task.pause_requested_at) == ("user_paused", None, None)
    resume(kitchen, task)
    assert task.ready_at is not None


@pytest.mark.parametrize("first", ["task", "token"])
def test_a_queued_task_is_handed_out_when_neither_pause_stands(first: str) -> None:
    kitchen = desk()
    task = kitchen.started("plain")
    token = kitchen.token_of(task)
    pause(kitchen, task)
    kitchen.pause(token)
    if first == "token":
        kitchen.resume(token)
        assert task.ready_at is None
        resume(kitchen, task)
    else:
        assert refusal(resume, kitchen, task) is Code.TOKEN_PAUSED
        kitchen.resume(token)
        assert task.ready_at is None
        resume(kitchen, task)
    assert task.ready_at is not None


def test_an_answer_under_a_paused_token_is_handed_out_after_the_resume() -> None:
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    token = kitchen.token_of(task)
    kitchen.pause(token)
    answer(kitchen, question)
    assert (task.reason, task.ready_at) == ("user_paused", None)
    kitchen.resume(token)
    assert task.ready_at == kitchen.book.now
