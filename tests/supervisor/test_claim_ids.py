"""Under which request ids is claimed, what of it is on disk, and what becomes of ids that end (A-11, A-41, A-43, S3-12 … S3-17)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from fakes import Fault
from stateous_contract.messages import ClaimRequest
from supervisor.doubles import BASELINE, DONE, World, claims, completed, held, simulate, stay, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.outbox import Batch, ClaimRow, WriteFailed
from stateous_supervisor.link import frames


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


@pytest.mark.parametrize("features", [("wait", "batch", "release"), BASELINE])
def test_ids_that_brought_their_grants_leave_the_disk_a_11(features: tuple[str, ...]) -> None:
    """An id that stayed would be asked under again at each start, and the table would grow for ever."""

    async def main(world: World) -> None:
        world.start_tokens(3)
        world.outbox.found = world.outbox.found._replace(claims=[ClaimRow("old", Identity("box", "i0"))])
        world.outbox._database.execute("INSERT INTO claims VALUES ('old', 'box', 'i0')")

        async with world.agent({"plain": lambda _: DONE}, tasks=1):
            await until(lambda: completed(world) == 3)
            await anyio.sleep(1.5)

            on_disk = [row[0] for row in world.outbox._database.execute("SELECT request FROM claims")]
            sent = [claim["request"] for claim in claims(world)]
            assert sent[0] == "old"
            assert len(set(sent)) > 2
            assert on_disk == [sent[-1]]

    simulate(main, features=features)


def test_an_idle_agent_writes_nothing() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(10.0)
            before = world.outbox._database.total_changes
            await anyio.sleep(100.0)

            assert world.outbox._database.total_changes == before

    simulate(main)


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


@pytest.mark.parametrize(("tasks", "limits"), [(2, {}), (4, {"plain": 2})])
def test_what_a_claim_of_a_process_that_died_brings_beyond_the_slots_is_given_back_a_12(
    tasks: int, limits: dict[str, int]
) -> None:
    """Beyond all slots, and beyond those of its state."""

    async def main(world: World) -> None:
        world.start_tokens(3)
        request = ClaimRequest(supervisor="box", instance="i0", states=["plain"], request="old", max=3)
        await ControlPlane(world.client()).claim(request)
        found = world.outbox.found
        world.outbox.found = found._replace(claims=[ClaimRow("old", Identity("box", "i0"))])
        async with world.agent({"plain": stay}, tasks=tasks, tasks_by_state=limits) as agent:
            await anyio.sleep(5.0)
            runs = [frame for frame in agent.hosts.last.heard if isinstance(frame, frames.Run)]

            assert len(runs) == 2
            assert held(world) == 2

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


def withdrawn(world: World) -> list[tuple[str, str]]:
    """Return instance and id of each withdrawal that came."""
    found = [
        heard.body if isinstance(heard.body, dict) else json.loads(heard.body)
        for heard in world.heard("/tasks/claim")
    ]
    return [(body["instance"], body["request"]) for body in found if body.get("withdraw")]


def test_an_id_that_was_given_up_is_withdrawn_until_that_is_answered_a_11() -> None:
    async def main(world: World) -> None:
        world.fake.faults.append(Fault("POST /tasks/claim", times=3, status=200, body=b'{"tasks":5}'))
        world.fake.faults.append(Fault("POST /tasks/claim", times=1, status=503))
        world.start_tokens(1)

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1)
            await until(lambda: len(withdrawn(world)) == 2)
            await anyio.sleep(1.0)

            (request,) = {request for _, request in withdrawn(world)}
            assert request == claims(world)[0]["request"]
            kept = world.outbox._database.execute("SELECT request FROM claims").fetchall()
            assert (request,) not in kept

    simulate(main)


def test_an_id_of_a_process_that_died_is_given_up_under_the_name_of_that_process_a_11() -> None:
    old = Identity("box", "before")

    async def main(world: World) -> None:
        world.fake.faults.append(Fault("POST /tasks/claim", times=3, status=200, body=b'{"tasks":5}'))
        world.outbox.found = world.outbox.found._replace(claims=[ClaimRow("r-before", old)])

        async with world.agent({"plain": stay}):
            await until(lambda: withdrawn(world))

            assert withdrawn(world) == [("before", "r-before")]

    simulate(main)


def test_an_id_that_a_full_disk_did_not_take_is_not_sent_at_a_stop_a_11(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        def refuse(_: Batch) -> None:
            raise WriteFailed("no space left on device")

        monkeypatch.setattr(world.outbox, "commit", refuse)
        world.start_tokens(1)

        async with world.agent({"plain": stay}) as agent:
            await until(lambda: world.lines.of("outbox.failed"))
            agent.stop.ask("SIGTERM")
            await agent.over.wait()

            assert claims(world) == []

    simulate(main)
