"""How often a host looks whether it is still fit (A-23); what it finds is in `test_self_harm.py`."""

from __future__ import annotations

import asyncio
import time

import pytest

from stateous_supervisor.host import fitness
from stateous_supervisor.host.fitness import Fitness


def test_a_rush_of_routines_is_not_slowed_down_and_a_fault_in_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    broken: list[str] = []

    def trial() -> None:
        looks.append(time.monotonic())
        if broken:
            raise OSError(broken[0])

    monkeypatch.setattr(fitness, "_TRIALS", {"nothing works": trial})
    loop = asyncio.new_event_loop()
    tried = Fitness(loop)
    loop.close()
    begun = time.monotonic()
    assert {tried.look() for _ in range(5_000)} == {None}
    assert len(looks) <= 12 + (time.monotonic() - begun) * 100

    broken.append("no more")
    while tried.look() is None:
        assert time.monotonic() - begun < 10
    assert tried.look() == "nothing works: OSError: no more"
