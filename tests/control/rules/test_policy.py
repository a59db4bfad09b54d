"""The policy of retries that a task keeps: waits, and errors after which nothing is tried again."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest
from control.rules.kitchen import Kitchen, graph_of
from stateous_contract.states import TaskState

from stateous_control.graph.document import WorkflowInvalid
from stateous_control.rules.book import Task
from stateous_control.rules.policy import OWN, Policy, read_policy, write_policy


def kitchen_with(**state: Any) -> Kitchen:
    graph = graph_of(
        {"a": {"emits": ["done"], "retries": 9, **state}},
        {"done": {}},
        [{"from": "__start__", "to": "a"}, {"from": "a", "to": "__end__", "on": "done"}],
    )
    return Kitchen(graph=graph)


def failed(kitchen: Kitchen, error: str = "ValueError: no", task: Task | None = None) -> Task:
    task = kitchen.claim(kitchen.task_of(kitchen.start())) if task is None else kitchen.claim_again(task)
    kitchen.report(task, "failed", error=error)
    return task


def waited_s(kitchen: Kitchen, task: Task) -> float:
    assert task.ready_at is not None
    return (task.ready_at - kitchen.book.now).total_seconds()


def test_waits_double_up_to_the_longest_and_are_drawn_from_nothing_on() -> None:
    policy = Policy(backoff_s=10.0, max_backoff_s=60.0)
    assert [policy.delay_s(n, 1.0) for n in range(5)] == [10, 20, 40, 60, 60]
    assert [policy.delay_s(n, 0.25) for n in (0, 9)] == [2.5, 15]
    assert policy.delay_s(10**9, 0.0) == 0.0


@pytest.mark.parametrize(("backoff_s", "most"), [(1.0, 3600.0), (7200.0, 7200.0), (0.0, 0.0)])
def test_without_a_longest_wait_it_is_an_hour_or_the_first(backoff_s: float, most: float) -> None:
    assert Policy(backoff_s=backoff_s).delay_s(100, 1.0) == most


def test_a_state_says_how_its_tasks_are_tried_again() -> None:
    kitchen = kitchen_with(backoff="10s", max_backoff="15s")
    kitchen.book.chance = repeat(0.5)
    task = failed(kitchen)
    assert waited_s(kitchen, task) == 5.0
    failed(kitchen, task=task)
    assert waited_s(kitchen, task) == 7.5


def test_a_state_that_says_nothing_has_the_control_planes_waits() -> None:
    kitchen = kitchen_with()
    assert waited_s(kitchen, failed(kitchen)) == kitchen.retry_delay_s[0]


@pytest.mark.parametrize(
    ("error", "is_over"),
    [("ValueError: no", True), ("ValueError", True), ("KeyError: 'ValueError'", False), ("", False)],
)
def test_a_named_error_is_not_tried_again(error: str, is_over: bool) -> None:
    kitchen = kitchen_with(not_retryable=["ValueError"])
    task = failed(kitchen, error)
    assert (task.current_state is TaskState.FAILED) == is_over
    if is_over:
        assert task.reason == "failed:not_retryable"


def test_a_policy_is_the_same_after_its_row() -> None:
    policy = Policy(backoff_s=0.5, not_retryable=("A", "b.C"))
    assert read_policy(write_policy(policy)) == policy
    assert write_policy(OWN) is None
    assert read_policy(None) == OWN


@pytest.mark.parametrize(
    "state", [{"backoff": 5}, {"max_backoff": "5"}, {"not_retryable": "ValueError"}, {"version": 0}]
)
def test_what_is_no_policy_is_a_fault_of_the_file(state: dict[str, Any]) -> None:
    with pytest.raises(WorkflowInvalid, match="states.a." + next(iter(state))):
        kitchen_with(**state)
