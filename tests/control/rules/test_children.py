"""Parallel states: children start together, their ends join once, and what cannot start is refused beforehand (B.6)."""

from __future__ import annotations

from control.rules.families import at_work, child, done, ended, family, nested
from control.rules.kitchen import LEASE_S, Kitchen, everything, graph_of, refusal, unchanged
from stateous_contract.codes import Code
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Task
from stateous_control.rules.children import names_ahead, names_at_start

END_ON_E = {"from": "x", "to": "__end__", "on": "e"}


def test_entering_a_parallel_state_starts_its_children_and_no_task() -> None:
    kitchen, token = at_work(label="x", scores=[1])

    assert kitchen.book.live_tasks(token) == []
    assert kitchen.history(token)[2:] == [
        ("entered", {"state": "proofs", "visit": 1}),
        ("branch_started", {"workflow": "spelling", "token": "a.proofs.1.spelling"}),
        ("branch_started", {"workflow": "layout", "token": "a.proofs.1.layout"}),
    ]
    spelling = child(kitchen, token, "spelling")
    assert (spelling.parent, spelling.state, spelling.visit) == ("a", "check", 1)
    handed = {"label": "x", "seen": "", "scores": [1]}
    assert kitchen.history(spelling) == [
        ("started", {"context": handed, "parent": "a"}),
        ("event_accepted", {"event": "__started__", "payload": None, "state": "__start__"}),
        ("entered", {"state": "check", "visit": 1}),
        ("task_queued", {"task": kitchen.task_of(spelling).id, "state": "check"}),
    ]
    assert kitchen.task_of(spelling).state == "spelling/check"


def test_inputs_that_the_parent_lacks_are_not_handed_on() -> None:
    kitchen = Kitchen(graph=family(inputs=["x", "y"]))
    token = kitchen.start(x=1)

    assert kitchen.history(child(kitchen, token, "c"))[0][1]["context"] == {"x": 1}


def test_the_timeout_of_a_parallel_state_is_set_before_its_children_start() -> None:
    kitchen, token = at_work("sprint")

    assert kitchen.kinds(token)[2:] == ["entered", "timer_set", "branch_started", "branch_started"]


def test_the_end_of_one_of_two_does_not_join() -> None:
    kitchen, token = at_work()

    done(kitchen, child(kitchen, token, "layout"))

    assert (token.state, token.events.get("joined")) == ("proofs", None)


def test_the_last_child_to_end_joins_with_all_branches_in_the_order_of_the_state() -> None:
    kitchen, token = at_work()
    before = len(kitchen.entries(token))
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")

    done(kitchen, layout)
    done(kitchen, spelling, payload={"ok": False, "why": "w"})
    done(kitchen, spelling, "noted", None)

    branches = [
        {
            "workflow": "spelling",
            "token": spelling.name,
            "status": "completed",
            "final": "reject",
            "payload": {"ok": False, "why": "w"},
        },
        {
            "workflow": "layout",
            "token": layout.name,
            "status": "completed",
            "final": "check",
            "payload": None,
        },
    ]
    assert kitchen.history(token, after=before)[:2] == [
        ("event_accepted", {"event": "joined", "payload": {"branches": branches}, "state": "proofs"}),
        ("entered", {"state": "repair", "visit": 1}),
    ]
    assert token.entered_by == "joined"


def test_guards_of_joined_read_the_branches() -> None:
    kitchen, token = at_work()

    ended(kitchen, token)

    assert token.state == "printing"


def test_a_child_that_fails_counts_as_ended() -> None:
    kitchen, token = at_work()
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")
    done(kitchen, spelling)
    done(kitchen, spelling, "noted", None)

    kitchen.report(kitchen.claim(kitchen.task_of(layout)), "failed", error="x", supervisor="s", attempt=1)

    assert (layout.status, token.state) == (TokenStatus.FAILED, "repair")


def test_any_joins_with_the_first_alone_and_cancels_the_others() -> None:
    kitchen, token = at_work("sprint")
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")
    task = kitchen.claim(kitchen.task_of(spelling))

    done(kitchen, layout)

    (joined,) = [entry for entry in kitchen.history(token) if entry[1].get("event") == "joined"]
    assert [each["workflow"] for each in joined[1]["payload"]["branches"]] == ["layout"]
    assert (spelling.status, task.current_state) == (TokenStatus.CANCELLED, TaskState.CANCELLED)
    assert kitchen.history(spelling)[-2:] == [
        ("task_cancelled", {"task": task.id}),
        ("cancelled", {"reason": "its parent left 'sprint' on 'joined'"}),
    ]
    assert refusal(kitchen.report, task, "failed", supervisor="s", attempt=1) is Code.TASK_NOT_HELD


def test_a_timeout_of_the_parent_cancels_its_children() -> None:
    kitchen, token = at_work("sprint")
    spelling = child(kitchen, token, "spelling")

    kitchen.pass_time(3)
    kitchen.fire_due()

    assert (token.state, spelling.status) == ("late", TokenStatus.CANCELLED)
    assert kitchen.history(spelling)[-1] == ("cancelled", {"reason": "its parent left 'sprint' on 'timeout'"})


