"""Timers that come due."""

from __future__ import annotations

from control.rules.kitchen import Kitchen, everything, graph_of, unchanged
from stateous_contract.states import TaskState, TokenStatus


def test_a_timeout_moves_the_token_though_its_task_is_queued() -> None:
    """S3-53, S3-61."""
    kitchen = Kitchen()
    task = kitchen.started("patient")
    token = kitchen.token_of(task)
    kitchen.pass_time(1)

    assert kitchen.fire_due() == 1

    assert (task.current_state, task.reason) == (TaskState.CANCELLED, "cancelled:token_left:timeout")
    assert kitchen.history(token, after=5) == [
        ("timer_fired", {"event": "timeout"}),
        ("event_accepted", {"event": "timeout", "payload": None, "state": "patient"}),
        ("task_cancelled", {"task": task.id}),
        ("entered", {"state": "late", "visit": 1}),
        ("task_queued", {"task": kitchen.task_of(token).id, "state": "late"}),
    ]


def test_a_timeout_cancels_a_task_that_somebody_works_on() -> None:
    """S3-54, S3-55, S3-61: no state emits it."""
    kitchen = Kitchen()
    tasks = [kitchen.claimed("patient"), kitchen.waiting("patient")]
    kitchen.pass_time(1)

    kitchen.fire_due()

    assert {task.current_state for task in tasks} == {TaskState.CANCELLED}


def test_a_timeout_that_leads_nowhere_fails_the_token() -> None:
    kitchen = Kitchen()
    task = kitchen.started("deadline")
    token = kitchen.token_of(task)
    kitchen.pass_time(1)

    kitchen.fire_due()

    assert token.status is TokenStatus.FAILED
    assert kitchen.kinds(token, after=5) == ["timer_fired", "task_cancelled", "failed"]


def test_a_routines_timer_that_leads_nowhere_leaves_a_line() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("reminder")
    schedules = [
        {"event": "answered", "after": "1s"},
        {"event": "nudge", "payload": {"level": 7}, "after": "2s"},
    ]
    token = kitchen.report(task, "waiting", schedules=schedules)

    for _ in range(2):
        kitchen.pass_time(1)
        kitchen.fire_due()

    assert task.current_state is TaskState.COMPLETED
    assert kitchen.kinds(token, after=8) == [
        "timer_fired",
        "event_rejected",
        "timer_fired",
        "event_accepted",
        "task_done",
        "completed",
    ]
    assert kitchen.history(token, after=11)[0][1]["payload"] == {"level": 7}


def test_a_timer_that_is_not_due_does_not_fire() -> None:
    kitchen = Kitchen()
    kitchen.started("patient")
    kitchen.pass_time(0.999)

    assert kitchen.fire_due() == 0


def test_a_timer_fires_once() -> None:
    kitchen = Kitchen()
    kitchen.started("deadline")
    kitchen.pass_time(1)

    assert [kitchen.fire_due(), kitchen.fire_due()] == [1, 0]


def test_the_timers_of_a_paused_token_stand_still() -> None:
    """S3-78."""
    kitchen = Kitchen()
    token = kitchen.token_of(kitchen.started("patient"))
    kitchen.pause(token)
    kitchen.pass_time(10)
    before = everything(kitchen.book)

    assert kitchen.fire_due() == 0
    assert unchanged(kitchen.book, before)


def test_a_timer_that_another_one_took_away_does_not_fire() -> None:
    """Two timers due in one pass: the first moves the token, and the state's other timers go with it."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    schedules = [{"event": "noted", "after": "1s"}, {"event": "noted", "after": "2s"}]
    token = kitchen.report(task, "waiting", schedules=schedules)
    kitchen.pass_time(5)

    assert kitchen.fire_due() == 1
    assert token.status is TokenStatus.COMPLETED


def test_a_timer_for_an_event_that_two_guards_take_fails_the_token() -> None:
    transitions = [
        {"from": "__start__", "to": "s"},
        {"from": "s", "on": "go", "to": "__end__", "when": "ctx['n'] > 1"},
        {"from": "s", "on": "go", "to": "s", "when": "ctx['n'] > 2"},
    ]
    kitchen = Kitchen(graph_of({"s": {"emits": ["go"]}}, {"go": {}}, transitions))
    task = kitchen.claim(kitchen.task_of(kitchen.start(n=3)))
    token = kitchen.report(task, "waiting", schedules=[{"event": "go", "after": "1s"}])
    kitchen.pass_time(1)

    kitchen.fire_due()

    assert token.status is TokenStatus.FAILED
