"""What becomes of work when its host dies or cannot be started, on a jumping clock (A-05, A-23, A-25, BH-029)."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from supervisor.doubles import (
    BASELINE,
    BOTH,
    DONE,
    ScriptedHosts,
    World,
    completed,
    held,
    kinds,
    simulate,
    stay,
    text_of,
    until,
)

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host import HostUnusable
from stateous_supervisor.agent.replacing import ABANDONED_MAX
from stateous_supervisor.link.frames import BrokenFile, Outcome, Pulse, Run, Unfit


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


def are(hosts: ScriptedHosts, count: int) -> bool:
    return len(hosts.all) == count


def test_the_next_hosts_are_there_at_once_and_those_that_keep_dying_back_off_a_23() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await until(lambda: hosts.all)
            first_at = anyio.current_time()
            for _ in range(12):
                count = len(hosts.all)
                hosts.last.die("exit code 1")
                await until(partial(are, hosts, count + 1), 40.0)
                if count == cadence.DEATHS_AT_ONCE:
                    assert anyio.current_time() - first_at < 0.5

            assert anyio.current_time() - first_at > 20.0
            hosts.last.die("exit code 1")
            await until(lambda: not agent.supervisor.look().hosts)
            seen = agent.supervisor.look()
            assert (seen.host_deaths, seen.last_death) == (13, "exit code 1")
            assert seen.lacks_host

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


def test_the_silence_of_a_host_that_died_pauses_nothing_a_22() -> None:
    """Its successor lives, and gets work."""

    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": lambda _: DONE})
        hosts.facts["has_pulse"] = True

        async with world.agent(hosts) as agent:
            await until(lambda: hosts.all)
            await anyio.sleep(1.0)
            hosts.last.die()
            for _ in range(20):
                await anyio.sleep(0.3)
                hosts.last.say(Pulse(loop_lag_s=0.0))
                assert not agent.roster.paused

    simulate(main)


def test_a_host_that_is_not_fit_gets_nothing_more_and_keeps_what_it_has_a_23() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await until(lambda: held(world) == 1)
            hosts.routines["plain"] = lambda _: DONE
            for _ in range(3):
                hosts.last.say(Unfit(reason="no descriptors"))
            hosts.last.say(Outcome(task=1, attempt=1, outcome="waiting"))
            world.start_tokens(3, prefix="late")
            await until(lambda: completed(world) == 3, 10.0)

            told = world.lines.of("host.unfit")
            assert [(line["reason"], line["running"]) for line in told] == [("no descriptors", 1)]
            assert [host.generation for host in hosts.all] == [1, 2]
            assert [len([f for f in host.heard if isinstance(f, Run)]) for host in hosts.all] == [1, 3]
            assert agent.supervisor.generation == 2
            assert "task_released" not in kinds(world)

    simulate(main)


def test_a_crowded_host_that_is_not_fit_either_is_replaced_once_a_23() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": lambda _: DONE})

        async with world.agent(hosts):
            await until(partial(are, hosts, 1))
            hosts.last.say(Pulse(loop_lag_s=0.0, abandoned=ABANDONED_MAX))
            hosts.last.say(Unfit(reason="no descriptors"))
            await until(lambda: world.lines.of("host.unfit"))
            await anyio.sleep(10.0)

            assert len(world.lines.of("host.crowded")) == 1
            assert [host.generation for host in hosts.all] == [1, 2]

    simulate(main)


def test_hosts_that_are_not_fit_again_and_again_are_replaced_with_backoff_a_23() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": lambda _: DONE})

        async with world.agent(hosts):
            began_at = anyio.current_time()
            for number in range(1, 2 * cadence.DEATHS_AT_ONCE):
                await until(partial(are, hosts, number), 100.0)
                hosts.last.say(Unfit(reason="no descriptors"))
            waits = [line["next_in_s"] for line in world.lines.of("host.unfit")]
            assert waits[: cadence.DEATHS_AT_ONCE] == [0.0] * cadence.DEATHS_AT_ONCE
            assert anyio.current_time() - began_at > 1.0
            unfit = hosts.last
            world.start_tokens(1)
            await until(lambda: completed(world) == 1, 100.0)
            assert not [frame for frame in unfit.heard if isinstance(frame, Run)]

    simulate(main)