def test_an_event_from_outside_takes_the_parent_away_from_its_children() -> None:
    kitchen, token = at_work()
    layout = child(kitchen, token, "layout")

    kitchen.fire(token, "flagged", {"level": 1})

    assert (token.state, layout.status) == ("late", TokenStatus.CANCELLED)
    assert kitchen.book.children(token) == []


def test_a_second_visit_starts_children_of_its_own() -> None:
    kitchen, token = at_work()
    first = child(kitchen, token, "layout")
    done(kitchen, first)

    kitchen.fire(token, "again", None)
    ended(kitchen, token)

    assert first.status is TokenStatus.COMPLETED
    assert token.state == "printing"
    assert {each.name for each in kitchen.book.tokens.values()} >= {
        "a.proofs.1.layout",
        "a.proofs.2.layout",
    }


def test_a_parent_that_fails_takes_its_children_with_it() -> None:
    kitchen = Kitchen(graph=family(timeout="1s"))
    token = kitchen.start()
    only = child(kitchen, token, "c")

    kitchen.pass_time(2)
    kitchen.fire_due()

    assert (token.status, only.status) == (TokenStatus.FAILED, TokenStatus.CANCELLED)
    assert kitchen.history(only)[-1] == ("cancelled", {"reason": "its parent failed"})


def test_a_joined_that_leads_nowhere_fails_the_parent() -> None:
    kitchen = Kitchen(graph=family(joined="branches.any(status == 'failed')"))
    token = kitchen.start()

    done(kitchen, child(kitchen, token, "c"), "went", None)

    assert token.status is TokenStatus.FAILED
    assert "joined" in kitchen.history(token)[-1][1]["reason"]


def test_an_ended_lease_of_a_child_is_a_failed_attempt_of_the_child() -> None:
    kitchen, token = at_work()
    spelling, layout = child(kitchen, token, "spelling"), child(kitchen, token, "layout")
    done(kitchen, layout)
    for _ in range(2):
        task = kitchen.claim_again(kitchen.task_of(spelling))
        kitchen.pass_time(LEASE_S + 1)
        kitchen.end_lease(task)

    assert (spelling.status, token.state) == (TokenStatus.FAILED, "repair")


def test_a_name_that_is_taken_keeps_the_parent_out() -> None:
    kitchen = Kitchen()
    kitchen.start("A.proofs.1.LAYOUT", path="plain")
    before = everything(kitchen.book)

    code = refusal(kitchen.start, "a", path="proofs")

    assert code is Code.INVALID_CONTEXT
    assert unchanged(kitchen.book, before)


def test_a_child_that_cannot_start_refuses_the_event_that_leads_to_it() -> None:
    kitchen = Kitchen(graph=family(first="idle", inputs=["x"], needs="x"))
    token = kitchen.start()
    task = kitchen.claim(kitchen.task_of(token))
    before = everything(kitchen.book)

    code = refusal(kitchen.fire, token, "went", None)
    reported = refusal(kitchen.report, task, "event", event="went", supervisor="s", attempt=1)

    assert (code, reported) == (Code.EVENT_NOT_ALLOWED, Code.EVENT_NOT_ALLOWED)
    assert unchanged(kitchen.book, before)
    kitchen.report(task, "event", event="went", context={"x": 1}, supervisor="s", attempt=1)
    assert token.state == "both"


def test_an_id_that_leaves_no_room_for_its_children_is_refused_beforehand() -> None:
    kitchen = Kitchen()

    assert refusal(kitchen.start, "a" * 111, path="proofs") is Code.INVALID_CONTEXT
    assert kitchen.start("a" * 110, path="proofs").state == "proofs"


def test_children_may_have_children_and_ends_join_upwards() -> None:
    kitchen = Kitchen(graph=nested())
    token = kitchen.start()
    outer = child(kitchen, token, "outer")
    inner = child(kitchen, outer, "inner")

    assert inner.name == "a.both.1.outer.deep.1.inner"
    assert kitchen.task_of(inner).state == "inner/work"
    assert (inner.root_id, outer.root_id) == (token.id, token.id)
    done(kitchen, inner, "went", None)

    assert [each.status for each in (inner, outer, token)] == [TokenStatus.COMPLETED] * 3


def test_names_ahead_are_those_that_the_next_step_may_need() -> None:
    kitchen = Kitchen(graph=family(first="idle"))
    kitchen.start("T")

    assert names_ahead(kitchen.book) == {("default", "t.both.1.c")}
    assert names_at_start(nested(), "T") == {"t.both.1.outer", "t.both.1.outer.deep.1.inner"}


def test_a_graph_without_parallel_states_needs_no_names() -> None:
    kitchen = Kitchen(graph=graph_of({"x": {}}, {"e": {}}, [{"from": "__start__", "to": "x"}, END_ON_E]))
    kitchen.start("T")

    assert names_ahead(kitchen.book) == set()


def test_memory_of_a_child_is_told_with_the_name_of_its_state() -> None:
    kitchen, token = at_work()
    task: Task = kitchen.claim(kitchen.task_of(child(kitchen, token, "layout")))

    kitchen.remember(task, "k", 1, attempt=1)

    assert kitchen.history(child(kitchen, token, "layout"))[-1] == (
        "memory_set",
        {"state": "check", "memory_key": "k"},
    )
