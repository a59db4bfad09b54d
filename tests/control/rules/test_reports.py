"""Reports: the order of their checks, what each outcome does, and the history that it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, graph_of, raw, refusal, unchanged
from stateous_contract.codes import Code
from stateous_contract.states import FINAL_TASK_STATES, TaskState, TokenStatus

from stateous_control.rules.book import Task

# Each report has one more fault than the one after it, so each code shows which check comes first (A.6).
FAULTS: list[tuple[Code, dict[str, Any]]] = [
    (Code.INVALID_BODY, {"kind": "finished"}),
    (Code.ATTEMPT_OVER, {"attempt": 1}),
    (Code.TASK_NOT_HELD, {"attempt": 3}),
    (Code.TASK_NOT_HELD, {"supervisor": "other"}),
    (Code.INVALID_CONTEXT, {"context": {"scores": 1}}),
    (Code.INVALID_PAYLOAD, {"schedules": [{"event": "x", "after": "1m"}]}),
    (Code.EVENT_NOT_ALLOWED, {"event": "approved"}),
    (Code.INVALID_PAYLOAD, {"payload": {"level": "ten"}}),
    (Code.EVENT_NOT_ALLOWED, {"payload": {"level": 10}}),
]


def second_attempt(kitchen: Kitchen) -> Task:
    task = kitchen.claimed("picky")
    task.retries = 9
    kitchen.report(task, "failed", error="x")
    return kitchen.claim_again(task)


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_the_first_fault_in_the_order_of_checks_is_told(first: int) -> None:
    kitchen = Kitchen()
    task = second_attempt(kitchen)
    good = {"kind": "event", "event": "picked", "payload": {"level": 11}}
    parts = dict(good)
    for _, fault in reversed(FAULTS[first:]):
        parts |= fault

    assert refusal(kitchen.report, task, **parts) is FAULTS[first][0]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_a_refused_report_changes_nothing(first: int) -> None:
    """S3-30, S3-42: neither context nor task nor token."""
    kitchen = Kitchen()
    task = second_attempt(kitchen)
    before = everything(kitchen.book)
    parts = {"kind": "event", "event": "picked", "payload": {"level": 11}, "context": {"label": "lost"}}

    refusal(kitchen.report, task, **(parts | FAULTS[first][1]))

    assert unchanged(kitchen.book, before)


@pytest.mark.parametrize(("code", "fault"), FAULTS)
def test_only_a_refused_event_leaves_a_line(code: Code, fault: dict[str, Any]) -> None:
    kitchen = Kitchen()
    task = second_attempt(kitchen)
    count = len(kitchen.book.entries)

    refusal(kitchen.report, task, **({"kind": "event", "event": "picked", "payload": {"level": 11}} | fault))

    kinds = [entry.kind for entry in kitchen.book.entries[count:]]
    assert kinds == (["event_rejected"] if code is Code.EVENT_NOT_ALLOWED else [])


def test_an_event_moves_the_token_with_payload_and_writes() -> None:
    """S3-29, S3-41, S3-48, S3-72."""
    kitchen = Kitchen()
    task = kitchen.claimed("draft")

    token = kitchen.report(task, event="drafted", payload={"pages": 3}, context={"label": "kept", "extra": 1})

    assert task.current_state is TaskState.COMPLETED
    assert kitchen.history(token, after=5) == [
        ("context_changed", {"keys": ["extra", "label"]}),
        ("event_accepted", {"event": "drafted", "payload": {"pages": 3}, "state": "draft"}),
        ("task_done", {"task": task.id}),
        ("entered", {"state": "review", "visit": 1}),
        ("task_queued", {"task": kitchen.task_of(token).id, "state": "review"}),
    ]


def test_an_event_into_the_end_completes() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    token = kitchen.report(task, event="noted")

    assert token.status is TokenStatus.COMPLETED
    assert kitchen.kinds(token, after=5) == ["event_accepted", "task_done", "completed"]
    assert not kitchen.book.live_tasks(token)


def test_guards_see_the_reports_own_writes() -> None:
    kitchen = Kitchen()
    token = kitchen.report(kitchen.claimed("draft"), event="drafted", payload={"pages": 1})

    kitchen.report(kitchen.claim(kitchen.task_of(token)), event="approved", context={"label": "final"})

    assert token.state == "printing"


def test_a_write_replaces_the_whole_value_and_keeps_its_place() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain", label="x", more={"a": 1})

    token = kitchen.report(task, event="noted", context={"label": "y", "more": {"b": 2}})

    assert token.context == {
        "path": raw("plain"),
        "scores": raw([]),
        "label": raw("y"),
        "more": raw({"b": 2}),
    }
    assert list(token.context) == ["path", "scores", "label", "more"]


def test_timers_of_an_event_outcome_show_in_the_history_only() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    token = kitchen.report(
        task, event="flagged", payload={"level": 1}, schedules=[{"event": "noted", "after": "1h"}]
    )

    assert kitchen.kinds(token, after=5) == [
        "timer_set",
        "event_accepted",
        "task_done",
        "entered",
        "task_queued",
    ]
    assert not kitchen.book.timers_of(token)


def test_waiting_parks_the_task_with_its_reason() -> None:
    """S3-31, S3-49, S1-24: nobody holds it, there is no lease."""
    kitchen = Kitchen()
    task = kitchen.claimed("reminder")
    schedules = [{"event": "nudge", "payload": {"level": 1}, "after": "1h"}]

    token = kitchen.report(task, "waiting", context={"label": "w"}, schedules=schedules)

    assert (task.current_state, task.reason) == (TaskState.PARKED, "awaiting_event:reminder")
    assert (task.ready_at, task.lease_until, task.attempt) == (None, None, 1)
    assert kitchen.history(token, after=5) == [
        ("context_changed", {"keys": ["label"]}),
        ("timer_set", {"event": "nudge", "due_at": "2026-01-01T01:00:00Z"}),
        ("task_waiting", {"task": task.id}),
    ]


def test_a_waiting_task_refuses_its_own_supervisor() -> None:
    """S3-32."""
    kitchen = Kitchen()
    task = kitchen.waiting("reminder")

    code = refusal(kitchen.report, task, event="nudge", payload={"level": 1}, supervisor="s", attempt=1)

    assert code is Code.TASK_NOT_HELD


def test_an_outside_report_ends_a_waiting_task() -> None:
    """S3-50: the timer that it had goes without a word."""
    kitchen = Kitchen()
    task = kitchen.claimed("reminder")
    kitchen.report(task, "waiting", schedules=[{"event": "nudge", "payload": {"level": 1}, "after": "1h"}])

    token = kitchen.report(task, event="nudge", payload={"level": 2})

    assert (task.current_state, token.status) == (TaskState.COMPLETED, TokenStatus.COMPLETED)
    assert kitchen.kinds(token, after=7) == ["event_accepted", "task_done", "completed"]
    assert not kitchen.book.timers_of(token)


def test_an_outside_report_may_name_the_attempt_that_waits() -> None:
    kitchen = Kitchen()
    task = kitchen.waiting("plain")

    token = kitchen.report(task, event="noted", attempt=1)

    assert token.status is TokenStatus.COMPLETED


def test_an_outside_report_is_taken_while_a_supervisor_works() -> None:
    """S3-59, S3-60."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    token = kitchen.report(task, event="noted", supervisor=None, attempt=None, context={"label": "by nobody"})

    assert (task.current_state, token.status) == (TaskState.COMPLETED, TokenStatus.COMPLETED)
    assert refusal(kitchen.report, task, event="noted", supervisor="s", attempt=1) is Code.TASK_NOT_HELD


