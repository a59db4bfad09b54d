"""Fire, pause, resume, cancel: the order of checks, and what a pause holds back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from control.rules.kitchen import LEASE_S, Kitchen, everything, graph_of, refusal, unchanged
from stateous_contract.codes import Code
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.rejections import LATE_LINES_MAX

VERBS = {
    "pause": {TokenStatus.ACTIVE},
    "resume": {TokenStatus.PAUSED},
    "cancel": {TokenStatus.ACTIVE, TokenStatus.PAUSED},
}


@pytest.mark.parametrize("status", TokenStatus)
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_for_some_statuses_only(verb: str, status: TokenStatus) -> None:
    """Every cell; what is refused changes nothing."""
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    token.status = status
    token.paused_at = kitchen.book.now if status is TokenStatus.PAUSED else None
    before = everything(kitchen.book)

    if status in VERBS[verb]:
        getattr(kitchen, verb)(token)
        assert token.status is not status
    else:
        assert refusal(getattr(kitchen, verb), token) is Code.TOKEN_NOT_ACTIVE
        assert unchanged(kitchen.book, before)


@pytest.mark.parametrize("verb", VERBS)
def test_a_child_is_steered_with_its_parent_only(verb: str) -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    token.parent = "p"

    assert refusal(getattr(kitchen, verb), token) is Code.CHILD_TOKEN


# Fire.


def test_an_event_moves_a_token_whose_task_is_queued() -> None:
    """S3-53: the state emits it, but nobody has begun."""
    kitchen = Kitchen()
    task = kitchen.started("plain")
    token = kitchen.token_of(task)

    assert not kitchen.fire(token, "noted")

    assert (task.current_state, token.status) == (TaskState.CANCELLED, TokenStatus.COMPLETED)
    assert kitchen.history(token, after=4) == [
        ("event_accepted", {"event": "noted", "payload": None, "state": "plain"}),
        ("task_cancelled", {"task": task.id}),
        ("completed", {}),
    ]


@pytest.mark.parametrize("how", ["claimed", "waiting"])
def test_an_event_that_the_state_emits_completes_a_task_that_was_begun(how: str) -> None:
    """S3-50, S3-59, S3-60."""
    kitchen = Kitchen()
    task = getattr(kitchen, how)("plain")

    kitchen.fire(kitchen.token_of(task), "flagged", {"level": 2})

    assert task.current_state is TaskState.COMPLETED


@pytest.mark.parametrize("how", ["claimed", "waiting"])
def test_an_event_that_the_state_does_not_emit_cancels_its_task(how: str) -> None:
    """S3-54, S3-55, S3-61."""
    states = {"plain": {"emits": ["noted"]}}
    transitions = [
        {"from": "__start__", "to": "plain"},
        {"from": "plain", "on": "noted", "to": "__end__"},
        {"from": "plain", "on": "called", "to": "__end__"},
    ]
    kitchen = Kitchen(graph_of(states, {"noted": {}, "called": {}}, transitions))
    task = getattr(kitchen, how)("plain")

    kitchen.fire(kitchen.token_of(task), "called")

    assert (task.current_state, task.reason) == (TaskState.CANCELLED, "cancelled:token_left:called")


FIRES: list[tuple[Code, str, Any]] = [
    (Code.EVENT_NOT_ALLOWED, "timeout", {"a": 1}),
    (Code.EVENT_NOT_ALLOWED, "error", None),
    (Code.EVENT_NOT_ALLOWED, "joined", None),
    (Code.EVENT_NOT_ALLOWED, "__started__", None),
    (Code.EVENT_NOT_ALLOWED, "zzz", {"a": 1}),
    (Code.INVALID_PAYLOAD, "picked", {"level": "x"}),
    (Code.INVALID_PAYLOAD, "picked", None),
    (Code.INVALID_PAYLOAD, "noted", {"a": 1}),
    (Code.EVENT_NOT_ALLOWED, "answered", None),
    (Code.EVENT_NOT_ALLOWED, "picked", {"level": 1}),
]


@pytest.mark.parametrize(("code", "event", "payload"), FIRES)
def test_an_event_that_cannot_be_fired_is_refused(code: Code, event: str, payload: Any) -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="picky")
    before, count = everything(kitchen.book), len(kitchen.book.entries)

    assert refusal(kitchen.fire, token, event, payload, key="k") is code

    assert unchanged(kitchen.book, before)
    kinds = [entry.kind for entry in kitchen.book.entries[count:]]
    assert kinds == ([] if code is Code.INVALID_PAYLOAD else ["event_rejected"])


@pytest.mark.parametrize("event", ["noted", "zzz", "timeout", "flagged"])
def test_an_ended_token_refuses_whatever_the_event(event: str) -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    kitchen.fire(token, "noted")

    assert refusal(kitchen.fire, token, event) is Code.TOKEN_NOT_ACTIVE
    assert kitchen.kinds(token)[-1] == "event_rejected"


def test_an_ended_token_keeps_the_first_refusals_only_and_says_where_they_stop() -> None:
    """A client that fires for ever gets the same answer for ever, and fills no history."""
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    assert refusal(kitchen.fire, token, "zzz") is Code.EVENT_NOT_ALLOWED
    kitchen.fire(token, "noted")
    before = len(kitchen.kinds(token))

    for _ in range(3 * LATE_LINES_MAX):
        assert refusal(kitchen.fire, token, "noted") is Code.TOKEN_NOT_ACTIVE

    late = [entry for entry in kitchen.book.entries if entry.kind == "event_rejected"][1:]
    assert len(kitchen.kinds(token)) - before == len(late) == LATE_LINES_MAX
    says = [entry.data["reason"].endswith("; what is refused from now on leaves no line") for entry in late]
    assert says == [False] * (LATE_LINES_MAX - 1) + [True]


def test_a_token_that_lives_keeps_a_line_of_every_refusal() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    for _ in range(LATE_LINES_MAX + 5):
        assert refusal(kitchen.fire, token, "zzz") is Code.EVENT_NOT_ALLOWED
    assert kitchen.kinds(token).count("event_rejected") == LATE_LINES_MAX + 5


@pytest.mark.parametrize("event", ["noted", "declined", "timeout", "zzz"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_used_key_does_nothing_whatever_the_event(event: str, is_paused: bool) -> None:
    """Before anything else about the event is looked at."""
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    if is_paused:
        kitchen.pause(token)
    kitchen.fire(token, "noted", key="k")
    before, count = everything(kitchen.book), len(kitchen.book.entries)

    assert kitchen.fire(token, event, {"a": 1}, key="k")

    assert unchanged(kitchen.book, before)
    assert len(kitchen.book.entries) == count


def test_a_key_that_the_database_knows_is_used() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    kitchen.book.keys_used.add((token.id, "k"))

    assert kitchen.fire(token, "noted", key="k")
    assert not kitchen.fire(token, "noted", key="other")
    assert kitchen.book.keys_new == [(token.id, "other")]


def test_a_refused_event_does_not_use_up_its_key() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="plain")
    refusal(kitchen.fire, token, "answered", key="k")

    assert not kitchen.fire(token, "noted", key="k")


def test_a_key_belongs_to_one_token() -> None:
    kitchen = Kitchen()
    one, other = kitchen.start("a", path="plain"), kitchen.start("b", path="plain")
    kitchen.fire(one, "noted", key="k")

    assert not kitchen.fire(other, "noted", key="k")


def test_an_event_that_two_guards_take_fails_the_token() -> None:
    transitions = [
        {"from": "__start__", "to": "s"},
        {"from": "s", "on": "go", "to": "__end__", "when": "ctx['n'] > 1"},
        {"from": "s", "on": "go", "to": "s", "when": "ctx['n'] > 2"},
    ]
    kitchen = Kitchen(graph_of({"s": {"emits": ["go"]}}, {"go": {}}, transitions))
    token = kitchen.start(n=3)

    kitchen.fire(token, "go")

    assert token.status is TokenStatus.FAILED


# What goes on while a token is paused.


def test_a_queued_task_of_a_paused_token_is_not_handed_out() -> None:
    """S3-08: and gets its place back."""
    kitchen = Kitchen()
    task = kitchen.started("plain")
    since = task.ready_at
    kitchen.pause(kitchen.token_of(task))

    assert (task.ready_at, task.held_ready_at) == (None, since)
    kitchen.pass_time(60)
    kitchen.resume(kitchen.token_of(task))

    assert (task.ready_at, task.held_ready_at) == (since, None)


@pytest.mark.parametrize("how", ["claimed", "waiting"])
def test_a_task_that_was_not_queued_is_not_queued_by_a_resume(how: str) -> None:
    kitchen = Kitchen()
    task = getattr(kitchen, how)("plain")
    state = task.current_state
    kitchen.pause(kitchen.token_of(task))

    kitchen.resume(kitchen.token_of(task))

    assert (task.current_state, task.ready_at) == (state, None)


def test_pause_and_resume_are_changes_that_an_old_picture_does_not_know() -> None:
    """T20."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    before = task.generation
    kitchen.pause(kitchen.token_of(task))
    kitchen.resume(kitchen.token_of(task))

    assert task.generation == before + 2


