"""Waits as rules on one book: times, signals, the first of several."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal, unchanged
from control.rules.supervised import ENDS, desk, held, kinds, outcome, pause, resume, signal, wait
from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code
from stateous_contract.messages import Park, Wait
from stateous_contract.states import TaskState

from stateous_control.rules import waits
from stateous_control.rules.book import Task


def again(kitchen: Kitchen, task: Task) -> Task:
    return kitchen.claim(task, instance="i")


def test_a_sleep_parks_and_holds_nothing() -> None:
    """S2-24, S2-31: one change, with its line, and the lease is gone."""
    kitchen = desk()
    task = held(kitchen)
    assert wait(kitchen, task, for_s=300, step="cool-off") is None
    assert (task.current_state, task.reason) == (TaskState.PARKED, "sleeping:cool-off#1")
    assert (task.lease_until, task.ready_at, task.failures) == (None, None, 0)
    assert task.wait is not None
    assert task.wait.due_at == kitchen.book.now + timedelta(seconds=300)
    assert task.entries[-1].data["until"] == "2026-01-01T00:05:00Z"


def test_nobody_is_woken_early() -> None:
    """S2-28."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, for_s=300)
    kitchen.pass_time(299.9)
    assert not waits.wake(kitchen.book, task)
    assert task.ready_at is None


def test_a_sleep_that_is_over_readies_the_task_and_is_passed() -> None:
    """S2-09, T10."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, for_s=300)
    kitchen.pass_time(300)
    assert waits.wake(kitchen.book, task)
    assert (task.reason, task.ready_at) == ("resuming:sleeping:here#1", kitchen.book.now)
    assert outcome(kitchen, task) == {"outcome": "slept"}
    assert wait(kitchen, again(kitchen, task), for_s=300) == {"outcome": "slept"}


def test_a_wait_is_ended_once() -> None:
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, for_s=1)
    kitchen.pass_time(1)
    assert waits.wake(kitchen.book, task)
    before = everything(kitchen.book)
    assert not waits.wake(kitchen.book, task)
    assert unchanged(kitchen.book, before)


def test_a_sleep_of_nothing_parks_nothing() -> None:
    kitchen = desk()
    task = held(kitchen)
    assert wait(kitchen, task, for_s=0) == {"outcome": "slept"}
    assert task.current_state is TaskState.RUNNING


def test_a_sleep_until_a_moment_that_is_past_parks_nothing() -> None:
    kitchen = desk()
    task = held(kitchen)
    assert wait(kitchen, task, until=kitchen.book.now - timedelta(days=1)) == {"outcome": "slept"}


def test_nobody_sleeps_for_more_than_ten_years() -> None:
    """BH-045."""
    kitchen = desk()
    task = held(kitchen)
    far = kitchen.book.now + timedelta(seconds=limits.DURATION_S_MAX + 1)
    before = everything(kitchen.book)
    assert refusal(wait, kitchen, task, until=far) is Code.INVALID_ARGUMENT
    assert unchanged(kitchen.book, before)


def test_the_first_deadline_stands_over_attempts() -> None:
    """DX-11, S2-10, S2-26: whatever becomes of attempts, and whatever they say later."""
    kitchen = desk()
    task = held(kitchen, "retried")
    wait(kitchen, task, for_s=60)
    kitchen.pass_time(20)
    kitchen.report(task, "failed", error="from outside")
    kitchen.pass_time(10)
    wait(kitchen, again(kitchen, task), for_s=3600)
    assert task.wait is not None
    assert task.wait.due_at == task.wait.began_at + timedelta(seconds=60)
    kitchen.pass_time(30)
    assert waits.wake(kitchen.book, task)


def test_a_deadline_that_passed_between_attempts_is_over_at_once() -> None:
    """DX-11."""
    kitchen = desk()
    task = held(kitchen, "retried")
    wait(kitchen, task, "signal", name="go", timeout_s=60)
    kitchen.report(task, "failed", error="from outside")
    kitchen.pass_time(61)
    assert not waits.wake(kitchen.book, task)
    assert wait(kitchen, again(kitchen, task), "signal", name="go", timeout_s=60) == {"outcome": "timeout"}


def test_the_same_park_again_answers_the_same() -> None:
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, for_s=60)
    before = everything(kitchen.book)
    assert wait(kitchen, task, for_s=60) is None
    assert unchanged(kitchen.book, before)


def test_waits_spend_no_retry() -> None:
    """S2-29, DX-01: fifty sleeps and fifty signals with no retry to spend."""
    kitchen = desk()
    task = held(kitchen)
    for number in range(50):
        wait(kitchen, task, for_s=1, step=f"s{number}")
        kitchen.pass_time(1)
        assert waits.wake(kitchen.book, task)
        wait(kitchen, again(kitchen, task), "signal", name="go", step=f"g{number}")
        assert signal(kitchen, task, payload=number).taken_by == task.id
        again(kitchen, task)
    assert (task.retries, task.failures, task.attempt) == (0, 0, 101)


def test_a_signal_ends_the_wait_with_its_payload() -> None:
    """S2-32."""
    kitchen = desk()
    task = held(kitchen)
    assert wait(kitchen, task, "signal", name="go") is None
    assert task.reason == "awaiting_signal:go#1"
    assert signal(kitchen, task, payload={"n": [1, None]}).taken_by == task.id
    assert task.reason == "resuming:awaiting_signal:go#1"
    assert outcome(kitchen, task) == {"outcome": "signal", "name": "go", "payload": {"n": [1, None]}}


def test_a_signal_before_the_wait_is_kept_and_taken_once() -> None:
    """DX-09."""
    kitchen = desk()
    task = kitchen.started("plain")
    assert signal(kitchen, task, payload=1).taken_by is None
    kitchen.claim(task, instance="i")
    got = {"outcome": "signal", "name": "go", "payload": 1}
    assert wait(kitchen, task, "signal", "first", name="go") == got
    assert wait(kitchen, task, "signal", "first", name="go") == got
    assert wait(kitchen, task, "signal", "second", name="go") is None


def test_signals_are_taken_in_the_order_they_were_sent() -> None:
    kitchen = desk()
    task = held(kitchen)
    for number in (1, 2):
        signal(kitchen, task, payload=number)
    assert [wait(kitchen, task, "signal", f"s{number}", name="go")["payload"] for number in (1, 2)] == [1, 2]


def test_a_signal_of_another_name_wakes_nobody() -> None:
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, "signal", name="go")
    assert signal(kitchen, task, "stop").taken_by is None
    assert task.ready_at is None


def test_a_token_signal_is_for_whichever_task_waits_first() -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    wait(kitchen, task, "signal", name="go")
    sent = waits.signal_token(kitchen.book, token, "go", Raw(b"7"), key=None, actor="ann")
    assert (sent.taken_by, outcome(kitchen, task)["payload"]) == (task.id, 7)


def test_a_timeout_is_an_outcome_of_its_own() -> None:
    """C10: a wait that the code gave a timeout goes on."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, "signal", name="go", timeout_s=60)
    kitchen.pass_time(60)
    assert waits.wake(kitchen.book, task)
    assert outcome(kitchen, task) == {"outcome": "timeout"}
    assert (task.current_state, task.failures) == (TaskState.PARKED, 0)


