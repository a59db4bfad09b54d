"""A loop of the agent that hangs, in a process that goes on: systemd gets no sign of life any more (A-55, BH-058)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from supervisor.doubles import DONE, World, simulate, stay, until
from supervisor.running.managed import Manager

from stateous_supervisor.agent.announcing import announce
from stateous_supervisor.systemd.notify import Notifier

HELD = {"beat": "heartbeats", "claim": "claims", "tell": "delivery"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.door.close()


def settled() -> anyio.Event:
    """Stands for an agent whose socket can be asked."""
    event = anyio.Event()
    event.set()
    return event


@pytest.mark.parametrize("call", HELD)
def test_a_loop_that_hangs_is_named_and_the_watchdog_is_not_answered(call: str, manager: Manager) -> None:
    """The call never comes back, in spite of its deadline: a fault of ours, not of the control plane."""
    notifier = Notifier(str(manager.path), watchdog_s=60.0)

    async def main(world: World) -> None:
        world.start_tokens(2)
        routine: Any = stay if call == "beat" else (lambda _: DONE)
        async with (
            world.agent({"plain": routine}) as agent,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(announce, agent.supervisor, agent.stop, notifier, settled())
            await until(lambda: manager.count("WATCHDOG=1") >= 2)
            plane = agent.supervisor._control_plane
            setattr(plane, call, lambda *_, **__: anyio.sleep_forever())
            if call == "tell":
                world.start_tokens(1, prefix="more")
            await until(lambda: HELD[call] in agent.supervisor.progress.late())
            answered = manager.count("WATCHDOG=1")
            await anyio.sleep(600.0)  # of a clock that jumps
            assert manager.count("WATCHDOG=1") == answered
            assert HELD[call] in agent.supervisor.look().late_loops
            tasks.cancel_scope.cancel()
            delattr(plane, call)
            agent.kill()

    simulate(main)


def test_a_control_plane_that_is_away_for_an_hour_makes_no_loop_late(manager: Manager) -> None:
    notifier = Notifier(str(manager.path), watchdog_s=60.0)

    async def main(world: World) -> None:
        world.start_tokens(1)
        async with (
            world.agent({"plain": stay}) as agent,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(announce, agent.supervisor, agent.stop, notifier, settled())
            await until(lambda: agent.roster.running)
            world.is_cut = True
            for _ in range(60):
                before = manager.count("WATCHDOG=1")
                await anyio.sleep(60.0)
                assert manager.count("WATCHDOG=1") > before
            tasks.cancel_scope.cancel()
            agent.kill()

    simulate(main)
