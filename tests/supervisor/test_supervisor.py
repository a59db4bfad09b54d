"""The whole agent on a jumping clock: real loops, a scripted host, the fake control plane."""

from __future__ import annotations

import pytest
from supervisor.doubles import DONE, World, simulate, until

from stateous_supervisor.agent.faults import Exit

FEATURES = [("wait", "batch", "release"), ("batch",), ()]


@pytest.mark.parametrize("features", FEATURES)
def test_every_task_is_claimed_run_and_reported(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(20)

        async with world.agent({"plain": lambda grant: DONE}) as agent:
            await until(lambda: all(t.status == "completed" for t in world.fake.tokens.values()))

        assert agent.exit is Exit.DONE
        assert len(world.lines.of("task.finished")) == 20

    simulate(main, features=features)