def test_a_signal_after_the_deadline_does_not_undo_the_timeout() -> None:
    """The clock decides, not the sweep: the signal is kept for another wait."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, "signal", name="go", timeout_s=60)
    kitchen.pass_time(61)
    assert signal(kitchen, task).taken_by is None
    assert outcome(kitchen, task) == {"outcome": "timeout"}
    assert task.reason == "resuming:awaiting_signal:go#1"


def test_a_signal_before_the_deadline_is_not_lost_to_it() -> None:
    """DX-09, while no attempt waited."""
    kitchen = desk()
    task = held(kitchen, "retried")
    wait(kitchen, task, "signal", name="go", timeout_s=60)
    kitchen.report(task, "failed", error="from outside")
    kitchen.pass_time(30)
    signal(kitchen, task, payload=1)
    kitchen.pass_time(60)
    again(kitchen, task)
    assert wait(kitchen, task, "signal", name="go", timeout_s=60)["outcome"] == "signal"


def test_of_several_the_first_to_happen_ends_the_wait() -> None:
    kitchen = desk()
    task = held(kitchen)
    of = [Wait(kind="sleep", for_s=60), Wait(kind="signal", name="a"), Wait(kind="signal", name="b")]
    assert wait(kitchen, task, "any", of=of, timeout_s=90) is None
    assert task.reason == "awaiting_any:here#1"
    kitchen.pass_time(5)
    signal(kitchen, task, "b")
    assert outcome(kitchen, task) == {"outcome": "signal", "name": "b", "payload": None, "index": 2}


def test_of_several_that_are_there_the_earliest_counts() -> None:
    kitchen = desk()
    task = held(kitchen)
    signal(kitchen, task, "b")
    kitchen.pass_time(1)
    signal(kitchen, task, "a")
    of = [Wait(kind="signal", name="a"), Wait(kind="signal", name="b")]
    assert wait(kitchen, task, "any", of=of)["index"] == 1
    assert wait(kitchen, task, "any", "next", of=of)["index"] == 0


@pytest.mark.parametrize("asked", [{"kind": "sleep", "for_s": 5}, {"kind": "signal", "name": "go"}])
def test_what_wakes_in_a_pause_is_handed_out_after_it(asked: dict[str, Any]) -> None:
    """S1-74; a pause stops no sleep and no wait."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, **asked)
    pause(kitchen, task)
    kitchen.pass_time(5)
    assert waits.wake(kitchen.book, task) if asked["kind"] == "sleep" else signal(kitchen, task).taken_by
    assert (task.reason, task.ready_at) == ("user_paused", None)
    resume(kitchen, task)
    assert task.ready_at == kitchen.book.now


