"""Leases are kept, and a lost one is let go (A-27 … A-31, S3-20 … S3-25, BH-008)."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import anyio
import pytest
from fakes import Fault
from supervisor.doubles import BASELINE, BOTH, DONE, EPOCH, EXTENDED, World, simulate, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.outbox import Envelope
from stateous_supervisor.link.frames import Cancel, HeldUntil, Outcome


async def stay(_: Any) -> None:
    await anyio.sleep_forever()


def beats(world: World) -> list[Any]:
    return [
        (heard.at, heard.body if isinstance(heard.body, dict) else json.loads(heard.body))
        for heard in world.heard("/tasks/heartbeat")
    ]


def held(world: World) -> list[int]:
    return [task.id for task in world.fake.tasks.values() if task.status == "claimed"]


@BOTH
def test_one_request_each_interval_names_all_held_tasks_a_27(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(50)

        async with world.agent({"plain": stay}, tasks=50):
            await anyio.sleep(125.0)

            assert [len(body["tasks"]) for _, body in beats(world)] == [50, 50, 50, 50]
            times = [at for at, _ in beats(world)]
            assert all(29.9 <= later - earlier <= 30.1 for earlier, later in pairwise(times))

    simulate(main, features=features)


def test_none_is_sent_when_nothing_is_held_a_27() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(600.0)

            assert beats(world) == []

    simulate(main)


def test_the_first_beat_comes_within_one_interval_of_the_claim_a_27() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": stay}):
            await anyio.sleep(1000.0)
            world.start_tokens(1)
            await until(lambda: held(world))
            claimed_at = anyio.current_time()
            await until(lambda: beats(world))

            assert anyio.current_time() - claimed_at <= 30.1

    simulate(main)


def test_what_an_earlier_process_left_does_not_put_the_first_beat_off_a_27() -> None:
    async def main(world: World) -> None:
        left = b'{"kind":"report","task":99,"attempt":1,"outcome":"failed","error":"it went wrong"}'
        envelope = Envelope(1, 99, 1, "plain", "t9", Identity("box", "i0"), "report", left)
        world.outbox.found = world.outbox.found._replace(messages=[envelope])
        world.is_cut = True
        async with world.agent({"plain": stay}):
            await anyio.sleep(10.0)
            world.is_cut = False
            world.start_tokens(1)
            await until(lambda: held(world) == [1])
            claimed_at = anyio.current_time()
            await until(lambda: world.heard("/tasks/heartbeat"))

            assert anyio.current_time() - claimed_at <= 5.1

    simulate(main, lease_s=20.0, heartbeat_s=5.0)


def test_more_than_one_request_names_what_one_may_not_a_27() -> None:
    async def main(world: World) -> None:
        world.start_tokens(5)

        async with world.agent({"plain": stay}, tasks=5) as agent:
            await until(lambda: len(held(world)) == 5)
            terms = agent.supervisor._control_plane.terms
            agent.supervisor._control_plane.terms = type(terms)(
                **{name: getattr(terms, name) for name in terms.__struct_fields__} | {"heartbeat_max": 2}
            )
            await anyio.sleep(31.0)

            assert sorted(len(body["tasks"]) for _, body in beats(world)) == [1, 2, 2]

    simulate(main)


def test_an_outcome_that_is_not_delivered_is_still_held_a_27() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault("POST /tasks/messages", times=500, status=503))

        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(300.0)
            world.fake.faults.clear()
            await until(lambda: world.fake.tokens["t0"].status == "completed")

            assert len(beats(world)) >= 9
            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main)


@BOTH
def test_a_lease_is_kept_for_hours(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async def hours(_: Any) -> dict[str, str]:
            await anyio.sleep(4 * 3600.0)
            return DONE

        async with world.agent({"plain": hours}, tasks=1):
            await anyio.sleep(4 * 3600.0 + 1)
            assert world.fake.tokens["t0"].status == "completed"

            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main, features=features)


@BOTH
def test_a_beat_that_fails_is_tried_again_inside_the_lease_a_29(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}):
            await until(lambda: held(world))
            world.fake.faults.append(Fault("POST /tasks/heartbeat", times=3, status=503))
            await anyio.sleep(300.0)

            assert [task.attempt for task in world.fake.tasks.values()] == [1]
            times = [at for at, _ in beats(world)][:4]
            assert times[3] - times[0] < 78
            assert len(world.lines.of("heartbeat.missed")) == 3

    simulate(main, features=features)


def test_a_beat_that_hangs_has_a_deadline_a_29() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}):
            await until(lambda: held(world))
            world.fake.faults.append(Fault("POST /tasks/heartbeat", delay_s=1e9, is_done=True))
            await anyio.sleep(300.0)

            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main)


@BOTH
def test_a_routine_whose_task_is_lost_is_cancelled_and_its_slot_free_at_once_a_30(
    features: tuple[str, ...],
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)

        async with world.agent({"plain": stay}, tasks=1) as agent:
            await until(lambda: held(world) == [1])
            world.fake._steer("t0", "cancel", {})
            await until(lambda: held(world) == [2], 31.0)

            (cancel,) = [m for m in agent.hosts.last.heard if isinstance(m, Cancel)]
            assert (cancel.task, cancel.attempt) == (1, 1)
            assert world.heard("/tasks/1/report") == world.heard("/tasks/messages") == []
            (lost,) = world.lines.of("lease.lost")
            assert lost["task"] == 1

    simulate(main, features=features)


def test_the_cause_of_a_loss_is_told_a_30() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}):
            await until(lambda: held(world))
            world.fake._steer("t0", "cancel", {})
            await until(lambda: world.lines.of("lease.lost"))

            assert world.lines.of("lease.lost")[0]["reason"] == "cancelled"

    simulate(main)


@BOTH
def test_the_outcome_of_a_lost_attempt_is_dropped_a_30(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async def stubborn(_: Any) -> dict[str, str]:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(100.0)
            return DONE

        async with world.agent({"plain": stubborn}):
            await until(lambda: held(world))
            world.fake._steer("t0", "cancel", {})
            await until(lambda: world.lines.of("task.finished"))

            assert world.heard("/tasks/1/report") == world.heard("/tasks/messages") == []
            assert world.lines.of("task.finished")[0]["ending"] == "lost"

    simulate(main, features=features)


def test_a_late_loss_never_touches_a_newer_attempt_a_31() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="sturdy")

        async with world.agent({"sturdy": stay}) as agent:
            await until(lambda: held(world))

            async def overtaken(path: str) -> None:
                """Between question and answer the attempt ends, and the next one is claimed here."""
                if path == "/tasks/heartbeat":
                    world.before = None
                    agent.hosts.last.scopes.clear()
                    agent.hosts.last.say(Outcome(task=1, attempt=1, outcome="failed", error="x"))
                    await until(lambda: (1, 2) in agent.roster.assignments, 5.0)

            world.before = overtaken
            await anyio.sleep(100.0)

            assert beats(world)[0][1]["attempts"] == {"1": 1}
            assert agent.roster.assignments[1, 2].phase == "running"
            assert world.fake.tasks[1].attempt == 2

    simulate(main)


def test_a_newer_attempt_means_that_the_older_one_is_lost_a_31() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="sturdy")

        async with world.agent({"sturdy": stay}) as agent:
            await until(lambda: (1, 1) in agent.roster.assignments)
            world.is_cut = True
            await anyio.sleep(130.0)
            world.is_cut = False
            await until(lambda: (1, 2) in agent.roster.assignments, 60.0)

            assert [task.attempt for task in world.fake.tasks.values()] == [2]
            assert (1, 1) not in agent.roster.assignments

    simulate(main, features=BASELINE)


def test_through_an_outage_routines_go_on_and_beats_are_tried_each_interval_bh_008() -> None:
    async def main(world: World) -> None:
        world.start_tokens(20)
        tried: list[float] = []

        async with world.agent({"plain": stay}, tasks=20) as agent:
            await until(lambda: len(held(world)) == 20)

            async def count(path: str) -> None:
                if path == "/tasks/heartbeat":
                    tried.append(anyio.current_time())

            world.before = count
            world.is_cut = True
            await anyio.sleep(1.5 * 120.0)

            gaps = [later - earlier for earlier, later in pairwise(tried)]
            assert max(gaps) <= 30.5
            assert len(agent.roster.running) == 20
            assert len(tried) < 60

            for (
                task
            ) in world.fake.tasks.values():  # the control plane has its grace: it ends no lease at once
                task.until = EPOCH + 1e9
            world.is_cut = False
            await anyio.sleep(31.0)

            assert len(held(world)) == 20
            assert len(agent.roster.running) == 20

    simulate(main)


@pytest.mark.parametrize(
    ("status", "latest_s"), [(503, 30.1), (401, 16.1)], ids=["no answer", "a refused key"]
)
def test_a_beat_that_fails_slowly_is_repeated_from_when_it_was_sent_a_27(
    status: int, latest_s: float
) -> None:
    """However long it took to fail: within H, and a refused one within max(10 s, H/3), at least 1 s later (A-51)."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        tried: list[float] = []

        async def count(path: str) -> None:
            if path == "/tasks/heartbeat":
                tried.append(anyio.current_time())

        async with world.agent({"plain": stay}):
            await until(lambda: held(world))
            world.before = count
            world.fake.faults.append(Fault("POST /tasks/heartbeat", times=50, status=status, delay_s=14.9))
            await anyio.sleep(900.0)

            gaps = [later - earlier for earlier, later in pairwise(tried)]
            assert len(gaps) >= 20
            assert max(gaps) <= latest_s
            world.fake.faults.clear()

    simulate(main)


