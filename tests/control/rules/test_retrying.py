"""Retries by people as a rule on one book."""

from __future__ import annotations

import pytest
from control.rules.kitchen import refusal
from control.rules.supervised import (
    ENDS,
    EXPIRING,
    desk,
    held,
    retry,
    store,
)
from stateous_contract.codes import Code
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules import expiry


def test_a_retry_is_a_new_task_of_a_new_token_where_the_old_one_ended() -> None:
    """C14."""
    kitchen = desk()
    task = held(kitchen)
    store(kitchen, task)
    kitchen.report(task, "failed", error="x", instance="i", retryable=False)
    before = (task.current_state, task.generation, task.reason)
    fresh = retry(kitchen, task)
    token = kitchen.token_of(fresh)
    assert (fresh.retried_from, fresh.state, fresh.current_state) == (task.id, task.state, TaskState.PENDING)
    assert (token.name, token.state, token.status) == ("again", "plain", TokenStatus.ACTIVE)
    assert token.context == kitchen.token_of(task).context
    assert (task.current_state, task.generation, task.reason) == before
    assert fresh.saved_bytes == task.saved_bytes > 0


def test_a_task_is_retried_once() -> None:
    """S1-98: of two clients with the same value one succeeds."""
    kitchen = desk()
    task = held(kitchen)
    kitchen.cancel(kitchen.token_of(task))
    retry(kitchen, task)
    assert refusal(retry, kitchen, task, "other") is Code.ALREADY_RETRIED


@pytest.mark.parametrize("end", ["completed", None])
def test_what_has_not_failed_is_not_retried(end: str | None) -> None:
    kitchen = desk()
    task = held(kitchen)
    if end:
        ENDS[end](kitchen, task)
    assert refusal(retry, kitchen, task) is Code.NOT_RETRYABLE


def test_a_task_whose_token_went_on_is_not_retried() -> None:
    kitchen = desk(graph=EXPIRING)
    kitchen.book.task_ttl_s = 30.0
    task = kitchen.task_of(kitchen.start("t"))
    kitchen.pass_time(31)
    expiry.expire(kitchen.book, task)
    assert kitchen.token_of(task).status is TokenStatus.ACTIVE
    assert refusal(retry, kitchen, task) is Code.NOT_RETRYABLE