def test_a_paused_token_keeps_its_woken_task_until_the_resume() -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    wait(kitchen, task, for_s=5)
    kitchen.pause(token)
    kitchen.pass_time(5)
    assert waits.wake(kitchen.book, task)
    assert kitchen.book.tasks[task.id].ready_at is None
    kitchen.resume(token)
    assert (task.ready_at, task.reason) == (kitchen.book.now, "resuming:user_paused")


def test_a_person_cannot_resume_a_wait() -> None:
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, "any", of=[Wait(kind="signal", name="a"), Wait(kind="sleep", for_s=9)])
    assert refusal(resume, kitchen, task) is Code.TASK_WAITS


def test_cancelling_a_sleeping_task_takes_effect_at_once() -> None:
    """S2-51."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, for_s=60)
    row = task.wait
    kitchen.cancel(kitchen.token_of(task))
    kitchen.pass_time(60)
    assert row is not None
    assert (task.current_state, row.is_open, waits.wake(kitchen.book, task)) == (
        TaskState.CANCELLED,
        False,
        False,
    )


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_task_that_has_ended_takes_no_wait_and_no_signal(end: str) -> None:
    """S1-10, S2-58."""
    kitchen = desk()
    task = held(kitchen)
    ENDS[end](kitchen, task)
    before = everything(kitchen.book)
    code = Code.TASK_CANCELLED if end == "cancelled" else Code.TASK_OVER
    assert refusal(wait, kitchen, task, for_s=1) is code
    assert refusal(signal, kitchen, task) is Code.TASK_OVER
    assert unchanged(kitchen.book, before)


def test_a_token_that_has_ended_takes_no_signal() -> None:
    kitchen = desk()
    token = kitchen.token_of(held(kitchen))
    kitchen.cancel(token)
    refused = refusal(waits.signal_token, kitchen.book, token, "go", None, key=None, actor="ann")
    assert refused is Code.TOKEN_NOT_ACTIVE


def test_a_late_worker_cannot_park() -> None:
    """S2-58."""
    kitchen = desk()
    task = held(kitchen, "retried")
    kitchen.pass_time(121)
    kitchen.end_lease(task)
    kitchen.claim(task, instance="other")
    task.attempt = 2
    said = Park(
        supervisor="s",
        instance="i",
        attempt=1,
        wait=Wait(kind="sleep", for_s=1),
        step="x",
        occurrence=1,
        locked_decisions=Raw(b"{}"),
    )
    assert refusal(waits.park, kitchen.book, task, said) is Code.ATTEMPT_OVER


def test_a_key_sends_one_signal() -> None:
    kitchen = desk()
    task = held(kitchen)
    first = signal(kitchen, task, payload=1, key="k")
    assert signal(kitchen, task, payload=2, key="k") is first
    assert len(kitchen.book.signals) == 1


@pytest.mark.parametrize("address", ["task", "token"])
def test_so_many_signals_are_kept_and_no_more(address: str) -> None:
    kitchen = desk()
    task = held(kitchen)
    token = kitchen.token_of(task)
    place = (task.id, None) if address == "task" else (None, token.id)
    kitchen.book.signals_kept[place] = limits.SIGNALS_KEPT_MAX
    send = (waits.signal_task, task) if address == "task" else (waits.signal_token, token)
    refused = refusal(send[0], kitchen.book, send[1], "go", None, key=None, actor="ann")
    assert refused is Code.TOO_MANY_SIGNALS


def test_each_step_of_a_wait_leaves_a_line() -> None:
    """S1-108."""
    kitchen = desk()
    task = held(kitchen)
    wait(kitchen, task, "signal", name="go")
    signal(kitchen, task)
    assert kinds(task)[-4:] == ["wait_begun", "signal_sent", "checkpoint_written", "wait_over"]
    assert json.loads(bytes(task.new_decisions or b"{}"))["run"] == "r"