@pytest.mark.parametrize("kind", ["waiting", "released"])
def test_nobody_outside_says_that_a_task_waits_or_is_given_back(kind: str) -> None:
    """S3-32."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    assert refusal(kitchen.report, task, kind, supervisor=None, reason="drain") is Code.TASK_NOT_HELD


@pytest.mark.parametrize("kind", ["event", "failed", "waiting", "released"])
@pytest.mark.parametrize("state", sorted(FINAL_TASK_STATES | {TaskState.PENDING}))
def test_no_report_is_taken_for_a_task_that_nobody_holds(state: TaskState, kind: str) -> None:
    """S1-10, S3-58: from the supervisor and from outside, for every final state and a queued task."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    task.current_state = state
    before = everything(kitchen.book)
    parts = {"event": "noted", "error": "x", "reason": "drain"}

    codes = {refusal(kitchen.report, task, kind, **parts, supervisor=who, attempt=1) for who in ("s", None)}

    assert codes == {Code.TASK_NOT_HELD}
    assert unchanged(kitchen.book, before)


def test_a_report_without_an_attempt_is_of_the_one_that_runs() -> None:
    kitchen = Kitchen()
    task = second_attempt(kitchen)

    kitchen.report(task, event="noted", attempt=None)

    assert task.report_attempt == 2


