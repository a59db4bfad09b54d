"""The whole agent on a jumping clock: real loops, a scripted host, the fake control plane."""

from __future__ import annotations

import copy
from typing import Any

import anyio
import pytest
from fakes import Fault as Misbehaviour
from stateous_contract.reliance import reliance_of
from supervisor.doubles import (
    BASELINE,
    DONE,
    EXTENDED,
    ScriptedHosts,
    World,
    completed,
    lasting,
    simulate,
    until,
)

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.link.frames import Logged


@pytest.mark.parametrize("features", [EXTENDED, ("batch",), ("wait",), BASELINE])
def test_every_task_is_claimed_run_and_reported(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(20)

        async with world.agent({"plain": lambda _: DONE}) as agent:
            await until(lambda: completed(world) == 20)

        assert agent.exit is Exit.DONE
        assert len(world.lines.of("task.finished")) == 20
        assert [task.attempt for task in world.fake.tasks.values()] == [1] * 20

    simulate(main, features=features)


def test_one_line_ends_each_attempt_with_what_it_was_a_58() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": lasting(100.0)}):
            await until(lambda: completed(world) == 1)

            (line,) = world.lines.of("task.finished")
            assert (line["outcome"], line["event_name"], line["ending"]) == ("event", "noted", "delivered")
            assert (line["task"], line["attempt"], line["token"], line["state"]) == (1, 1, "t0", "plain")
            assert (round(line["duration_s"]), line["heartbeats"]) == (100, 3)

    simulate(main)


def test_a_line_of_a_routine_carries_its_attempt_a_21() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({})

        def routine(grant: Any) -> dict[str, str]:
            hosts.last.say(Logged(level="info", text="hello", task=grant.task, attempt=grant.attempt))
            return DONE

        hosts.routines["plain"] = routine
        async with world.agent(hosts):
            await until(lambda: completed(world) == 1)

            (line,) = world.lines.of("routine.logged")
            assert (line["text"], line["task"], line["token"]) == ("hello", 1, "t0")

    simulate(main)


def test_a_control_plane_that_is_not_there_is_waited_for_for_ever_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.is_cut = True

        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(3 * 3600.0)
            world.is_cut = False
            await until(lambda: completed(world) == 1, cadence.GREET_CAP_MAX_S + 1.0)

            assert len(world.lines.of("control_plane.unreachable")) <= 3 * 60 + 1

    simulate(main)


def test_a_contract_that_does_not_fit_stops_claims_and_never_the_agent_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        right, world.fake.graph.checksum = world.fake.graph.checksum, "sha256:other"

        async with world.agent({"plain": lambda _: DONE}, checksum=right) as agent:
            await anyio.sleep(200.0)

            assert world.heard("/tasks/claim") == []
            assert 3 <= len(world.heard("/health")) <= 5
            (differs,) = world.lines.of("contract.differs")
            assert "stateous-supervisor contract" in differs["mend"]
            seen = agent.supervisor.look()
            assert (seen.mend, seen.outdated) == (f"stateous-supervisor contract {seen.folder}", [])

            world.fake.graph.checksum = right
            await until(lambda: completed(world) == 1, 61.0)
            assert agent.supervisor.look().mend is None

    simulate(main)


def changed_from(document: dict[str, Any], *, event: str) -> dict[str, dict[str, str]]:
    """What a contract relies on that was made when the payload of `event` was another one."""
    before = copy.deepcopy(document)
    before["events"][event] = {"payload": "Verdict"}
    return reliance_of(before)


def test_a_changed_workflow_stops_claims_of_the_states_that_changed_alone_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.start_tokens(1, path="draft", prefix="d")
        old = changed_from(world.fake.graph.document, event="drafted")

        routines = {"plain": lambda _: DONE, "draft": lambda _: DONE}
        async with world.agent(routines, checksum="sha256:older", reliance=lambda: old) as agent:
            await until(lambda: completed(world) == 1, 10.0)
            await anyio.sleep(130.0)

            assert {state for heard in world.heard("/tasks/claim") for state in heard.body["states"]} == {
                "plain"
            }
            (outdated,) = world.lines.of("contract.outdated")
            assert set(outdated["states"]) == {"draft"}
            assert "stateous-supervisor contract" in outdated["mend"]
            assert world.lines.of("contract.differs") == []
            seen = agent.supervisor.look()
            assert seen.outdated == ["draft"]
            assert seen.mend is not None

    simulate(main)


def test_a_refreshed_contract_opens_the_states_again_within_a_minute_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="sturdy")
        document = world.fake.graph.document
        relied_on = [changed_from(document, event="noted")]

        async with world.agent(
            {"sturdy": lambda _: DONE}, checksum="sha256:older", reliance=lambda: relied_on[0]
        ):
            await anyio.sleep(30.0)
            assert world.heard("/tasks/claim") == []
            relied_on[0] = reliance_of(document)
            await until(lambda: completed(world) == 1, 61.0)

            assert world.lines.of("contract.agreed") != []

    simulate(main)


