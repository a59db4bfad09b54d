"""Names of queues: one text for each version of a state and of a routine."""

from __future__ import annotations

import pytest

from stateous_control.rules import queues


def test_a_queue_and_its_routine_are_two_names_for_one_thing() -> None:
    assert queues.routine_of(queues.queue_of("a.b-c", 12)) == ("a.b-c", 12)


@pytest.mark.parametrize(
    ("queue", "kind", "version", "is_routine"),
    [
        (queues.queue_of_state("coding", 1), "coding", 1, False),
        (queues.queue_of_state("child/coding", 12), "child/coding", 12, False),
        (queues.queue_of("a.b", 3), "@a.b", 3, True),
    ],
)
def test_a_queue_tells_its_kind_and_version(queue: str, kind: str, version: int, is_routine: bool) -> None:
    """S2-52."""
    found = (queues.kind_of(queue), queues.version_of(queue), queues.is_routine(queue))
    assert found == (kind, version, is_routine)


def test_the_first_version_has_the_name_that_the_baseline_knows() -> None:
    assert queues.queue_of_state("coding", 1) == "coding"
