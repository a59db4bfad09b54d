"""How much is claimed, when, and under which request ids (A-11 … A-15, S3-12 … S3-17)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from fakes import Fault
from msgspec import Raw
from stateous_contract.messages import ClaimRequest
from supervisor.doubles import DONE, World, completed, held, lasting, simulate, stay, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.outbox import Batch, ClaimRow
from stateous_supervisor.link import frames

BASELINE: tuple[str, ...] = ()


def claims(world: World) -> list[dict[str, Any]]:
    found = [
        heard.body if isinstance(heard.body, dict) else json.loads(heard.body)
        for heard in world.heard("/tasks/claim")
    ]
    return [body for body in found if not body.get("withdraw")]


def test_an_idle_agent_has_one_waiting_claim_and_nothing_else_a_13() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(100.0)

            assert [heard.path for heard in world.fake.heard] == ["/health"] + ["/tasks/claim"] * 4

    simulate(main, features=("wait", "batch", "release"))


def test_an_idle_agent_on_the_baseline_polls_each_second_a_13() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(100.0)

            assert 90 <= len(claims(world)) <= 112

    simulate(main, features=BASELINE)


def test_an_id_that_brought_nothing_is_used_again_a_11() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(10.0)

            assert len({claim["request"] for claim in claims(world)}) == 1

    simulate(main, features=BASELINE)


def test_an_id_that_brought_a_grant_is_not_used_again_a_11() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)

        async with world.agent({"plain": stay}):
            await anyio.sleep(1.5)

            assert len({claim["request"] for claim in claims(world)}) == 4

    simulate(main, features=BASELINE)


def test_an_idle_agent_writes_nothing() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(10.0)
            before = world.outbox._database.total_changes
            await anyio.sleep(100.0)

            assert world.outbox._database.total_changes == before

    simulate(main)


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


def test_a_slot_is_asked_for_once_while_an_id_is_being_written_a_12() -> None:
    async def draft(_: Any) -> dict[str, Any]:
        await anyio.sleep(1.0)
        return {"outcome": "event", "event": "drafted", "payload": Raw(b'{"pages":1}')}

    async def main(world: World) -> None:
        routines = {"draft": draft, "review": stay, "plain": stay, "fragile": stay}
        async with world.agent(routines, tasks=3) as agent:
            commit = agent.supervisor._journal._commit

            async def slowly(batch: Any) -> None:
                await anyio.sleep(0.05)
                await commit(batch)

            agent.supervisor._journal._commit = slowly
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


def test_a_claim_whose_answer_was_lost_is_repeated_and_loses_no_task_s3_16() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)
        world.fake.faults.append(Fault("POST /tasks/claim", times=2, is_done=True, closes=True))

        async with world.agent({"plain": lambda _: DONE}, tasks=3):
            await until(lambda: completed(world) == 3)

            assert [task.attempt for task in world.fake.tasks.values()] == [1, 1, 1]
            first, second = claims(world)[:2]
            assert first["request"] == second["request"]

    simulate(main)


@pytest.mark.parametrize("features", [("wait", "batch", "release"), BASELINE])
def test_a_claim_of_a_process_that_died_is_repeated_under_its_own_name_a_11(
    features: tuple[str, ...],
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault("POST /tasks/claim", times=9, is_done=True, status=503))
        async with world.agent({"plain": lambda _: DONE}, name="old", instance="one") as dying:
            await until(lambda: held(world) == 1)
            dying.kill()
        world.fake.faults.clear()
        before = len(claims(world))
        world.outbox.found = world.outbox.found._replace(
            claims=[ClaimRow(claims(world)[0]["request"], Identity("old", "one"))]
        )

        async with world.agent({"plain": lambda _: DONE}, name="new", instance="two"):
            await until(lambda: completed(world) == 1)

            assert [task.attempt for task in world.fake.tasks.values()] == [1]
            repeated, fresh = claims(world)[before : before + 2]
            assert (repeated["supervisor"], fresh["supervisor"]) == ("old", "new")

    simulate(main, features=features)


def test_what_a_claim_of_a_process_that_died_brings_beyond_the_slots_is_given_back_a_12() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)
        request = ClaimRequest(supervisor="box", instance="i0", states=["plain"], request="old", max=3)
        await ControlPlane(world.client()).claim(request)
        found = world.outbox.found
        world.outbox.found = found._replace(claims=[ClaimRow("old", Identity("box", "i0"))])
        async with world.agent({"plain": stay}, tasks=2) as agent:
            await anyio.sleep(5.0)
            runs = [frame for frame in agent.hosts.last.heard if isinstance(frame, frames.Run)]

            assert len(runs) == 2
            assert held(world) == 2

    simulate(main)


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


def test_a_claims_id_is_on_disk_before_it_is_sent_a_11() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await until(lambda: claims(world))

            on_disk = [row[0] for row in world.outbox._database.execute("SELECT request FROM claims")]
            assert on_disk == [claims(world)[0]["request"]]

    simulate(main)


def test_a_grant_is_on_disk_before_its_routine_starts() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        seen: list[Any] = []

        def routine(_: Any) -> dict[str, str]:
            seen.extend(
                world.outbox._database.execute("SELECT task, attempt, supervisor, instance FROM grants")
            )
            return DONE

        async with world.agent({"plain": routine}):
            await until(lambda: seen)

            assert seen == [(1, 1, "box", "i1")]

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


def test_an_answer_that_nobody_understands_does_not_wedge_the_claims_a_53() -> None:
    async def main(world: World) -> None:
        world.fake.faults.append(Fault("POST /tasks/claim", times=3, status=200, body=b'{"tasks":5}'))
        world.start_tokens(1)

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1)

            assert world.lines.of("claim.abandoned")

    simulate(main)


def test_a_first_signal_ends_claims_within_a_second_and_withdraws_the_waiting_one_a_43() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}) as agent:
            await until(lambda: claims(world))
            await anyio.sleep(1.0)
            began = anyio.current_time()
            agent.stop.ask("SIGTERM")
            await agent.over.wait()

            assert anyio.current_time() - began < 1.0
            last = world.heard("/tasks/claim")[-1].body
            assert (last["withdraw"], last["request"]) == (True, claims(world)[0]["request"])
            world.start_tokens(1)
            await anyio.sleep(30.0)
            assert held(world) == 0

    simulate(main)


def test_while_nothing_can_be_journaled_nothing_is_claimed_a_41() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": lambda _: DONE}) as agent:
            await until(lambda: claims(world))
            agent.supervisor._journal.is_writable = False
            await anyio.sleep(26.0)
            before = len(claims(world))
            await anyio.sleep(100.0)

            assert len(claims(world)) == before

            world.start_tokens(1)
            agent.supervisor._journal.is_writable = True
            await until(lambda: completed(world) == 1)

    simulate(main)


def test_a_copied_outbox_repeats_no_claim_bh_010() -> None:
    async def main(world: World) -> None:
        world.outbox.commit(Batch(claims=[ClaimRow("old", Identity("box", "one"))]))
        world.outbox.found = world.outbox.found._replace(
            claims=[ClaimRow("old", Identity("box", "one"))], is_copied=True
        )

        async with world.agent({"plain": stay}):
            await anyio.sleep(5.0)

            assert "old" not in [claim["request"] for claim in claims(world)]
            assert world.lines.of("outbox.copied")

    simulate(main)
