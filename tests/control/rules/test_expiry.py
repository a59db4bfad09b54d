"""Expiry as a rule on one book: terminal, by one clock, and nothing is guessed."""

from __future__ import annotations

import pytest
from control.rules.supervised import (
    EXPIRING,
    ask,
    desk,
    held,
    kinds,
    park,
    pause,
)
from stateous_contract.states import QuestionStatus, TaskState, TokenStatus

from stateous_control.rules import expiry


def test_an_expired_question_ends_its_task_and_keeps_the_reason() -> None:
    """S1-30, S1-89, S1-90, S1-91, S1-92."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    kitchen.pass_time(60.001)
    assert expiry.expire(kitchen.book, task)
    assert (task.current_state, task.reason) == (TaskState.EXPIRED, "expired:awaiting_user_answer:go")
    assert (question.status, question.answer) == (QuestionStatus.EXPIRED, None)
    assert kinds(task)[-1] == "expired"
    assert kinds(task).count("expired") == 1


def test_nothing_expires_before_its_time() -> None:
    """S1-87."""
    kitchen = desk()
    task = held(kitchen)
    ask(kitchen, task)
    kitchen.pass_time(60)
    assert not expiry.expire(kitchen.book, task)


@pytest.mark.parametrize("state", ["pending", "running", "user_paused"])
def test_a_task_expires_in_whatever_state_it_is(state: str) -> None:
    """S1-09, S1-85, S1-89."""
    kitchen = desk()
    kitchen.book.task_ttl_s = 30.0
    task = kitchen.started("plain")
    if state != "pending":
        kitchen.claim(task, instance="i")
    if state == "user_paused":
        pause(kitchen, task)
        park(kitchen, task)
    kitchen.pass_time(31)
    assert expiry.expire(kitchen.book, task)
    assert task.reason == f"expired:{state}"


def test_the_token_of_an_expired_task_gets_the_event_that_its_workflow_declares() -> None:
    kitchen = desk(graph=EXPIRING)
    kitchen.book.task_ttl_s = 30.0
    token = kitchen.start("t")
    task = kitchen.task_of(token)
    kitchen.pass_time(31)
    expiry.expire(kitchen.book, task)
    assert (token.status, token.state) == (TokenStatus.ACTIVE, "b")


def test_without_such_an_event_the_token_fails_and_never_gets_error() -> None:
    """C10, S1-91."""
    kitchen = desk()
    task = held(kitchen, "fragile")
    ask(kitchen, task)
    kitchen.pass_time(61)
    expiry.expire(kitchen.book, task)
    token = kitchen.token_of(task)
    assert token.status is TokenStatus.FAILED
    assert "error" not in token.events


def test_under_a_paused_token_the_event_waits_for_the_resume() -> None:
    kitchen = desk(graph=EXPIRING)
    token = kitchen.start("t")
    task = kitchen.claim(kitchen.task_of(token), instance="i")
    ask(kitchen, task)
    kitchen.pause(token)
    kitchen.pass_time(61)
    assert expiry.expire(kitchen.book, task)
    assert (task.current_state, token.state) == (TaskState.EXPIRED, "a")
    kitchen.resume(token)
    assert token.state == "b"


def test_a_held_expiry_that_leads_nowhere_fails_the_token() -> None:
    kitchen = desk()
    task = held(kitchen)
    ask(kitchen, task)
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.pass_time(61)
    expiry.expire(kitchen.book, task)
    kitchen.resume(token)
    assert token.status is TokenStatus.FAILED


def test_a_question_that_an_ended_task_left_open_is_closed() -> None:
    """DX-19: whoever ended the task without us."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    task.current_state = TaskState.COMPLETED
    assert not expiry.expire(kitchen.book, task)
    assert (question.status, question.cause) == (QuestionStatus.CLOSED, "task_ended")