@pytest.mark.parametrize(("instance", "is_taken"), [("i1", True), (None, True), ("i2", False)])
def test_an_instance_is_judged_when_it_is_told(instance: str | None, is_taken: bool) -> None:
    kitchen = Kitchen()
    task = kitchen.claim(kitchen.started("plain"), instance="i1")

    if is_taken:
        assert kitchen.report(task, event="noted", instance=instance).status is TokenStatus.COMPLETED
    else:
        assert refusal(kitchen.report, task, event="noted", instance=instance) is Code.TASK_NOT_HELD


@pytest.mark.parametrize(
    "schedule",
    [
        {"event": "nonsense", "after": "1m"},
        {"event": "timeout", "after": "1m"},
        {"event": "error", "after": "1m"},
        {"event": "nudge", "after": "1m"},
        {"event": "noted", "after": "1m", "payload": {"a": 1}},
    ],
)
def test_a_timer_that_no_event_could_answer_is_refused(schedule: dict[str, Any]) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    assert refusal(kitchen.report, task, "waiting", schedules=[schedule]) is Code.INVALID_PAYLOAD


@pytest.mark.parametrize("after", ["1 minute", "0s", "4000d", ""])
def test_a_timer_without_a_duration_is_refused(after: str) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    assert (
        refusal(kitchen.report, task, "waiting", schedules=[{"event": "noted", "after": after}])
        is Code.INVALID_BODY
    )


def test_an_event_outcome_without_an_event_is_refused() -> None:
    kitchen = Kitchen()

    assert refusal(kitchen.report, kitchen.claimed("plain"), "event") is Code.INVALID_BODY


def test_two_guards_that_hold_at_once_fail_the_token() -> None:
    """B.3: no compiled file can do this; one that was written by hand can."""
    transitions = [
        {"from": "__start__", "to": "s"},
        {"from": "s", "on": "go", "to": "__end__", "when": "payload.n > 1"},
        {"from": "s", "on": "go", "to": "s", "when": "payload.n > 2"},
    ]
    schemas = {"N": {"type": "object"}}
    kitchen = Kitchen(
        graph_of({"s": {"emits": ["go"]}}, {"go": {"payload": "N"}}, transitions, schemas=schemas)
    )
    task = kitchen.claim(kitchen.task_of(kitchen.start()))

    token = kitchen.report(task, event="go", payload={"n": 3})

    assert (token.status, task.current_state) == (TokenStatus.FAILED, TaskState.CANCELLED)
    assert kitchen.kinds(token, after=5) == ["task_cancelled", "failed"]


def test_a_long_name_of_an_event_does_not_fill_the_history() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    refusal(kitchen.report, task, event="x" * 100_000)

    data = kitchen.book.entries[-1].data
    assert len(data["event"]) == 200
    assert len(data["reason"]) == 1000
