"""Starting, entering, leaving and ending; and every cell of a task's life."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest
from control.rules.kitchen import PRESS, START_AT, Kitchen, graph_of, load_press, raw, refusal
from msgspec import Raw
from stateous_contract.codes import Code
from stateous_contract.states import TASK_LIFE, Move, TaskState, TokenStatus

from stateous_control.rules import moves
from stateous_control.rules.book import Task

CELLS = list(itertools.product(TaskState, Move))
LEGAL = [cell for cell in CELLS if cell in TASK_LIFE]
ILLEGAL = [cell for cell in CELLS if cell not in TASK_LIFE]


def task_in(state: TaskState) -> Task:
    return Task(1, 1, "s", 1, state, 1, 0, 0, 5, START_AT, held_ready_at=START_AT, lease_until=START_AT)


@pytest.mark.parametrize(("state", "move"), LEGAL)
def test_a_drawn_move_is_made(state: TaskState, move: Move) -> None:
    """S1-11, S3-47 … S3-57: the state is the table's, the generation is one more, nobody may claim, no lease is left."""
    task = task_in(state)

    moves.change(task, move, reason="because")

    assert (task.current_state, task.reason, task.generation) == (TASK_LIFE[state, move], "because", 6)
    assert (task.ready_at, task.held_ready_at, task.lease_until) == (None, None, None)
    assert task.is_changed


@pytest.mark.parametrize(("state", "move"), ILLEGAL)
def test_a_move_that_is_not_drawn_is_a_fault(state: TaskState, move: Move) -> None:
    """S1-11, S3-58."""
    task = task_in(state)

    with pytest.raises(AssertionError, match="leads nowhere"):
        moves.change(task, move, reason="because")

    assert task == task_in(state)


def test_nothing_parks_without_a_reason() -> None:
    """S1-24, S1-27."""
    with pytest.raises(AssertionError, match="without a reason"):
        moves.change(task_in(TaskState.RUNNING), Move.REPORT_WAITING)


def test_starting_a_token_queues_one_task() -> None:
    """S3-01, S3-79."""
    kitchen = Kitchen()

    token = kitchen.start(path="plain")

    task = kitchen.task_of(token)
    assert (task.current_state, task.state, task.visit, task.attempt) == (TaskState.PENDING, "plain", 1, 0)
    assert task.ready_at == kitchen.book.now
    assert kitchen.history(token) == [
        ("started", {"context": {"path": "plain", "scores": [], "label": None}}),
        ("event_accepted", {"event": "__started__", "payload": None, "state": "__start__"}),
        ("entered", {"state": "plain", "visit": 1}),
        ("task_queued", {"task": task.id, "state": "plain"}),
    ]


def test_a_new_token_stands_in_its_first_state() -> None:
    token = Kitchen().start("TICKET-1", path="plain")

    assert (token.name, token.owner, token.state, token.visit) == ("TICKET-1", "default", "plain", 1)
    assert (token.status, token.entered_by, token.entered_payload) == (
        TokenStatus.ACTIVE,
        "__started__",
        None,
    )
    assert token.is_new


def test_defaults_come_first_and_a_given_key_keeps_their_place() -> None:
    token = Kitchen().start(z=1, label="x", path="plain")

    assert list(token.context) == ["path", "scores", "label", "z"]


def test_a_context_keeps_its_numbers_as_they_were_written() -> None:
    book = Kitchen().book

    token = moves.start_token(book, PRESS, name="a", owner="o", context=Raw(b'{"path":"plain","n": 1.50e1}'))

    assert bytes(token.context["n"]) == b"1.50e1"


@pytest.mark.parametrize("context", [b"[1]", b"5", b'"x"', b'{"scores":"x"}', b'{"label":7}'])
def test_a_context_that_does_not_fit_starts_nothing(context: bytes) -> None:
    book = Kitchen().book

    code = refusal(moves.start_token, book, PRESS, name="a", owner="o", context=Raw(context))

    assert code is Code.INVALID_CONTEXT
    assert not book.tokens
    assert not book.entries


