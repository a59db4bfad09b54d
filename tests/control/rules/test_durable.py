"""Checkpoints, and what an ended task takes, as rules on one book."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import everything, refusal
from control.rules.supervised import (
    CALLS,
    ENDS,
    answer,
    ask,
    desk,
    held,
    kinds,
    park,
    pause,
    resume,
    store,
)
from stateous_contract.codes import Code
from stateous_contract.states import Move, TaskState

from stateous_control.rules import expiry
from stateous_control.rules.moves import LOGGED, change


@pytest.mark.parametrize("value", [None, False, 0, "", {"ü": [1, {"n": 2**80}]}, 1970670598291982290])
def test_a_step_keeps_what_it_was_given(value: Any) -> None:
    """S2-05, S2-07."""
    kitchen = desk()
    assert store(kitchen, held(kitchen), value) == value


def test_the_first_value_stands() -> None:
    """S2-06, S2-19, S2-30: also for the same name twice in one run."""
    kitchen = desk()
    task = held(kitchen)
    store(kitchen, task, "first")
    before = everything(kitchen.book)
    assert store(kitchen, task, "second") == "first"
    assert everything(kitchen.book) == before


def test_steps_are_told_apart_by_name_and_occurrence() -> None:
    """S2-16, S2-17, S2-18, S2-20: by name and occurrence, never by position."""
    kitchen = desk()
    task = held(kitchen)
    for number, (step, occurrence) in enumerate([("a", 1), ("a", 2), ("b", 1)]):
        assert store(kitchen, task, number, step=step, occurrence=occurrence) == number
    assert kinds(task)[-3:] == ["checkpoint_written"] * 3


def test_a_checkpoint_does_not_make_human_values_stale() -> None:
    """S1-102."""
    kitchen = desk()
    task = held(kitchen)
    generation = task.generation
    store(kitchen, task)
    assert task.generation == generation


def test_a_lost_holder_writes_no_checkpoint() -> None:
    """S2-58."""
    kitchen = desk()
    task = held(kitchen, "sturdy")
    kitchen.pass_time(121)
    assert kitchen.end_lease(task)
    assert refusal(store, kitchen, task) is Code.TASK_NOT_HELD
    kitchen.claim_again(task)
    assert refusal(store, kitchen, task, attempt=1) is Code.ATTEMPT_OVER


def test_a_cancelled_worker_is_told_so_at_its_next_durable_call() -> None:
    """S2-46, S2-49."""
    kitchen = desk()
    task = held(kitchen)
    kitchen.cancel(kitchen.token_of(task))
    for call in (store, ask, park):
        assert refusal(call, kitchen, task) is Code.TASK_CANCELLED


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("call", CALLS)
def test_an_ended_task_takes_nothing(end: str, call: str) -> None:
    """S1-10, S1-92."""
    kitchen = desk()
    task = held(kitchen)
    ENDS[end](kitchen, task)
    assert task.current_state.value == end
    before = everything(kitchen.book)
    code = refusal(CALLS[call], kitchen, task)
    assert code in (Code.TASK_OVER, Code.TASK_CANCELLED)
    assert everything(kitchen.book) == before


@pytest.mark.parametrize("end", ENDS)
def test_an_ended_task_neither_expires_nor_is_handed_out(end: str) -> None:
    """S1-10."""
    kitchen = desk()
    task = held(kitchen)
    ENDS[end](kitchen, task)
    task.expires_at = kitchen.book.now
    kitchen.pass_time(1)
    assert not expiry.expire(kitchen.book, task)
    assert (task.ready_at, task.held_ready_at) == (None, None)


def test_every_change_of_state_leaves_one_line_and_raises_the_generation() -> None:
    """S1-33, S1-34, S1-106, S1-108."""
    kitchen = desk()
    task = held(kitchen)
    for step in (
        lambda: ask(kitchen, task),
        lambda: answer(kitchen, task.question),  # type: ignore[arg-type]
        lambda: kitchen.claim_again(task),
        lambda: pause(kitchen, task),
        lambda: park(kitchen, task),
        lambda: resume(kitchen, task),
        lambda: kitchen.claim_again(task),
        lambda: kitchen.report(task, event="noted", instance="i"),
    ):
        generation, lines = task.generation, len(task.entries)
        if task.current_state is TaskState.RUNNING:
            task.instance = "i"
        step()
        assert task.generation == generation + 1
        assert len(task.entries) == lines + 1
    assert [entry.seq for entry in task.entries] == list(range(1, len(task.entries) + 1))


def test_there_is_no_move_without_a_word_for_the_log() -> None:
    """S1-108."""
    assert set(LOGGED) == set(Move)


def test_no_path_parks_without_a_reason() -> None:
    """S1-24, S1-27: whoever tried would fail in every test."""
    task = held(desk())
    with pytest.raises(AssertionError, match="without a reason"):
        change(task, Move.ASK)
