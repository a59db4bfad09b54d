"""Events that a pause holds back: what is checked when they arrive, and what becomes of them at the resume."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal, unchanged
from stateous_contract.codes import Code
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Held, Token


def drops(kitchen: Kitchen, token: Token) -> list[str]:
    return [data["event"] for kind, data in kitchen.history(token) if kind == "event_dropped"]


def test_a_report_while_paused_is_checked_now_and_applied_at_the_resume() -> None:
    """S3-78, with the exact history."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    schedules = [{"event": "noted", "after": "1h"}]

    kitchen.report(task, event="noted", context={"label": "held"}, schedules=schedules)

    assert (task.current_state, bytes(token.context["label"])) == (TaskState.COMPLETED, b"null")
    kitchen.pass_time(5)
    kitchen.resume(token)
    data = {"event": "noted", "payload": None, "state": "plain", "visit": 1, "task": task.id, "arrival": 1}
    assert kitchen.history(token, after=5) == [
        ("paused", {}),
        ("event_deferred", {**data, "context": {"label": "held"}, "schedules": schedules}),
        ("task_done", {"task": task.id}),
        ("resumed", {}),
        ("event_replayed", {"event": "noted"}),
        ("context_changed", {"keys": ["label"]}),
        ("timer_set", {"event": "noted", "due_at": "2026-01-01T01:00:05Z"}),
        ("event_accepted", {"event": "noted", "payload": None, "state": "plain"}),
        ("completed", {}),
    ]


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (Code.EVENT_NOT_ALLOWED, {"event": "picked", "payload": {"level": 1}}),
        (Code.EVENT_NOT_ALLOWED, {"event": "approved"}),
        (Code.INVALID_PAYLOAD, {"event": "picked", "payload": {"level": "x"}}),
        (Code.INVALID_CONTEXT, {"event": "noted", "context": {"label": 7}}),
    ],
)
def test_a_report_that_could_not_move_a_paused_token_is_refused_at_once(
    code: Code, parts: dict[str, Any]
) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("picky")
    kitchen.pause(kitchen.token_of(task))
    before = everything(kitchen.book)

    assert refusal(kitchen.report, task, **parts) is code
    assert unchanged(kitchen.book, before)


def test_a_last_failure_while_paused_fails_the_token_at_the_resume() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("fragile")
    token = kitchen.token_of(task)
    kitchen.pause(token)

    kitchen.report(task, "failed", error="broken")

    assert (task.current_state, token.status) == (TaskState.FAILED, TokenStatus.PAUSED)
    kitchen.resume(token)
    assert token.status is TokenStatus.FAILED
    assert kitchen.kinds(token, after=5) == [
        "paused",
        "task_failed",
        "event_deferred",
        "resumed",
        "event_dropped",
        "failed",
    ]
    data = kitchen.history(token, after=5)[2][1]
    assert data == {
        "event": "error",
        "payload": None,
        "state": "fragile",
        "visit": 1,
        "task": task.id,
        "arrival": 1,
    }


def test_a_last_failure_while_paused_moves_the_token_at_the_resume_with_its_text() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("brittle", label="brave")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.report(task, "failed", error="it snapped")

    kitchen.resume(token)

    assert (token.state, token.entered_by, token.entered_error) == ("repair", "error", "it snapped")


def test_an_event_fired_at_a_paused_token_is_held_though_nothing_takes_it() -> None:
    kitchen = Kitchen()
    token = kitchen.paused("plain")

    kitchen.fire(token, "answered")
    kitchen.fire(token, "flagged", {"level": 5})

    assert token.state == "plain"
    kitchen.resume(token)
    assert token.state == "late"
    assert kitchen.history(token, after=5)[:6] == [
        ("event_deferred", {"event": "answered", "payload": None, "arrival": 1}),
        ("event_deferred", {"event": "flagged", "payload": {"level": 5}, "arrival": 2}),
        ("resumed", {}),
        ("event_dropped", {"event": "answered", "reason": kitchen.history(token, after=5)[3][1]["reason"]}),
        ("event_replayed", {"event": "flagged"}),
        ("event_accepted", {"event": "flagged", "payload": {"level": 5}, "state": "plain"}),
    ]


@pytest.mark.parametrize(
    ("event", "code"), [("zzz", Code.EVENT_NOT_ALLOWED), ("flagged", Code.INVALID_PAYLOAD)]
)
def test_an_event_is_checked_before_it_is_held(event: str, code: Code) -> None:
    kitchen = Kitchen()
    token = kitchen.paused("plain")

    assert refusal(kitchen.fire, token, event) is code
    assert not kitchen.book.held_of(token)


def test_held_events_apply_in_the_order_of_their_arrival() -> None:
    kitchen = Kitchen()
    token = kitchen.paused("plain")
    for event in ("noted", "flagged"):
        kitchen.fire(token, event, {"level": 1} if event == "flagged" else None)

    kitchen.resume(token)

    assert token.status is TokenStatus.COMPLETED
    assert drops(kitchen, token) == ["flagged"]


def test_arrival_decides_not_the_order_of_rows() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="round")
    token.status, token.paused_at = TokenStatus.PAUSED, kitchen.book.now
    kitchen.book.held = [Held(2, token.id, 2, "noted", None), Held(1, token.id, 1, "again", None)]

    kitchen.resume(token)

    assert (token.visit, token.status, drops(kitchen, token)) == (2, TokenStatus.COMPLETED, [])
    assert all(held.is_deleted for held in kitchen.book.held)


def test_a_held_outcome_of_a_visit_that_was_left_is_dropped() -> None:
    """An event from outside came first; the token is in the same state again, on another visit."""
    kitchen = Kitchen()
    task = kitchen.claimed("round")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.fire(token, "again")
    kitchen.report(task, event="noted", context={"label": "lost"})

    kitchen.resume(token)

    assert (token.state, token.visit, token.status) == ("round", 2, TokenStatus.ACTIVE)
    assert drops(kitchen, token) == ["noted"]
    assert bytes(token.context["label"]) == b"null"


def test_a_held_error_of_a_visit_that_was_left_does_no_harm() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.fire(token, "flagged", {"level": 1})
    kitchen.report(task, "failed", error="x")

    kitchen.resume(token)

    assert (token.state, token.status) == ("late", TokenStatus.ACTIVE)
    assert drops(kitchen, token) == ["error"]


def test_a_held_outcome_whose_writes_no_longer_fit_is_dropped() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.report(task, event="noted", context={"extra": 1})
    written = kitchen.book.held[0].context
    assert written is not None
    token.context = {**token.context, "label": written}  # no rule can do this

    kitchen.resume(token)

    assert drops(kitchen, token) == ["noted"]
    assert token.status is TokenStatus.ACTIVE


def test_a_token_can_be_paused_twice() -> None:
    kitchen = Kitchen()
    token = kitchen.paused("round")
    kitchen.fire(token, "again")
    kitchen.resume(token)
    kitchen.pause(token)
    kitchen.fire(token, "noted")

    kitchen.resume(token)

    assert (token.status, token.visit) == (TokenStatus.COMPLETED, 2)
