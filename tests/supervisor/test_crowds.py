"""Many agents at one control plane that was away: they come back one after another (BH-035).

They are the loops of a hundred agents on one clock that jumps, not a hundred processes: those would take more of a
machine than a test may, and what is asked here, when each of them sends, is decided in the loops.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import anyio
import pytest
from supervisor.doubles import World, simulate, stay

AWAY_S = 300.0


def returns(agents: int) -> tuple[list[float], list[float]]:
    """Return when each agent's first request came after an outage of five minutes, and when all requests did."""
    first: dict[int, float] = {}
    every: list[float] = []

    async def main(world: World) -> None:
        async with AsyncExitStack() as running:
            boxes = []
            for number in range(agents):
                box = World()
                box.fake = world.fake
                boxes.append(box)
                running.callback(box.outbox.close)
                name = f"box-{number}"
                await running.enter_async_context(
                    box.agent({"plain": stay}, name=name, instance=name, seed=number)
                )
            await anyio.sleep(40.0)
            back_at = anyio.current_time() + AWAY_S

            for number, box in enumerate(boxes):

                async def came(_: str, number: int = number) -> None:
                    now = anyio.current_time()
                    if now >= back_at:
                        first.setdefault(number, now - back_at)
                        every.append(now - back_at)

                box.before = came
                box.is_cut = True
            await anyio.sleep(AWAY_S)
            for box in boxes:
                box.is_cut = False
            await anyio.sleep(60.0)

    simulate(main)
    return sorted(first.values()), every


@pytest.mark.prove
def test_a_hundred_agents_come_back_over_ten_seconds_and_more_bh_035() -> None:
    first, every = returns(100)

    by_second = Counter(int(at) for at in every if at < 60.0)
    print(
        f"first requests over {first[-1] - first[0]:.1f} s, at most {max(by_second.values())} requests in a second"
    )
    assert len(first) == 100
    assert first[-1] - first[0] >= 10.0
    assert max(by_second.values()) <= 100  # what as many agents that poll ask in any second


def test_agents_do_not_come_back_in_lockstep_bh_035() -> None:
    first, _ = returns(10)

    assert len(first) == 10
    assert first[-1] - first[0] >= 4.0
    assert len({round(at, 2) for at in first}) >= 9
