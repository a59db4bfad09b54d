"""How many tasks may be claimed: free slots, in total and by each state's own limit (A-12). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar


class Room(NamedTuple):
    """What one claim may ask for. `by_state` holds the states that have room; the value is how much."""

    total: int
    by_state: Mapping[str, int]


NO_ROOM = Room(0, {})


class Slotted(Protocol):
    """A task that takes a slot of its state."""

    @property
    def state(self) -> str: ...


T = TypeVar("T", bound=Slotted)


def beyond(room: Room, granted: Iterable[T]) -> list[T]:
    """Return which of the tasks that were granted the room does not hold."""
    taken: Counter[str] = Counter()
    surplus = []
    for task in granted:
        if taken.total() < room.total and taken[task.state] < room.by_state.get(task.state, 0):
            taken[task.state] += 1
        else:
            surplus.append(task)
    return surplus


class Slots:
    """Slots of one agent.

    Args:
        total: how many routines run at once.
        by_state: the states that have a limit of their own.
    """

    def __init__(self, total: int, by_state: Mapping[str, int]) -> None:
        self.total = total
        self.held = 0
        self.limits = by_state
        self._held: dict[str, int] = {}

    def take(self, state: str) -> None:
        self.held += 1
        self._held[state] = self._held.get(state, 0) + 1

    def give(self, state: str) -> None:
        self.held -= 1
        self._held[state] -= 1

    def room(self, states: Iterable[str], *, promised: Room = NO_ROOM, at_most: int) -> Room:
        """Return what can be claimed beside what a claim that is out may still bring.

        Args:
            states: which ones are wanted.
            promised: what the other claim asked for.
            at_most: how much one claim may ask for.
        """
        total = min(self.total - self.held - promised.total, at_most)
        if total <= 0:
            return NO_ROOM
        by_state: dict[str, int] = {}
        for state in states:
            limit = self.limits.get(state)
            if limit is None:
                by_state[state] = total
                continue
            left = limit - self._held.get(state, 0) - min(promised.by_state.get(state, 0), promised.total)
            if left > 0:
                by_state[state] = min(left, total)
        return Room(total, by_state) if by_state else NO_ROOM

    def own_limits(self, room: Room) -> dict[str, int] | None:
        """Return the states whose own limit is below the claim's total, for `max_by_state`."""
        below = {state: count for state, count in room.by_state.items() if count < room.total}
        return below or None
