"""Hosts of their own for suspects, and hosts with too many abandoned routines, on a jumping clock (A-23, A-30)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from supervisor.doubles import (
    DONE,
    ScriptedHost,
    ScriptedHosts,
    World,
    completed,
    held,
    kinds,
    lasting,
    simulate,
    stay,
    text_of,
    until,
)

from stateous_supervisor.agent.host import HostUnusable
from stateous_supervisor.agent.hosts import ALONE_MAX
from stateous_supervisor.agent.replacing import ABANDONED_MAX
from stateous_supervisor.link.frames import BrokenFile, Pulse, Run


def test_suspects_run_alone_and_the_culprit_is_found_a_23() -> None:
    """One of three kills its host. All are given back; then each has a host of its own, and only one fails."""

    async def main(world: World) -> None:
        world.start_tokens(3, path="sturdy")
        hosts = ScriptedHosts({"sturdy": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 3)
            first = hosts.last
            hosts.routines["sturdy"] = stay
            first.die("killed by SIGSEGV")
            await until(lambda: len(hosts.all) == 5)
            await until(lambda: all(len(host.scopes) == 1 for host in hosts.all[2:]))

            assert not hosts.all[1].scopes
            culprit = next(host for host in hosts.all[2:] if host.scopes.keys() == {(2, 2)})
            hosts.routines["sturdy"] = lambda _: DONE
            culprit.die("killed by SIGSEGV")
            await until(lambda: "task_failed" in kinds(world, "t1"))

            assert "SIGSEGV" in text_of(world, "task_failed", "t1")
            assert [task.failures for task in world.fake.tasks.values()] == [0, 1, 0]
            assert held(world) == 2
            await until(lambda: completed(world) == 1)  # its third attempt, again alone
            assert len(world.lines.of("host.started")) == 6

    simulate(main)


def test_a_host_for_a_suspect_ends_with_it_and_takes_nothing_else() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await until(lambda: held(world) == 2)
            hosts.routines["plain"] = lasting(5.0)
            hosts.last.die()
            await until(lambda: len(hosts.all) == 4)
            world.start_tokens(1, prefix="other")
            await until(lambda: completed(world) == 3)

            alone = agent.supervisor.look().hosts
            assert [host.generation for host in alone if not host.is_for_suspect] == [2]
            await until(lambda: len(agent.supervisor.look().hosts) == 1)
            assert [len([f for f in host.heard if isinstance(f, Run)]) for host in hosts.all] == [2, 1, 1, 1]

    simulate(main)


class Slow(ScriptedHosts):
    """From the second host on each takes a second to start, as real ones do."""

    @asynccontextmanager
    async def open(self, generation: int) -> AsyncIterator[ScriptedHost]:
        await anyio.sleep(1.0 if generation > 1 else 0.0)
        async with super().open(generation) as host:
            yield host


def test_the_hosts_of_suspects_start_beside_the_next_one_for_all_a_23() -> None:
    """From host death to the retry running within 2 s: the start of one host, not of two in turn."""

    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = Slow({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 2)
            hosts.last.die()
            await until(lambda: sum(len(host.scopes) for host in hosts.all[1:]) == 2, 1.8)

    simulate(main)


def test_not_more_than_a_few_hosts_are_for_suspects_at_once() -> None:
    """A death of a host with many tasks must not become a host for each of them."""

    async def main(world: World) -> None:
        world.start_tokens(20)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts, tasks=20) as agent:
            await until(lambda: held(world) == 20)
            hosts.routines["plain"] = lasting(5.0)
            hosts.last.die()
            most = 0
            while completed(world) < 20:
                most = max(most, sum(host.is_for_suspect for host in agent.supervisor.look().hosts))
                await anyio.sleep(0.5)

            assert most == ALONE_MAX

    simulate(main)


class Failing(ScriptedHosts):
    """Of the hosts that are started, the third and the fourth cannot be."""

    def open(self, generation: int) -> Any:
        self.unusable = HostUnusable("no host") if generation in (3, 4) else None
        return super().open(generation)


def test_a_suspect_without_a_host_is_given_back() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = Failing({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 2)
            hosts.routines["plain"] = lambda _: DONE
            hosts.last.die()
            await until(lambda: completed(world) == 2)

            assert len(world.lines.of("host.failed")) == 2
            assert "'not_started'" in str(world.fake.tokens["t0"].history)
            assert [task.failures for task in world.fake.tasks.values()] == [0, 0]

    simulate(main)


def test_where_no_host_can_be_added_a_suspect_runs_beside_the_others() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = ScriptedHosts({"plain": stay})
        hosts.can_add = False

        async with world.agent(hosts):
            await until(lambda: held(world) == 2)
            hosts.routines["plain"] = lambda _: DONE
            hosts.last.die()
            await until(lambda: completed(world) == 2)

            assert len(hosts.all) == 2

    simulate(main)


def test_an_abandoned_routine_may_be_what_killed_a_host_a_23() -> None:
    """The one that ran is given back: nobody knows that it was not its neighbour that nobody waits for any more."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts):
            await until(lambda: held(world) == 1)
            hosts.last.say(Pulse(loop_lag_s=0.0, abandoned=1))
            hosts.routines["plain"] = lambda _: DONE
            hosts.last.die()
            await until(lambda: completed(world) == 1)

            assert "task_released" in kinds(world)
            assert "task_failed" not in kinds(world)

    simulate(main)


def test_a_host_with_too_many_abandoned_routines_is_replaced_a_30() -> None:
    """The new host takes new work; the old one ends with its last routine."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": lasting(60.0)})

        async with world.agent(hosts) as agent:
            await until(lambda: held(world) == 1)
            hosts.last.say(Pulse(loop_lag_s=0.0, abandoned=ABANDONED_MAX - 1))
            await until(lambda: agent.supervisor.look().abandoned == ABANDONED_MAX - 1)
            assert len(hosts.all) == 1
            for _ in range(3):
                hosts.all[0].say(Pulse(loop_lag_s=0.0, abandoned=ABANDONED_MAX))
            await until(lambda: len(hosts.all) == 2)
            hosts.routines["plain"] = lambda _: DONE
            world.start_tokens(1, prefix="late")
            await until(lambda: completed(world) == 1)

            assert [host.is_retired for host in agent.supervisor.look().hosts] == [True, False]
            assert world.lines.of("host.crowded")[0]["abandoned"] == ABANDONED_MAX
            await until(lambda: completed(world) == 2)
            await until(lambda: len(agent.supervisor.look().hosts) == 1)
            assert agent.supervisor.look().abandoned == 0
            assert len(hosts.all) == 2
            assert "task_released" not in kinds(world)

    simulate(main)


def test_a_crowded_host_goes_on_where_no_other_can_be_started_a_30() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": lambda _: DONE})

        async with world.agent(hosts) as agent:
            await until(lambda: hosts.all)
            hosts.facts["broken"] = [BrokenFile(file="b.py", line=1, error="bad")]
            hosts.last.say(Pulse(loop_lag_s=0.0, abandoned=ABANDONED_MAX))
            await until(lambda: world.lines.of("host.failed"))
            world.start_tokens(1)
            await until(lambda: completed(world) == 1)
            assert agent.supervisor.generation == 1

            hosts.facts.clear()
            await anyio.sleep(70.0)
            hosts.all[0].say(Pulse(loop_lag_s=0.0, abandoned=ABANDONED_MAX))
            await until(lambda: agent.supervisor.generation > 1)

    simulate(main)