def test_a_change_that_takes_nothing_away_stops_no_claim_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        same = reliance_of(world.fake.graph.document)

        async with world.agent({"plain": lambda _: DONE}, checksum="sha256:older", reliance=lambda: same):
            await until(lambda: completed(world) == 1, 10.0)

            assert len(world.lines.of("contract.agreed")) == 1
            assert world.lines.of("contract.outdated") == []

    simulate(main)


def test_after_an_outage_what_is_offered_is_asked_anew() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(5.0)
            world.is_cut = True
            await anyio.sleep(60.0)
            world.fake.features = BASELINE
            world.is_cut = False
            world.start_tokens(1)
            await until(lambda: completed(world) == 1, 35.0)

            assert world.heard("/tasks/messages") == []

    simulate(main)


def test_a_database_that_is_away_is_no_reason_to_hurry() -> None:
    """`/health` is answered without the database; what fails beside it keeps its own backoff."""

    async def main(world: World) -> None:
        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: world.heard("/tasks/claim"))
            world.fake.faults.append(Misbehaviour("POST /tasks/claim", times=10_000, status=503))
            await anyio.sleep(600.0)

            assert len(world.heard("/tasks/claim")) < 80
            assert len(world.heard("/health")) < 10
            assert len(world.lines.of("control_plane.unreachable")) <= 11
            world.fake.faults.clear()

    simulate(main)


def test_a_fault_of_ours_in_one_loop_is_told_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": lambda _: DONE}) as agent:
            roster = agent.supervisor._roster
            real = roster.settle

            def broken(*_: Any) -> None:
                monkeypatch.setattr(roster, "settle", real)
                raise RuntimeError("a fault of ours")

            monkeypatch.setattr(roster, "settle", broken)
            await until(lambda: world.lines.of("loop.failed"))

            (line,) = world.lines.of("loop.failed")
            assert "a fault of ours" in line["traceback"]
            world.start_tokens(1, prefix="u")
            await until(lambda: completed(world) == 2)

    simulate(main)


def asked_for(world: World) -> list[tuple[list[str], Any]]:
    return [(heard.body["states"], heard.body.get("routines")) for heard in world.heard("/tasks/claim")]


@pytest.mark.parametrize("checksum", ["sha256:older", None], ids=["another contract", "no contract"])
def test_routines_without_a_graph_are_claimed_whatever_the_contract_says(checksum: str | None) -> None:
    async def main(world: World) -> None:
        async with world.agent({"@reports.publish": lambda _: DONE}, checksum=checksum):
            await until(lambda: world.heard("/tasks/claim"), 10.0)

            assert asked_for(world)[0] == ([], {"reports.publish": [1]})
            assert len(world.lines.of("contract.differs")) == (checksum is not None)

    simulate(main, features=("wait", "batch", "release", "routines"))


def test_routines_are_not_claimed_where_the_control_plane_has_none_and_the_log_says_so_once_a_64() -> None:
    async def main(world: World) -> None:
        async with world.agent({"@reports.publish": lambda _: DONE, "plain": lambda _: DONE}):
            await until(lambda: world.heard("/tasks/claim"), 10.0)
            await anyio.sleep(600.0)

            assert {str(asked) for asked in asked_for(world)} == {str((["plain"], None))}
            told = [(line["routines"], line["feature"]) for line in world.lines.of("routine.unclaimed")]
            assert told == [(["reports.publish"], "routines")]

    simulate(main, features=("wait", "batch", "release"))
