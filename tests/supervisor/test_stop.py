"""How an agent stops, on a jumping clock (A-34, A-43, A-44)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes import Fault
from supervisor.doubles import (
    BASELINE,
    DONE,
    EXTENDED,
    World,
    completed,
    held,
    kinds,
    lasting,
    simulate,
    stay,
    until,
)

from stateous_supervisor.agent.faults import Exit


def test_a_first_signal_lets_routines_finish_and_is_an_exit_0_a_43() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)

        async with world.agent({"plain": lasting(100.0)}) as agent:
            await until(lambda: held(world) == 3)
            world.start_tokens(1, prefix="late")
            agent.stop.ask("SIGTERM")
            await agent.over.wait()

            assert agent.exit is Exit.DONE
            assert completed(world) == 3
            assert world.fake.tokens["late0"].status == "active"
            assert len(world.heard("/tasks/heartbeat")) == 3

    simulate(main)


def test_an_outcome_that_cannot_be_delivered_at_the_end_is_kept_a_43() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": lasting(10.0)}) as agent:
            await until(lambda: held(world) == 1)
            world.is_cut = True
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert agent.exit is Exit.DONE
            assert anyio.current_time() - began < 60.0
            assert world.outbox._database.execute("SELECT kind FROM messages").fetchall() == [("report",)]
            assert world.lines.of("supervisor.stopped")[0]["kept"] == 1

    simulate(main)


def test_an_outcome_that_waits_for_its_turn_is_tried_once_more_at_the_end_a_43() -> None:
    """The control plane asked for a hundred seconds; a stop does not wait for them, and does not keep it untried."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault("POST /tasks/messages", status=503, retry_after="100"))

        async with world.agent({"plain": lambda _: DONE}) as agent:
            await until(lambda: not world.fake.faults)
            await anyio.sleep(5.0)
            assert completed(world) == 0
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert completed(world) == 1
            assert anyio.current_time() - began < 5.0

    simulate(main)


@pytest.mark.parametrize(("features", "kind"), [(EXTENDED, "task_released"), (BASELINE, "task_failed")])
def test_at_the_drain_timeout_the_rest_is_cancelled_and_given_back_a_43(
    features: tuple[str, ...], kind: str
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(2, path="sturdy")

        async with world.agent({"sturdy": stay}, drain_timeout_s=60.0) as agent:
            await until(lambda: held(world) == 2)
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert 59.0 <= anyio.current_time() - began <= 67.0
            assert agent.exit is Exit.DONE
            assert all(kind in kinds(world, f"t{number}") for number in range(2))

    simulate(main, features=features)


def test_leases_are_renewed_until_a_drain_is_over_bh_023() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="sturdy")

        async with world.agent({"sturdy": stay}, drain_timeout_s=200.0) as agent:
            await until(lambda: held(world) == 1)
            agent.stop.ask("SIGTERM")
            began = world.fake.clock()
            await agent.over.wait()

            beats = [heard.at for heard in world.heard("/tasks/heartbeat") if heard.at > began]
            assert [round(at - began, -1) for at in beats] == [30, 60, 90, 120, 150, 180]
            assert "task_failed" not in kinds(world)

    simulate(main)


def test_a_routine_that_swallows_its_cancellation_cannot_keep_the_agent_a_34() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async def stubborn(_: Any) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(50.0)

        async with world.agent({"plain": stubborn}, drain_timeout_s=1.0) as agent:
            await until(lambda: held(world) == 1)
            agent.stop.ask("SIGTERM")
            await until(lambda: "task_released" in kinds(world), 60.0)
            await agent.over.wait()

            assert agent.exit is Exit.ABANDONED

    simulate(main)


def test_a_second_signal_is_an_exit_1_within_seconds_a_44() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)

        async with world.agent({"plain": stay}) as agent:
            await until(lambda: held(world) == 3)
            agent.stop.ask("SIGTERM")
            await anyio.sleep(10.0)
            began = anyio.current_time()
            agent.stop.ask("SIGTERM")
            await agent.over.wait()

            assert anyio.current_time() - began <= 5.0
            assert agent.exit is Exit.ABANDONED

    simulate(main)


def test_a_second_signal_keeps_what_is_not_delivered_a_44() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}) as agent:
            await until(lambda: held(world) == 1)
            world.is_cut = True
            agent.stop.ask("SIGTERM")
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert anyio.current_time() - began <= 5.0
            (kept,) = world.outbox._database.execute("SELECT body FROM messages").fetchall()
            assert b'"reason":"drain"' in kept[0]

    simulate(main)


def test_an_agent_that_never_reached_anybody_stops_at_once() -> None:
    async def main(world: World) -> None:
        world.is_cut = True

        async with world.agent({"plain": stay}) as agent:
            await anyio.sleep(100.0)
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert anyio.current_time() - began <= 1.0
            assert agent.exit is Exit.DONE

    simulate(main)
