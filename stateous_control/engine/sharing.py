"""Shares locked tasks out among the claims that ask at the same time. Pure: rows in, shares out.

Each task, oldest first, goes to the claim that has got the fewest so far; so nobody who asks for one waits behind
somebody who asks for a thousand.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stateous_control.rules.queues import kind_of


class Work(Protocol):
    """What sharing needs to know of a task."""

    @property
    def state(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Demand:
    """How much one claim can take: `most` in all, and of each kind of work at most `caps` says (absent: no cap).

    A kind is a state or ``@`` and a routine, all versions together.
    """

    most: int
    caps: Mapping[str, int] = field(default_factory=dict)

    def of(self, state: str) -> int:
        """Return how many tasks of the queue `state` would be taken at most."""
        return min(self.most, self.caps.get(kind_of(state), self.most))


class _Share:
    """What one claim has got so far."""

    __slots__ = ("demand", "places", "size_bytes", "taken")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.places: list[int] = []
        self.taken: dict[str, int] = {}
        self.size_bytes = 0

    def takes(self, work: Work, bytes_max: int) -> bool:
        """Whether this share still has room: the first task always fits, however large."""
        if self.taken.get(kind_of(work.state), 0) >= self.demand.of(work.state):
            return False
        return not self.places or self.size_bytes + work.size_bytes <= bytes_max

    def take(self, place: int, work: Work) -> None:
        self.places.append(place)
        kind = kind_of(work.state)
        self.taken[kind] = self.taken.get(kind, 0) + 1
        self.size_bytes += work.size_bytes


def share_out(works: Iterable[Work], demands: Sequence[Demand], bytes_max: int) -> list[list[int]]:
    """Return for each demand the positions in `works` that it gets, in order."""
    shares = [_Share(demand) for demand in demands]
    # Fewest tasks first, then who came first.
    heap = [(0, number) for number, share in enumerate(shares) if share.demand.most > 0]
    for place, work in enumerate(works):
        aside = []
        while heap:
            count, number = heapq.heappop(heap)
            share = shares[number]
            if not share.takes(work, bytes_max):
                aside.append((count, number))
                continue
            share.take(place, work)
            if count + 1 < share.demand.most:
                heapq.heappush(heap, (count + 1, number))
            break
        for item in aside:
            heapq.heappush(heap, item)
    return [share.places for share in shares]


def states_of(demands: Sequence[Demand], states: Sequence[str]) -> list[int]:
    """Return for each state how many of its tasks the demands could take together."""
    return [sum(demand.of(state) for demand in demands) for state in states]
