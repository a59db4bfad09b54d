"""A family is paused, resumed and cancelled as one (B.5, B.6)."""

from __future__ import annotations

from control.rules.families import VERDICT, at_work, child, nested
from control.rules.kitchen import Kitchen, everything, refusal, unchanged
from stateous_contract.codes import Code
from stateous_contract.states import TokenStatus


def test_cancelling_the_parent_cancels_its_children() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")

    kitchen.cancel(token)

    assert layout.status is TokenStatus.CANCELLED
    assert kitchen.history(layout)[-1] == ("cancelled", {"reason": "its parent was cancelled"})


def test_a_child_is_steered_with_its_parent_only() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")
    before = everything(kitchen.book)

    codes = [refusal(step, layout) for step in (kitchen.pause, kitchen.resume, kitchen.cancel)]

    assert codes == [Code.CHILD_TOKEN] * 3
    assert unchanged(kitchen.book, before)


def test_an_event_can_be_fired_on_a_child() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")

    kitchen.fire(layout, "verdict", VERDICT)

    assert (layout.status, token.state) == (TokenStatus.COMPLETED, "proofs")


def test_a_pause_holds_the_whole_family_and_a_resume_lets_all_of_it_go() -> None:
    kitchen, token = at_work()
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")

    kitchen.pause(token)
    held = [kitchen.task_of(each).ready_at for each in (spelling, layout)]
    kitchen.resume(token)

    assert held == [None, None]
    assert [kitchen.kinds(each)[-2:] for each in (token, spelling, layout)] == [["paused", "resumed"]] * 3
    assert kitchen.task_of(layout).ready_at is not None


def test_events_of_a_paused_family_are_numbered_together_and_take_their_turn() -> None:
    kitchen, token = at_work()
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")
    task = kitchen.claim(kitchen.task_of(layout))
    kitchen.pause(token)

    kitchen.fire(spelling, "verdict", {"ok": False})
    kitchen.report(task, "event", event="verdict", payload=VERDICT, supervisor="s", attempt=1)
    kitchen.fire(token, "flagged", {"level": 1})
    arrivals = [held.arrival for held in sorted(kitchen.book.held, key=lambda held: held.arrival)]
    kitchen.resume(token)

    assert arrivals == [1, 2, 3]
    assert layout.status is TokenStatus.COMPLETED
    assert (token.state, spelling.status) == ("late", TokenStatus.CANCELLED)


def test_an_event_held_for_a_child_is_dropped_when_an_earlier_one_took_the_parent_away() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")
    kitchen.pause(token)

    kitchen.fire(token, "flagged", {"level": 1})
    kitchen.fire(layout, "verdict", VERDICT)
    kitchen.resume(token)

    assert layout.status is TokenStatus.CANCELLED
    assert kitchen.kinds(layout)[-3:] == ["event_dropped", "task_cancelled", "cancelled"]


def test_a_paused_family_is_cancelled_with_what_was_held() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")
    kitchen.pause(token)
    kitchen.fire(layout, "verdict", VERDICT)

    kitchen.cancel(token)

    assert layout.status is TokenStatus.CANCELLED
    assert kitchen.kinds(layout)[-3:] == ["event_dropped", "task_cancelled", "cancelled"]


def test_a_resume_gives_the_childrens_timers_the_pause_back() -> None:
    kitchen, token = at_work("sprint")
    (timer,) = kitchen.book.timers_of(token)
    due_at = timer.due_at
    kitchen.pause(token)
    kitchen.pass_time(10)

    kitchen.resume(token)

    assert (timer.due_at - due_at).total_seconds() == 10


def test_a_family_is_cancelled_to_its_last_generation() -> None:
    kitchen = Kitchen(graph=nested())
    token = kitchen.start()
    outer = child(kitchen, token, "outer")
    inner = child(kitchen, outer, "inner")

    kitchen.cancel(token)

    assert [each.status for each in (inner, outer, token)] == [TokenStatus.CANCELLED] * 3
