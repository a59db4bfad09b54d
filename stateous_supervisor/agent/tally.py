"""What has been counted since the agent started, for the metrics (A-59): it listens to the log, whatever its level.

What can be counted is what is logged, so the two never tell different stories. Never counted by an id.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

BUCKETS_S: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0)


class Tally:
    """Counts by event, and more about attempts by state."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.last_death: str | None = None
        self.claimed: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.durations: dict[str, Counter[float]] = {}
        self.duration_s: dict[str, float] = {}

    def hear(self, event: str, keys: Mapping[str, object]) -> None:
        """Count one event of the log."""
        self.events[event] += 1
        if event == "host.ended":
            self.last_death = str(keys.get("reason"))
        elif event == "task.claimed":
            self.claimed[_work(keys)] += 1
        elif event == "task.finished":
            state = _work(keys)
            outcome = keys.get("outcome") or "none"
            self.outcomes[state, str(outcome)] += 1
            self._time(state, keys.get("duration_s"))

    def _time(self, state: str, duration_s: object) -> None:
        if not isinstance(duration_s, (int, float)):
            return
        place = bisect_left(BUCKETS_S, duration_s)
        fitting = BUCKETS_S[place] if place < len(BUCKETS_S) else math.inf
        counts = self.durations.get(state)
        if counts is None:
            counts = self.durations[state] = Counter()
        counts[fitting] += 1
        self.duration_s[state] = self.duration_s.get(state, 0.0) + duration_s


def _work(keys: Mapping[str, object]) -> str:
    """Return what an attempt is for: its state, or ``@`` and the name of a routine without a graph."""
    return f"@{keys['routine']}" if "routine" in keys else str(keys.get("state"))