@pytest.mark.parametrize("count", [0, 2])
def test_a_start_that_no_guard_or_several_take_is_refused(count: int) -> None:
    start = [{"from": "__start__", "to": "s", "when": "ctx['n'] == 1"}] * 2
    ends = [{"from": "s", "on": "go", "to": "__end__"}]
    kitchen = Kitchen(graph_of({"s": {"emits": ["go"]}}, {"go": {}}, start + ends))

    assert refusal(kitchen.start, n=1 if count else 0) is Code.INVALID_CONTEXT


def test_a_start_straight_to_the_end_is_refused() -> None:
    transitions = [{"from": "__start__", "to": "__end__"}, {"from": "s", "on": "go", "to": "__end__"}]
    kitchen = Kitchen(graph_of({"s": {"emits": ["go"]}}, {"go": {}}, transitions))

    assert refusal(kitchen.start) is Code.INVALID_CONTEXT


def test_a_state_with_a_timeout_sets_its_timer_at_entry() -> None:
    kitchen = Kitchen()

    token = kitchen.start(path="patient")

    (timer,) = kitchen.book.timers_of(token)
    assert (timer.kind, timer.event, timer.payload) == ("timeout", "timeout", None)
    assert (timer.due_at - kitchen.book.now).total_seconds() == 1
    assert kitchen.history(token)[-1] == ("timer_set", {"event": "timeout", "due_at": "2026-01-01T00:00:01Z"})


def test_a_state_entered_again_is_a_new_visit_with_a_new_task() -> None:
    """S3-03."""
    kitchen = Kitchen()
    first = kitchen.claimed("round")
    token = kitchen.token_of(first)

    kitchen.report(first, event="again")

    second = kitchen.task_of(token)
    assert (token.visit, second.visit, second.attempt) == (2, 2, 0)
    assert second.id != first.id


def test_retries_are_copied_to_the_task() -> None:
    """S2-54: a later graph does not change a task under way."""
    assert Kitchen().started("sturdy").retries == 9


def test_the_next_state_knows_the_event_that_brought_the_token() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("draft")

    token = kitchen.report(task, event="drafted", payload={"pages": 3})

    assert (token.state, token.entered_by, token.entered_error) == ("review", "drafted", None)
    assert token.entered_payload == raw({"pages": 3})


def test_an_ended_token_keeps_its_last_state_and_how_it_was_entered() -> None:
    kitchen = Kitchen()
    kitchen.report(kitchen.claimed("draft"), event="drafted", payload={"pages": 3})
    (token,) = kitchen.book.tokens.values()

    kitchen.report(kitchen.claim(kitchen.task_of(token)), event="approved")

    assert (token.status, token.state, token.visit) == (TokenStatus.COMPLETED, "review", 1)
    assert token.entered_by == "drafted"


def test_an_ended_token_drops_memory_and_timers() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="patient")

    kitchen.fire(token, "answered")

    assert kitchen.book.memory_cleared == {token.id}
    assert not kitchen.book.timers_of(token)


def test_events_are_counted_over_the_whole_life() -> None:
    kitchen = Kitchen()
    token = kitchen.start(path="round")

    for _ in range(3):
        kitchen.fire(token, "again")

    assert token.events == {"__started__": 1, "again": 3}
    assert token.state == "late"


def test_the_states_of_another_workflow_are_served_under_its_name() -> None:
    press = load_press()
    kitchen = Kitchen(replace(press, machines={**press.machines, "child": press.main}))
    token = kitchen.start(path="round")
    token.workflow = "child"

    kitchen.fire(token, "again")

    assert kitchen.task_of(token).state == "child/round"


def test_history_numbers_have_no_gaps() -> None:
    """S1-106."""
    kitchen = Kitchen()
    token = kitchen.start(path="round")

    kitchen.fire(token, "again")

    assert [entry.seq for entry in kitchen.entries(token)] == list(range(1, token.seq + 1))


def test_entries_can_be_written_as_json() -> None:
    kitchen = Kitchen()
    kitchen.start(path="plain")

    assert all(msgspec.json.encode(entry.data) for entry in kitchen.book.entries)
