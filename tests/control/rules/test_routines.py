"""Trees of tasks as rules on one book: what the end of one means for the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, unchanged
from control.rules.supervised import desk, held, outcome, wait
from msgspec import Raw
from stateous_contract.messages import Spawn
from stateous_contract.states import TaskState

from stateous_control.rules import routines
from stateous_control.rules.book import Task


def spawn(kitchen: Kitchen, parent: Task, step: str = "part", **more: Any) -> Task:
    said: dict[str, Any] = {"supervisor": "s", "instance": "i", "attempt": parent.attempt}
    said |= {"step": step, "occurrence": 1, "routine": "part", "input": Raw(b"1")}
    child, _ = routines.spawn(kitchen.book, parent, Spawn(**said | more))
    return kitchen.book.tasks[child]


def test_a_child_is_ready_and_its_step_is_passed() -> None:
    """S2-34."""
    kitchen = desk()
    parent = held(kitchen)
    child = spawn(kitchen, parent)
    assert (child.parent_id, child.ready_at, child.state) == (parent.id, kitchen.book.now, "@part#1")
    assert outcome(kitchen, parent, "part") == {"task": child.id}


def test_the_same_step_again_starts_nothing() -> None:
    kitchen = desk()
    parent = held(kitchen)
    child = spawn(kitchen, parent)
    before = everything(kitchen.book)
    assert spawn(kitchen, parent, routine="other") is child
    assert unchanged(kitchen.book, before)


def test_a_child_is_no_part_of_its_tokens_visit() -> None:
    kitchen = desk()
    parent = held(kitchen)
    token = kitchen.token_of(parent)
    child = spawn(kitchen, parent)
    assert kitchen.book.live_tasks(token) == [parent]
    assert kitchen.book.tree(token) == [parent, child]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_descendants_end_with_the_root_at_every_depth(depth: int) -> None:
    """S2-38."""
    kitchen = desk()
    root = parent = held(kitchen)
    for _ in range(depth):
        child = spawn(kitchen, parent)
        parent = kitchen.claim(child, instance="i")
    kitchen.cancel(kitchen.token_of(root))
    routines.settle(kitchen.book)
    assert {task.current_state for task in kitchen.book.tasks.values()} == {TaskState.CANCELLED}
    before = everything(kitchen.book)
    routines.settle(kitchen.book)
    assert unchanged(kitchen.book, before)


def test_a_childs_failure_wakes_its_parent_and_moves_no_token() -> None:
    """S2-33."""
    kitchen = desk()
    parent = held(kitchen)
    child = spawn(kitchen, parent)
    wait(kitchen, parent, "result", child=child.id)
    kitchen.claim(child, instance="i")
    kitchen.report(child, "failed", error="boom", instance="i")
    routines.settle(kitchen.book)
    token = kitchen.token_of(parent)
    assert (token.status.value, token.visit, parent.reason) == (
        "active",
        1,
        f"resuming:awaiting_result:{child.id}",
    )
    told = {"outcome": "result", "task": child.id, "state": "failed", "reason": "failed:exception"}
    assert outcome(kitchen, parent) == told | {"error": "boom"}


def test_a_paused_token_holds_its_children_back() -> None:
    kitchen = desk()
    parent = held(kitchen)
    token = kitchen.token_of(parent)
    early = spawn(kitchen, parent)
    kitchen.pause(token)
    late = spawn(kitchen, parent, "late")
    assert (early.ready_at, late.ready_at) == (None, None)
    kitchen.resume(token)
    assert early.ready_at is not None
    assert late.ready_at is not None
    assert json.loads(bytes(early.new_input or b"0")) == 1
