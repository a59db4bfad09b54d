"""How much is claimed, and when (A-12 … A-15)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes import Fault
from msgspec import Raw
from supervisor.doubles import (
    BASELINE,
    DONE,
    ScriptedHosts,
    World,
    claims,
    completed,
    held,
    lasting,
    simulate,
    stay,
    until,
)

from stateous_supervisor.link import frames


def test_an_idle_agent_has_one_waiting_claim_and_nothing_else_a_13() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(100.0)

            assert [heard.path for heard in world.fake.heard] == ["/health"] + ["/tasks/claim"] * 4

    simulate(main, features=("wait", "batch", "release"))


@pytest.mark.parametrize("lease_s", [120.0, 3.0])
def test_a_waiting_claim_that_is_cut_has_the_workflow_compared_again_a_09(lease_s: float) -> None:
    """A control plane that stops answers 204; the next may be there, with another workflow, before it is missed.

    A short lease makes short waits, of which a cut is to be seen as well.
    """

    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(1.0)
            world.fake.faults.append(Fault("POST /tasks/claim", status=204, body=b""))
            await anyio.sleep(30.0)

            assert [heard.path for heard in world.fake.heard].count("/health") == 2

    simulate(main, features=("wait", "batch", "release"), lease_s=lease_s)


def test_an_idle_agent_on_the_baseline_polls_each_second_a_13() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(100.0)

            assert 90 <= len(claims(world)) <= 112

    simulate(main, features=BASELINE)


@pytest.mark.parametrize("features", [("wait", "batch", "release"), ("batch",), BASELINE])
def test_never_more_is_held_than_there_are_slots_a_12(features: tuple[str, ...]) -> None:
    """S3-67."""

    async def main(world: World) -> None:
        world.start_tokens(20)

        async with world.agent({"plain": stay}, tasks=3):
            await anyio.sleep(30.0)

            assert held(world) == 3

    simulate(main, features=features)


@pytest.mark.parametrize("features", [("wait", "batch", "release"), BASELINE])
def test_a_state_is_held_no_more_often_than_its_own_limit_a_12(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(5, "plain", "p")
        world.start_tokens(5, "fragile", "f")

        async with world.agent({"plain": stay, "fragile": stay}, tasks=5, tasks_by_state={"plain": 2}):
            await anyio.sleep(30.0)

            states = [task.state for task in world.fake.tasks.values() if task.status == "claimed"]
            assert sorted(states) == ["fragile"] * 3 + ["plain"] * 2

    simulate(main, features=features)


def test_a_slot_is_asked_for_once_while_an_id_is_being_written_a_12(monkeypatch: pytest.MonkeyPatch) -> None:
    async def draft(_: Any) -> dict[str, Any]:
        await anyio.sleep(1.0)
        return {"outcome": "event", "event": "drafted", "payload": Raw(b'{"pages":1}')}

    async def main(world: World) -> None:
        routines = {"draft": draft, "review": stay, "plain": stay, "fragile": stay}
        async with world.agent(routines, tasks=3) as agent:
            journal = agent.supervisor._journal
            commit = journal._commit

            async def slowly(batch: Any) -> None:
                await anyio.sleep(0.05)
                await commit(batch)

            monkeypatch.setattr(journal, "_commit", slowly)
            await anyio.sleep(1.0)
            world.start_tokens(1, path="fragile", prefix="talker")
            world.start_tokens(1, path="main")
            await until(lambda: held(world) == 2)
            talker = world.fake.tasks[1]
            # The slot of the draft comes free, and the claim that waits gets the review, while an id is on its way.
            while world.fake.tokens["t0"].state != "review":
                agent.hosts.last.say(frames.Noted(task=talker.id, attempt=talker.attempt, text="on it"))
                await anyio.sleep(0.01)
            world.start_tokens(3, prefix="more")
            await anyio.sleep(5.0)

            assert held(world) == 3

    simulate(main)


def test_several_free_slots_are_filled_by_one_claim_a_14() -> None:
    async def main(world: World) -> None:
        world.start_tokens(10)

        async with world.agent({"plain": stay}, tasks=10):
            await until(lambda: held(world) == 10)

            assert len(claims(world)) == 1

    simulate(main)


def test_on_the_baseline_one_claim_is_in_flight_at_a_time_a_14() -> None:
    async def main(world: World) -> None:
        world.start_tokens(10)
        world.fake.faults += [Fault("POST /tasks/claim", times=100, delay_s=0.4)]

        async with world.agent({"plain": stay}, tasks=10):
            await until(lambda: held(world) == 10)

            assert world.most_out["/tasks/claim"] == 1

    simulate(main, features=BASELINE)


def test_a_free_slot_is_filled_at_once_and_not_after_the_poll_interval_a_13() -> None:
    async def main(world: World) -> None:
        world.start_tokens(5)

        async def short(_: Any) -> dict[str, str]:
            await anyio.sleep(0.01)
            return DONE

        async with world.agent({"plain": short}, tasks=1):
            began = anyio.current_time()
            await until(lambda: completed(world) == 5)

            assert anyio.current_time() - began < 0.5

    simulate(main, features=BASELINE)


def test_what_a_delivery_may_have_brought_is_asked_for_before_the_next_poll_a_13() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        ends = anyio.Event()

        async def first(_: Any) -> dict[str, str]:
            await ends.wait()
            return DONE

        async with world.agent({"plain": first}, tasks=2):
            await until(lambda: held(world) == 1)
            before = len(claims(world))
            await until(lambda: len(claims(world)) > before)
            ends.set()
            await anyio.sleep(0.3)

            assert completed(world) == 1
            assert len(claims(world)) >= before + 2

    simulate(main, features=BASELINE)


def test_a_second_claim_that_brought_nothing_is_not_repeated_within_a_second_a_13() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        ends = {1: anyio.Event(), 2: anyio.Event()}

        async def one(grant: Any) -> dict[str, str]:
            await ends[grant.task].wait()
            return DONE

        async with world.agent({"plain": one}, tasks=3):
            await until(lambda: held(world) == 2 and len(claims(world)) == 2)
            for end in ends.values():
                end.set()
                await anyio.sleep(0.2)
            assert len(claims(world)) == 3

            await anyio.sleep(1.0)
            assert len(claims(world)) == 4

    simulate(main)


@pytest.mark.parametrize("features", [("wait", "batch", "release"), BASELINE])
def test_nothing_is_claimed_for_a_host_whose_loop_hangs_until_it_goes_on_a_22(
    features: tuple[str, ...],
) -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: claims(world))
            before = []
            for number in range(1, 17):
                hosts.last.say(frames.Pulse(loop_lag_s=number / 2 + 1, stack="plain.py:7 (plain)"))
                await anyio.sleep(0.5)
                before.append(len(claims(world)))
            assert before[-1] == before[8]

            hosts.last.say(frames.Pulse(loop_lag_s=0.0))
            await anyio.sleep(0.2)
            assert len(claims(world)) == before[-1] + 1

    simulate(main, features=features, lease_s=8.0, heartbeat_s=2.0)  # a claim waits for 2 s


def test_a_slot_that_frees_while_a_claim_waits_is_asked_for_by_a_second_one_a_13() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        ends = anyio.Event()

        async def first(_: Any) -> dict[str, str]:
            await ends.wait()
            return DONE

        async with world.agent({"plain": first}, tasks=2):
            await until(lambda: held(world) == 1 and len(claims(world)) == 2)
            await anyio.sleep(1.0)
            ends.set()
            await anyio.sleep(0.1)

            waiting, second = claims(world)[1:]
            assert (waiting["max"], waiting["wait"]) == (1, 25.0)
            assert (second["max"], second.get("wait")) == (1, None)
            assert second["request"] != waiting["request"]

    simulate(main)


def test_a_claim_waits_no_longer_than_a_quarter_of_the_lease() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(1.0)

            assert claims(world)[0]["wait"] == 2.0

    simulate(main, lease_s=8.0, heartbeat_s=2.0)


def test_claims_go_on_after_a_fault_of_ours_in_them_a_53() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": lasting(1.0)}) as agent:
            accept = agent.roster.accept

            def fail_once(*given: Any) -> Any:
                agent.roster.accept = accept
                raise RuntimeError("a fault of ours")

            agent.roster.accept = fail_once
            world.start_tokens(1)
            await until(lambda: world.lines.of("loop.failed"))
            world.start_tokens(1, prefix="next")
            await until(lambda: world.fake.tokens["next0"].status == "completed", limit_s=20.0)

            assert len(world.lines.of("loop.failed")) == 1

    simulate(main)


def test_states_whose_claims_are_refused_do_not_stop_the_others_a_15() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        too_long = "x" * 200

        async with world.agent({"plain": lambda _: DONE, too_long: stay}):
            await until(lambda: completed(world) == 2)

            (refused,) = world.lines.of("claim.refused")
            assert refused["states"] == [too_long]

    simulate(main)


def test_a_refused_state_is_asked_for_again_with_backoff_a_15() -> None:
    async def main(world: World) -> None:
        too_long = "x" * 200

        async with world.agent({"plain": stay, too_long: stay}):
            await anyio.sleep(3600.0)

            assert 10 <= len(world.lines.of("claim.refused")) <= 60

    simulate(main)


def test_after_an_error_claims_back_off_a_13() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await until(lambda: claims(world))
            world.is_cut = True
            before = len(world.fake.heard)
            await anyio.sleep(600.0)
            world.is_cut = False
            await anyio.sleep(6.0)

            assert len(world.fake.heard) - before <= 4

    simulate(main)
