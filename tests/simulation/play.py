"""Many lives one after the other, counted; and how a life that fails is told so that anybody can repeat it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .history import Broken
from .life import Life

BASELINE_EVERY = 50


@dataclass
class Count:
    """What was played. Only the hours while it storms count."""

    lives: int = 0
    hours: float = 0.0
    baseline_hours: float = 0.0
    requests: int = 0
    took_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        return (
            f"{self.lives} lives, {self.hours:.0f} simulated hours ({self.baseline_hours:.1f} on the baseline), "
            f"{self.faults.total()} faults, {self.requests} requests, {self.took_s:.0f} s of CPU; {kinds}"
        )


class Failed(Exception):
    """A life broke a rule; the text has the seed, the command and the short history."""


def play(hours: float, first_seed: int, *, told: Callable[[str], None] = print) -> Count:
    """Play lives of `hours` simulated hours in all, with the seeds from `first_seed` on; about 2 % on the baseline.

    Raises:
        Failed: at the first life that breaks a rule.
    """
    count = Count()
    began = time.process_time()
    for seed, is_baseline in _seeds(count, first_seed):
        if count.hours >= hours:
            break
        life = one(seed, is_baseline=is_baseline)
        count.lives += 1
        count.hours += life.hours
        count.baseline_hours += life.hours if is_baseline else 0.0
        count.faults += life.history.faults
        count.requests += life.history.requests
        count.took_s = time.process_time() - began
    told(str(count))
    return count


def one(seed: int, *, is_baseline: bool) -> Life:
    """Play one life.

    Raises:
        Failed: it breaks a rule.
    """
    life = Life(seed, is_baseline=is_baseline)
    try:
        life.run()
    except Broken as broken:
        raise Failed(report(life, broken, is_baseline=is_baseline)) from None
    except BaseException as error:
        raise Failed(report(life, None, is_baseline=is_baseline)) from error
    return life


def report(life: Life, broken: Broken | None, *, is_baseline: bool) -> str:
    """Return what happened to a life, and how to have it happen again."""
    again = f"make simulate SEED={life.seed}" + (" BASELINE=1" if is_baseline else "")
    return f"{life.history.short(broken)}\n\n{broken or 'the simulation itself failed'}\nseed {life.seed}; exactly this life again: {again}"


def _seeds(count: Count, first_seed: int) -> Iterator[tuple[int, bool]]:
    """Yield seeds; a life on the baseline comes when too few hours of it were played."""
    seed = first_seed
    while True:
        yield seed, count.baseline_hours < count.hours / BASELINE_EVERY
        seed += 1