def test_a_pause_is_given_back_to_timers() -> None:
    """S3-78: from the pause, or from when the timer was set if that was later."""
    kitchen = Kitchen()
    task = kitchen.claimed("patient")
    token = kitchen.token_of(task)
    (timeout,) = kitchen.book.timers_of(token)
    due = timeout.due_at
    kitchen.pass_time(0.25)
    kitchen.pause(token)
    kitchen.pass_time(10)
    kitchen.report(task, "waiting", schedules=[{"event": "answered", "after": "1h"}])
    kitchen.pass_time(30)

    kitchen.resume(token)

    shifts = {timer.event: timer.due_at for timer in kitchen.book.timers_of(token)}
    assert shifts["timeout"] == due + timedelta(seconds=40)
    assert shifts["answered"] == kitchen.book.now + timedelta(hours=1)
    assert timeout.is_changed


def test_a_waiting_report_is_taken_at_once() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.token_of(task)
    kitchen.pause(token)

    kitchen.report(task, "waiting", context={"label": "w"})

    assert task.current_state is TaskState.PARKED
    assert kitchen.kinds(token, after=6) == ["context_changed", "task_waiting"]


@pytest.mark.parametrize("how", ["failed", "released", "lease"])
def test_a_task_that_is_queued_again_waits_for_the_resume(how: str) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    token = kitchen.token_of(task)
    kitchen.pause(token)
    kitchen.pass_time(LEASE_S + 1)
    if how == "lease":
        kitchen.end_lease(task)
    else:
        kitchen.report(task, how, error="x", reason="drain")
    due = kitchen.book.now + timedelta(seconds=1 if how == "failed" else 0)

    assert (task.current_state, task.ready_at) == (TaskState.PENDING, None)
    kitchen.resume(token)

    assert task.ready_at == due


# Cancel.


@pytest.mark.parametrize("how", ["started", "claimed", "waiting"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_cancelled_token_takes_its_task_with_it(how: str, is_paused: bool) -> None:
    """S3-57: from queued, claimed and waiting."""
    kitchen = Kitchen()
    task = getattr(kitchen, how)("plain")
    token = kitchen.token_of(task)
    if is_paused:
        kitchen.pause(token)
    count = len(kitchen.book.entries)

    kitchen.cancel(token)

    assert (task.current_state, task.reason) == (TaskState.CANCELLED, "cancelled:token_cancelled")
    assert (token.status, token.paused_at) == (TokenStatus.CANCELLED, None)
    assert kitchen.kinds(token, after=count) == ["task_cancelled", "cancelled"]


def test_a_cancelled_token_drops_what_was_held_for_it_and_its_timers() -> None:
    kitchen = Kitchen()
    token = kitchen.paused("patient")
    kitchen.fire(token, "answered")

    kitchen.cancel(token)

    assert kitchen.kinds(token, after=6) == ["event_deferred", "event_dropped", "task_cancelled", "cancelled"]
    assert not kitchen.book.held_of(token)
    assert not kitchen.book.timers_of(token)
    assert kitchen.book.memory_cleared == {token.id}
