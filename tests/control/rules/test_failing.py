"""Failed attempts, releases and ended leases: what spends the budget, and what the token has of it."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import LEASE_S, Kitchen, refusal
from stateous_contract.codes import Code
from stateous_contract.states import Lost, TaskState, TokenStatus

from stateous_control.rules import leases
from stateous_control.rules.book import Task


def release(kitchen: Kitchen, task: Task, reason: str) -> None:
    kitchen.report(task, "released", reason=reason)


def test_a_failed_attempt_is_tried_again_under_the_same_number() -> None:
    """S3-33, S3-35, S3-51, S3-62: what it wrote is dropped, unchecked."""
    kitchen = Kitchen()
    task = kitchen.claimed("draft")

    token = kitchen.report(
        task, "failed", error="boom", context={"label": 7}, schedules=[{"event": "x", "after": "1m"}]
    )

    assert (task.current_state, task.attempt, task.failures) == (TaskState.PENDING, 1, 1)
    assert kitchen.history(token, after=5) == [
        ("task_failed", {"task": task.id, "error": "boom"}),
        ("task_retrying", {"task": task.id, "attempt": 2}),
    ]


def test_two_retries_are_three_attempts_and_then_error_moves_the_token() -> None:
    """S3-36, S3-38, S3-39, S3-52."""
    kitchen = Kitchen()
    task = kitchen.claimed("draft")
    for _ in range(2):
        kitchen.report(task, "failed", error="boom")
        kitchen.claim_again(task)

    token = kitchen.report(task, "failed", error="boom 3")

    assert (task.attempt, task.current_state, task.reason) == (3, TaskState.FAILED, "failed:exception")
    assert (token.state, token.entered_by, token.entered_error) == ("repair", "error", "boom 3")
    assert kitchen.history(token)[-4:-1] == [
        ("task_failed", {"task": task.id, "error": "boom 3"}),
        ("event_accepted", {"event": "error", "payload": None, "state": "draft"}),
        ("entered", {"state": "repair", "visit": 1}),
    ]


def test_without_retries_and_without_error_the_token_fails() -> None:
    """S3-37, S3-40, S3-73."""
    kitchen = Kitchen()
    task = kitchen.claimed("fragile")

    token = kitchen.report(task, "failed", error="broken")

    assert token.status is TokenStatus.FAILED
    assert kitchen.kinds(token, after=5) == ["task_failed", "failed"]
    assert "broken" in kitchen.history(token)[-1][1]["reason"]
    assert kitchen.book.memory_cleared == {token.id}


def test_error_with_a_guard_that_does_not_hold_fails_the_token() -> None:
    kitchen = Kitchen()

    token = kitchen.report(kitchen.claimed("brittle"), "failed", error="x")

    assert (token.status, token.state) == (TokenStatus.FAILED, "brittle")


def test_the_error_text_that_the_next_state_sees_is_cut() -> None:
    kitchen = Kitchen()

    token = kitchen.report(kitchen.claimed("brittle", label="brave"), "failed", error="x" * 5_000)

    assert token.entered_error == "x" * 2_000


def test_an_empty_error_gets_a_text_of_our_own() -> None:
    kitchen = Kitchen()

    token = kitchen.report(kitchen.claimed("sturdy"), "failed", error="")

    assert kitchen.history(token, after=5)[0][1]["error"]


def test_what_is_not_retryable_ends_at_once() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")

    kitchen.report(task, "failed", error="no such branch", retryable=False)

    assert (task.current_state, task.reason) == (TaskState.FAILED, "failed:not_retryable")


def test_a_reported_failure_waits_longer_each_time() -> None:
    kitchen = Kitchen(retry_delay_s=[1.0, 2.0, 4.0])
    task = kitchen.claimed("sturdy")
    waits = []

    for _ in range(5):
        kitchen.report(task, "failed", error="x")
        assert task.ready_at is not None
        waits.append((task.ready_at - kitchen.book.now).total_seconds())
        kitchen.claim_again(task)

    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_without_delays_a_retry_is_ready_at_once() -> None:
    kitchen = Kitchen(retry_delay_s=[])
    task = kitchen.claimed("sturdy")

    kitchen.report(task, "failed", error="x")

    assert task.ready_at == kitchen.book.now


@pytest.mark.parametrize(("retries", "state"), [(9, TaskState.PENDING), (0, TaskState.FAILED)])
def test_a_failure_from_outside_uses_the_same_budget(retries: int, state: TaskState) -> None:
    """S3-56."""
    kitchen = Kitchen()
    task = kitchen.waiting("plain")
    task.retries = retries

    kitchen.report(task, "failed", error="the build is gone")

    assert task.current_state is state


def test_a_retry_drops_the_routines_timers_and_keeps_the_timeout() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("patient")
    task.retries = 1
    token = kitchen.report(task, "waiting", schedules=[{"event": "answered", "after": "1h"}])

    kitchen.report(task, "failed", error="x")

    assert [timer.event for timer in kitchen.book.timers_of(token)] == ["timeout"]


def test_attempts_that_were_given_back_spend_no_retry() -> None:
    """C8: the budget reads failures, not attempts."""
    kitchen = Kitchen()
    task = kitchen.claimed("draft")
    for _ in range(10):
        release(kitchen, task, "drain")
        kitchen.claim_again(task)

    kitchen.report(task, "failed", error="x")

    assert (task.attempt, task.failures, task.current_state) == (11, 1, TaskState.PENDING)


@pytest.mark.parametrize("reason", ["drain", "not_started", "host_died: SIGKILL", "agent_died"])
def test_a_released_task_is_ready_at_once(reason: str) -> None:
    """A-43, T13."""
    kitchen = Kitchen()
    task = kitchen.claimed("fragile")

    token = kitchen.report(task, "released", reason=reason)

    assert (task.current_state, task.ready_at, task.failures) == (TaskState.PENDING, kitchen.book.now, 0)
    assert kitchen.history(token, after=5) == [
        ("task_released", {"task": task.id, "attempt": 1, "reason": reason})
    ]


@pytest.mark.parametrize("reason", ["", "bored", "drained", None])
def test_a_release_needs_a_reason_that_exists(reason: str | None) -> None:
    kitchen = Kitchen()

    assert refusal(kitchen.report, kitchen.claimed("plain"), "released", reason=reason) is Code.INVALID_BODY


@pytest.mark.parametrize(
    ("reasons", "is_suspect"),
    [
        (["drain"], False),
        (["agent_died"], False),
        (["host_died: signal 9"], True),
        (["host_died", "drain"], True),
        (["host_died", "agent_died"], True),
    ],
)
def test_who_was_there_when_a_host_died_stays_suspect(reasons: list[str], is_suspect: bool) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    for reason in reasons:
        release(kitchen, task, reason)
        kitchen.claim_again(task)

    assert task.is_suspect is is_suspect


def test_a_task_that_kills_its_host_does_not_go_round_for_ever() -> None:
    """BH-009."""
    kitchen = Kitchen(releases_max=3)
    task = kitchen.claimed("fragile")
    for reason in ("host_died: SIGKILL", "agent_died", "host_died: SIGKILL"):
        release(kitchen, task, reason)
        kitchen.claim_again(task)

    token = kitchen.report(task, "released", reason="host_died: SIGKILL")

    assert (task.current_state, task.reason, task.failures) == (TaskState.FAILED, "failed:host_died", 1)
    assert token.status is TokenStatus.FAILED
    assert "host_died: SIGKILL" in kitchen.history(token)[-2][1]["error"]


def test_releases_beyond_measure_spend_retries_without_a_delay() -> None:
    kitchen = Kitchen(releases_max=0)
    task = kitchen.claimed("sturdy")

    token = kitchen.report(task, "released", reason="agent_died")

    assert (task.failures, task.ready_at) == (1, kitchen.book.now)
    assert kitchen.kinds(token, after=5) == ["task_failed", "task_retrying"]


def test_an_ended_lease_is_a_failed_attempt_that_names_the_supervisor() -> None:
    """S3-26, S3-74, S3-75, S3-76."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    token = kitchen.token_of(task)
    kitchen.pass_time(LEASE_S + 1)

    assert kitchen.end_lease(task)
    kitchen.claim(task, "t")

    error = "s stopped answering: no heartbeat for 2 minutes"
    assert kitchen.history(token, after=5) == [
        ("task_failed", {"task": task.id, "error": error}),
        ("task_retrying", {"task": task.id, "attempt": 2}),
        ("task_claimed", {"task": task.id, "supervisor": "t", "attempt": 2}),
    ]


