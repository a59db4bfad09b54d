"""How much may be claimed."""

from __future__ import annotations

from typing import NamedTuple

from stateous_supervisor.agent.slots import NO_ROOM, Room, Slots, beyond


def test_room_is_what_is_free_a_12() -> None:
    slots = Slots(4, {})
    slots.take("a")

    assert slots.room(["a", "b"], at_most=1000) == Room(3, {"a": 3, "b": 3})


def test_a_full_agent_has_no_room() -> None:
    slots = Slots(1, {})
    slots.take("a")

    assert slots.room(["a"], at_most=1000) == NO_ROOM


def test_a_slot_that_was_given_back_is_free() -> None:
    slots = Slots(1, {})
    slots.take("a")
    slots.give("a")

    assert slots.room(["a"], at_most=1000).total == 1


def test_a_state_with_a_limit_of_its_own_gets_no_more_a_12() -> None:
    slots = Slots(4, {"a": 2})
    slots.take("a")

    assert slots.room(["a", "b"], at_most=1000).by_state == {"a": 1, "b": 3}


def test_a_state_at_its_own_limit_is_not_asked_for() -> None:
    slots = Slots(4, {"a": 1})
    slots.take("a")

    assert slots.room(["a", "b"], at_most=1000) == Room(3, {"b": 3})


def test_only_states_at_their_limits_is_no_room() -> None:
    slots = Slots(4, {"a": 1})
    slots.take("a")

    assert slots.room(["a"], at_most=1000) == NO_ROOM


def test_what_another_claim_may_bring_is_not_promised_again() -> None:
    slots = Slots(4, {"a": 2})

    assert slots.room(["a", "b"], promised=Room(3, {"a": 2, "b": 3}), at_most=1000) == Room(1, {"b": 1})


def test_one_claim_asks_for_no_more_than_it_may() -> None:
    assert Slots(5000, {}).room(["a"], at_most=1000).total == 1000


def test_own_limits_name_only_states_below_the_total() -> None:
    slots = Slots(4, {"a": 2, "b": 9})

    assert slots.own_limits(slots.room(["a", "b", "c"], at_most=1000)) == {"a": 2}


class Task(NamedTuple):
    """A task that was granted."""

    state: str
    number: int


def test_what_is_beyond_all_slots_or_those_of_a_state_is_told_a_12() -> None:
    granted = [Task("a", 1), Task("b", 2), Task("b", 3), Task("c", 4), Task("a", 5), Task("a", 6)]

    assert [task.number for task in beyond(Room(3, {"a": 3, "b": 1}), granted)] == [3, 4, 6]
    assert beyond(NO_ROOM, granted) == granted
