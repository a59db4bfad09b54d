"""The whole agent on a jumping clock: real loops, a scripted host, the fake control plane."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes import Fault as Misbehaviour
from supervisor.doubles import DONE, ScriptedHosts, World, simulate, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.hosts import HostUnusable
from stateous_supervisor.agent.outbox import Batch, GrantRow
from stateous_supervisor.link.frames import BrokenFile, Logged, Outcome

EXTENDED = ("wait", "batch", "release")
BASELINE: tuple[str, ...] = ()
BOTH = pytest.mark.parametrize("features", [EXTENDED, BASELINE], ids=["extended", "baseline"])
DIED = Identity("box", "died")


async def stay(_: Any) -> None:
    await anyio.sleep_forever()


def lasting(seconds: float) -> Any:
    async def routine(_: Any) -> dict[str, str]:
        await anyio.sleep(seconds)
        return DONE

    return routine


def held(world: World) -> int:
    return sum(task.status == "claimed" for task in world.fake.tasks.values())


def completed(world: World) -> int:
    return sum(token.status == "completed" for token in world.fake.tokens.values())


def kinds(world: World, token: str = "t0") -> list[str]:
    return [entry["kind"] for entry in world.fake.tokens[token].history]


def text_of(world: World, kind: str, token: str = "t0") -> str:
    return next(str(entry["data"]) for entry in world.fake.tokens[token].history if entry["kind"] == kind)


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


# Contact and contract.


def test_a_control_plane_that_is_not_there_is_waited_for_for_ever_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.is_cut = True

        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(3 * 3600.0)
            world.is_cut = False
            await until(lambda: completed(world) == 1, 10.0)

            assert len(world.lines.of("control_plane.unreachable")) <= 3 * 60 + 1

    simulate(main)


def test_a_contract_that_does_not_fit_stops_claims_and_never_the_agent_a_09() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        right, world.fake.graph.checksum = world.fake.graph.checksum, "sha256:other"

        async with world.agent({"plain": lambda _: DONE}, checksum=right):
            await anyio.sleep(200.0)

            assert world.heard("/tasks/claim") == []
            assert 3 <= len(world.heard("/health")) <= 5
            (differs,) = world.lines.of("contract.differs")
            assert "stateous-supervisor contract" in differs["mend"]

            world.fake.graph.checksum = right
            await until(lambda: completed(world) == 1, 61.0)

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


# Hosts.


@BOTH
def test_a_lone_routine_whose_host_died_is_a_failed_attempt_a_23(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="sturdy")
        hosts = ScriptedHosts({"sturdy": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 1)
            hosts.routines["sturdy"] = lambda _: DONE
            hosts.last.die("killed by SIGSEGV")
            await until(lambda: completed(world) == 1, 10.0)

            assert "SIGSEGV" in text_of(world, "task_failed")
            assert [task.attempt for task in world.fake.tasks.values()] == [2]

    simulate(main, features=features)


def test_several_whose_host_died_are_given_back_a_23() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 3)
            hosts.routines["plain"] = lambda _: DONE
            hosts.last.die("exit code 1")
            await until(lambda: completed(world) == 3, 2.0)

            assert text_of(world, "task_released").count("host_died: exit code 1") == 1
            assert [task.failures for task in world.fake.tasks.values()] == [0, 0, 0]

    simulate(main)


def test_without_release_each_of_them_is_a_failed_attempt_a_23() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3, path="sturdy")
        hosts = ScriptedHosts({"sturdy": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 3)
            hosts.routines["sturdy"] = lambda _: DONE
            hosts.last.die("exit code 1")
            await until(lambda: completed(world) == 3, 10.0)

            assert [task.failures for task in world.fake.tasks.values()] == [1, 1, 1]

    simulate(main, features=BASELINE)


def test_a_new_host_is_there_at_once_and_one_that_keeps_dying_backs_off_a_23() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: hosts.all)
            first_at = anyio.current_time()
            for _ in range(10):
                count = len(hosts.all)
                hosts.last.die("exit code 1")
                await until(lambda count=count: len(hosts.all) > count, 40.0)
                if count == 1:
                    assert anyio.current_time() - first_at < 0.1

            assert anyio.current_time() - first_at > 20.0

    simulate(main)


def test_an_outcome_that_came_before_the_death_counts_a_23() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 1)
            hosts.last.say(Outcome(task=1, attempt=1, **DONE))
            hosts.last.die("exit code 1")
            await until(lambda: completed(world) == 1)

            assert "task_failed" not in kinds(world)

    simulate(main)


def test_a_host_that_says_the_same_outcome_twice_reports_once() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 1)
            for event in ("noted", "flagged"):
                hosts.last.say(Outcome(task=1, attempt=1, outcome="event", event=event))
            await until(lambda: completed(world) == 1)

            assert len(world.lines.of("task.finished")) == 1

    simulate(main)


def failing(world: World, hosts: ScriptedHosts, **duty: Any) -> Any:
    """Run an agent that does not start, and return the fault it ended with."""

    async def run() -> Fault:
        found: list[Fault] = []
        async with anyio.create_task_group() as tasks:
            agent_context = world.agent(hosts, **duty)
            agent = await agent_context.__aenter__()
            real = agent.supervisor.run

            async def caught() -> Exit:
                try:
                    return await real()
                except Fault as fault:
                    found.append(fault)
                    return fault.exit_code

            agent.supervisor.run = caught  # type: ignore[method-assign]
            await agent.over.wait()
            await agent_context.__aexit__(None, None, None)
            tasks.cancel_scope.cancel()
        return found[0]

    return run()


@pytest.mark.parametrize(
    ("facts", "duty", "sentence"),
    [
        ({"faults": ["two routines for 'plain': a.py:1 and b.py:1"]}, {}, "two routines for 'plain'"),
        (
            {"routines": [], "broken": [BrokenFile(file="a.py", line=3, error="SyntaxError: x")]},
            {},
            "a.py:3: SyntaxError",
        ),
        (
            {"broken": [BrokenFile(file="a.py", line=3, error="SyntaxError: x")]},
            {"is_strict": True},
            "a.py:3: SyntaxError",
        ),
    ],
    ids=["faults", "nothing usable", "strict"],
)
def test_a_folder_that_is_not_fit_to_start_with_ends_the_agent_before_any_claim_bh_029(
    facts: dict[str, Any], duty: dict[str, Any], sentence: str
) -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})
        hosts.facts = facts

        fault = await failing(world, hosts, **duty)

        assert fault.exit_code is Exit.CONFIG
        assert sentence in fault.sentence
        assert world.heard("/tasks/claim") == []

    simulate(main)


def test_one_broken_file_does_not_take_the_others_down_a_05() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": lambda _: DONE})
        hosts.facts = {"broken": [BrokenFile(file="a.py", line=3, error="SyntaxError: x")]}

        async with world.agent(hosts):
            await until(lambda: completed(world) == 1)

            (line,) = world.lines.of("folder.broken")
            assert (line["file"], line["line"], line["error"]) == ("a.py", 3, "SyntaxError: x")

    simulate(main)


def test_an_interpreter_that_gives_no_host_ends_a_start_with_a_sentence_a_25() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})
        hosts.unusable = HostUnusable("python: x cannot be started")

        fault = await failing(world, hosts)

        assert (fault.exit_code, fault.sentence) == (Exit.CONFIG, "python: x cannot be started")

    simulate(main)


def test_later_it_is_tried_again_a_25() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": lambda _: DONE})

        async with world.agent(hosts):
            await until(lambda: completed(world) == 1)
            hosts.unusable = HostUnusable("python: x cannot be started")
            hosts.last.die()
            await until(lambda: len(world.lines.of("host.failed")) >= 3)
            hosts.unusable = None
            world.start_tokens(1, prefix="u")
            await until(lambda: completed(world) == 2, 60.0)

    simulate(main)


# After a crash.


def left(world: World, *rows: GrantRow, **more: Any) -> None:
    """Have the outbox of a process that died hold these grants."""
    world.outbox.commit(Batch(grants=list(rows)))
    world.outbox.found = world.outbox.found._replace(grants=list(rows), **more)


def claimed_by_the_dead(world: World, count: int = 1, path: str = "sturdy") -> list[GrantRow]:
    world.start_tokens(count, path=path)
    rows = []
    for task in world.fake.tasks.values():
        task.status, task.attempt, task.holder = "claimed", 1, ("box", "died")
        task.until = world.fake.clock() + 120.0
        rows.append(GrantRow(task.id, 1, path, task.token.name, DIED))
    return rows


@pytest.mark.parametrize(("features", "kind"), [(EXTENDED, "task_released"), (BASELINE, "task_failed")])
def test_what_a_dead_process_ran_is_settled_at_once_a_46(features: tuple[str, ...], kind: str) -> None:
    async def main(world: World) -> None:
        left(world, *claimed_by_the_dead(world, 3))

        async with world.agent({"sturdy": lambda _: DONE}):
            await until(lambda: completed(world) == 3, 5.0)

            assert all(kind in kinds(world, f"t{number}") for number in range(3))
            assert [task.attempt for task in world.fake.tasks.values()] == [2, 2, 2]
        assert world.outbox._database.execute("SELECT count(*) FROM grants").fetchone() == (0,)

    simulate(main, features=features)


def test_a_copied_outbox_settles_no_grant_bh_010() -> None:
    async def main(world: World) -> None:
        left(world, *claimed_by_the_dead(world), is_copied=True)

        async with world.agent({"sturdy": lambda _: DONE}):
            await anyio.sleep(10.0)

            assert held(world) == 1
            assert world.heard("/tasks/messages") == world.heard("/tasks/1/report") == []
        assert world.outbox._database.execute("SELECT count(*) FROM grants").fetchone() == (0,)

    simulate(main)


# Stop.


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


def test_a_fault_of_ours_in_one_loop_is_told_and_the_loop_goes_on() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": lambda _: DONE}) as agent:
            real = agent.supervisor._roster.settle

            def broken(*_: Any) -> None:
                agent.supervisor._roster.settle = real
                raise RuntimeError("a fault of ours")

            agent.supervisor._roster.settle = broken
            await until(lambda: world.lines.of("loop.failed"))

            (line,) = world.lines.of("loop.failed")
            assert "a fault of ours" in line["traceback"]
            world.start_tokens(1, prefix="u")
            await until(lambda: completed(world) == 2)

    simulate(main)
