"""Grants that are larger than an agent takes, among others: that attempt fails and says so, and claims go on (BH-040)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from stateous_contract.limits import GRANT_BYTES_MAX
from supervisor.doubles import DONE, World, completed, held, kinds, simulate, text_of, until

from stateous_supervisor.agent.control_plane import CLAIM_BYTES_MAX


# httpx leaves the generators of a body that is read no further to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("features", [("wait", "batch", "release"), ()], ids=["batch", "baseline"])
@pytest.mark.parametrize("size", [GRANT_BYTES_MAX, CLAIM_BYTES_MAX], ids=["8 MiB", "16 MiB"])
def test_a_grant_above_the_limit_fails_its_attempt_and_wedges_no_claim_bh_040(
    features: tuple[str, ...], size: int
) -> None:
    """Also where the answer is too large to be read at all: what it begins with says which attempt it was."""

    async def main(world: World) -> None:
        ran: list[str] = []

        def routine(grant: Any) -> dict[str, str]:
            ran.append(grant.token)
            return DONE

        world.start_tokens(1, path="brittle", prefix="huge")
        world.fake.tokens["huge0"].context["blob"] = "x" * size
        world.start_tokens(3)
        async with world.agent({"plain": routine, "brittle": routine}, tasks=1):
            await until(lambda: completed(world) == 3, 60.0)
            await until(lambda: "task_failed" in kinds(world, "huge0"), 60.0)

            told = text_of(world, "task_failed", "huge0")
            assert f"at most {GRANT_BYTES_MAX:,} are taken" in told
            assert "grant.unusable" in {line["event"] for line in world.lines.all}
            assert not world.lines.of("loop.failed")
            assert not world.lines.of("claim.abandoned")
            await anyio.sleep(300.0)
            assert held(world) == 0
            assert sorted(ran) == ["t0", "t1", "t2"]

    simulate(main, features=features)


def test_a_grant_at_the_limit_runs_bh_040() -> None:
    async def main(world: World) -> None:
        sizes: list[int] = []

        def routine(grant: Any) -> dict[str, str]:
            sizes.append(len(json.loads(bytes(grant.context))["blob"]))
            return DONE

        world.start_tokens(1)
        world.fake.tokens["t0"].context["blob"] = "x" * (GRANT_BYTES_MAX - 1_000)
        async with world.agent({"plain": routine}):
            await until(lambda: completed(world) == 1, 60.0)

            assert sizes == [GRANT_BYTES_MAX - 1_000]

    simulate(main)