def test_a_missed_beat_tells_of_the_lease_that_ends_first_a_29() -> None:
    async def main(world: World) -> None:
        world.fake.faults.append(Fault("POST /tasks/heartbeat", times=50, status=503))
        world.start_tokens(1)
        async with world.agent({"plain": stay}):
            await until(lambda: held(world))
            await anyio.sleep(25.0)
            world.start_tokens(1, prefix="late")
            await until(lambda: len(held(world)) == 2 and world.lines.of("heartbeat.missed"), 60.0)
            assert 70 < world.lines.of("heartbeat.missed")[0]["trusted_s"] <= 80  # of 108, 30 s ago

    simulate(main)


def test_a_lease_that_cannot_be_proven_is_doubted_once_and_the_routine_goes_on() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}) as agent:
            await until(lambda: held(world))
            world.is_cut = True
            await anyio.sleep(200.0)

            assert len(world.lines.of("lease.doubted")) == 1
            assert len(agent.roster.running) == 1

    simulate(main)


def test_the_host_hears_how_long_it_holds() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}) as agent:
            await anyio.sleep(31.0)

            (told,) = [m for m in agent.hosts.last.heard if isinstance(m, HeldUntil)]
            assert told.tasks == [1]
            assert 100 <= told.lease_s <= 120

    simulate(main)


def test_two_agents_of_one_name_never_touch_each_others_tasks_bh_010() -> None:
    async def main(world: World) -> None:
        world.start_tokens(4)
        other = World(features=EXTENDED)
        other.fake = world.fake

        async with world.agent({"plain": stay}, tasks=2, instance="one") as one:
            await until(lambda: len(held(world)) == 2)
            async with other.agent({"plain": stay}, tasks=2, instance="two") as two:
                await anyio.sleep(300.0)

                assert {key[0] for key in one.roster.assignments} == {1, 2}
                assert {key[0] for key in two.roster.assignments} == {3, 4}
                assert [task.attempt for task in world.fake.tasks.values()] == [1, 1, 1, 1]
                assert world.lines.of("lease.lost") == other.lines.of("lease.lost") == []
        other.outbox.close()

    simulate(main)
