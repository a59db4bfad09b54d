"""Notes and memory."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, raw, refusal, unchanged
from msgspec import Raw
from stateous_contract.codes import Code
from stateous_contract.states import FINAL_TASK_STATES, TaskState

from stateous_control.rules import notes
from stateous_control.rules.lines import MemoryWrite

WRITES = [("note", ["hm"]), ("remember", ["k", 1])]


def write(kitchen: Kitchen, what: str, task: Any, args: list[Any], **parts: Any) -> Any:
    return getattr(kitchen, what)(task, *args, **parts)


def test_a_note_is_a_line_of_history() -> None:
    """S3-77."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    kitchen.note(task, "half way", attempt=1)

    assert kitchen.history(kitchen.token_of(task), after=5) == [
        ("note", {"task": task.id, "text": "half way"})
    ]


def test_memory_is_kept_by_state_and_key_and_its_value_is_not_told() -> None:
    """S3-77."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    kitchen.remember(task, "k", {"secret": 1}, attempt=1)

    assert kitchen.book.memory == [MemoryWrite(task.token_id, "plain", "k", raw({"secret": 1}))]
    assert kitchen.history(kitchen.token_of(task), after=5) == [
        ("memory_set", {"state": "plain", "memory_key": "k"})
    ]


@pytest.mark.parametrize("value", [None, Raw(b"null")])
def test_a_null_deletes_a_key_that_is_there(value: Raw | None) -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    kitchen.book.memory_present.add((task.token_id, "plain", "k"))

    notes.remember(kitchen.book, task, "k", value, attempt=1)

    assert kitchen.book.memory == [MemoryWrite(task.token_id, "plain", "k", None)]
    assert kitchen.kinds(kitchen.token_of(task), after=5) == ["memory_deleted"]


def test_deleting_what_is_not_there_leaves_no_trace() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    kitchen.remember(task, "k", None)

    assert not kitchen.book.memory
    assert len(kitchen.book.entries) == 5


def test_a_key_set_and_deleted_in_one_book_is_gone() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")

    for value in (1, None, None):
        kitchen.remember(task, "k", value)

    assert kitchen.kinds(kitchen.token_of(task), after=5) == ["memory_set", "memory_deleted"]


@pytest.mark.parametrize(("what", "args"), WRITES)
@pytest.mark.parametrize(("attempt", "code"), [(1, Code.ATTEMPT_OVER), (3, Code.TASK_NOT_HELD)])
def test_another_attempt_is_refused(what: str, args: list[Any], attempt: int, code: Code) -> None:
    """S3-44: of the past, or not begun."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    kitchen.report(task, "failed", error="x")
    kitchen.claim_again(task)

    assert refusal(write, kitchen, what, task, args, attempt=attempt) is code


@pytest.mark.parametrize(("what", "args"), WRITES)
@pytest.mark.parametrize("state", sorted(FINAL_TASK_STATES | {TaskState.PENDING}))
def test_a_task_that_nobody_works_on_is_refused(what: str, args: list[Any], state: TaskState) -> None:
    """S1-10."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    task.current_state = state
    before = everything(kitchen.book)

    assert refusal(write, kitchen, what, task, args) is Code.TASK_NOT_HELD
    assert unchanged(kitchen.book, before)


@pytest.mark.parametrize(("what", "args"), WRITES)
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_waiting_task_may_be_written_about(what: str, args: list[Any], is_paused: bool) -> None:
    kitchen = Kitchen()
    task = kitchen.waiting("plain")
    if is_paused:
        kitchen.pause(kitchen.token_of(task))
    count = len(kitchen.book.entries)

    write(kitchen, what, task, args)

    assert len(kitchen.book.entries) == count + 1


@pytest.mark.parametrize(("what", "args"), WRITES)
@pytest.mark.parametrize("who", [{"supervisor": "t"}, {"supervisor": "s", "instance": "i2"}])
def test_a_supervisor_that_names_itself_must_hold_the_task(
    what: str, args: list[Any], who: dict[str, str]
) -> None:
    kitchen = Kitchen()
    task = kitchen.claim(kitchen.started("plain"), "s", "i1")

    assert refusal(write, kitchen, what, task, args, attempt=1, **who) is Code.TASK_NOT_HELD


@pytest.mark.parametrize(("what", "args"), WRITES)
def test_what_comes_again_after_the_outcome_is_answered_and_changes_nothing(
    what: str, args: list[Any]
) -> None:
    """A whole bundle is sent again when its answer was lost."""
    kitchen = Kitchen()
    task = kitchen.claim(kitchen.started("plain"), "s", "i1")
    kitchen.report(task, event="flagged", payload={"level": 1}, instance="i1")
    before, count = everything(kitchen.book), len(kitchen.book.entries)

    write(kitchen, what, task, args, attempt=1, supervisor="s", instance="i1")

    assert unchanged(kitchen.book, before)
    assert len(kitchen.book.entries) == count