def test_an_ended_lease_without_budget_ends_the_task() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("fragile")
    kitchen.pass_time(LEASE_S + 1)

    kitchen.end_lease(task)

    assert (task.current_state, task.reason) == (TaskState.FAILED, "failed:lease_ended")


def test_a_lease_that_runs_is_not_ended() -> None:
    """S3-27, S1-20: a heartbeat that came first wins."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    kitchen.pass_time(LEASE_S)

    assert not kitchen.end_lease(task)
    assert task.current_state is TaskState.RUNNING


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.RUNNING])
def test_nothing_but_a_running_task_has_a_lease_to_end(state: TaskState) -> None:
    """S1-21."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    kitchen.pass_time(LEASE_S + 1)
    task.current_state = state

    assert not kitchen.end_lease(task)
    assert task.current_state is state


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (120, "2 minutes"),
        (60, "1 minute"),
        (90, "90 seconds"),
        (1, "1 second"),
        (0.5, "0.5 seconds"),
        (5, "5 seconds"),
    ],
)
def test_a_length_of_time_is_written_as_people_say_it(seconds: float, text: str) -> None:
    assert leases.span(seconds) == text


@pytest.mark.parametrize(
    ("state", "parts", "cause"),
    [
        (None, {}, Lost.NOT_FOUND),
        (TaskState.RUNNING, {"named_attempt": 1}, Lost.ATTEMPT_OVER),
        (TaskState.CANCELLED, {"named_attempt": 1}, Lost.ATTEMPT_OVER),
        (TaskState.CANCELLED, {"reason": "cancelled:token_left:timeout"}, Lost.TOKEN_LEFT),
        (TaskState.CANCELLED, {"reason": "cancelled:token_cancelled"}, Lost.CANCELLED),
        (TaskState.CANCELLED, {"reason": "cancelled:token_failed"}, Lost.CANCELLED),
        (TaskState.COMPLETED, {}, Lost.TOKEN_LEFT),
        (TaskState.EXPIRED, {}, Lost.EXPIRED),
        (TaskState.PENDING, {}, Lost.LEASE_ENDED),
        (TaskState.FAILED, {"reason": "failed:lease_ended"}, Lost.LEASE_ENDED),
        (TaskState.FAILED, {"reason": "failed:exception"}, Lost.ATTEMPT_OVER),
        (TaskState.PARKED, {"reason": "awaiting_event:s"}, Lost.ATTEMPT_OVER),
        (TaskState.RUNNING, {"named_attempt": 2}, Lost.ATTEMPT_OVER),
    ],
)
def test_a_lost_task_is_told_why(state: TaskState | None, parts: dict[str, Any], cause: Lost) -> None:
    """S3-24: the task is at attempt 2."""
    assert leases.lost_cause(state, **{"reason": None, "attempt": 2, **parts}) is cause
