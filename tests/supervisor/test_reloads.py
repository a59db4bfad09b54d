"""What a reload changes in a running agent, on a jumping clock (A-09, A-45)."""

from __future__ import annotations

from typing import Any

import anyio
from supervisor.doubles import ScriptedHosts, World, claims, held, simulate, stay, until

from stateous_supervisor.agent.duty import Orders
from stateous_supervisor.link import frames


def orders(source: ScriptedHosts, **changed: Any) -> Orders:
    kept: dict[str, Any] = {"tasks": 4, "tasks_by_state": {}, "timeouts": {}, "confinements": {}}
    return Orders(**{"source": source, "drain_timeout_s": None, **kept, **changed})


def test_a_reload_brings_other_timeouts_to_what_is_claimed_from_then_on_a_45() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await agent.supervisor.started.wait()
            await agent.supervisor.reload(orders(hosts, timeouts={"plain": 5.0}))
            world.start_tokens(1)
            await until(lambda: held(world) == 1)
            await anyio.sleep(0.1)

            assert [f.timeout_s for f in hosts.last.heard if isinstance(f, frames.Run)] == [5.0]

    simulate(main)


def test_a_reload_brings_another_drain_timeout_a_45() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await until(lambda: held(world) == 1)
            await agent.supervisor.reload(orders(hosts, drain_timeout_s=20.0))
            agent.stop.ask("SIGTERM")
            began = anyio.current_time()
            await agent.over.wait()

            assert 19.0 <= anyio.current_time() - began <= 27.0

    simulate(main)


def test_a_reload_puts_up_other_fences_a_45() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts) as agent:
            await agent.supervisor.started.wait()
            await agent.supervisor.reload(orders(hosts, fenced={"plain"}))
            world.start_tokens(1)
            await until(lambda: held(world) == 1)
            world.is_cut = True
            await anyio.sleep(120.0)

            assert [f.cause for f in hosts.last.heard if isinstance(f, frames.Cancel)] == ["fenced"]

    simulate(main)


def test_a_reload_asks_anew_for_what_it_changed_a_45() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts, tasks=4) as agent:
            await until(lambda: claims(world))
            await anyio.sleep(1.0)
            before = len(claims(world))
            await agent.supervisor.reload(orders(hosts, tasks=9))
            await anyio.sleep(1.0)

            assert [claim for claim in claims(world)[before:] if claim.get("wait")]

    simulate(main)


def test_a_reload_compares_the_contract_anew_a_09() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})

        async with world.agent(hosts, tasks=4) as agent:
            await until(lambda: claims(world))
            await agent.supervisor.reload(orders(hosts))
            await anyio.sleep(1.0)

            assert len(world.heard("/health")) == 2

    simulate(main)
