"""What the next start makes of what a dead process left (A-46, BH-010)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from supervisor.doubles import (
    BASELINE,
    BOTH,
    DONE,
    EXTENDED,
    ScriptedHosts,
    World,
    completed,
    held,
    kinds,
    simulate,
    until,
)

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.outbox import Batch, GrantRow, WriteFailed

DIED = Identity("box", "died")


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


@BOTH
def test_what_was_left_is_settled_before_the_folder_has_loaded_a_46(features: tuple[str, ...]) -> None:
    """A folder may take minutes to import; nobody's retry waits for that."""

    async def main(world: World) -> None:
        left(world, *claimed_by_the_dead(world))
        loads = anyio.Event()

        class Slow(ScriptedHosts):
            @asynccontextmanager
            async def open(self, generation: int) -> AsyncIterator[Any]:
                await loads.wait()
                async with super().open(generation) as host:
                    yield host

        async with world.agent(Slow({"sturdy": lambda _: DONE})):
            await until(lambda: held(world) == 0, 5.0)
            assert not world.lines.of("host.started")
            loads.set()
            await until(lambda: completed(world) == 1, 10.0)

    simulate(main, features=features)


@pytest.mark.parametrize(("features", "runs"), [(EXTENDED, 0), (BASELINE, 1)])
def test_a_grant_that_the_disk_does_not_take_is_given_back_or_waits_a_41(
    features: tuple[str, ...], runs: int
) -> None:
    async def main(world: World) -> None:
        ran: list[Any] = []
        commit = world.outbox.commit
        is_full = True

        def refuse(batch: Batch) -> None:
            if is_full and batch.grants:
                raise WriteFailed("no space left")
            commit(batch)

        def routine(grant: Any) -> Any:
            ran.append(grant)
            return DONE

        world.outbox.commit = refuse  # type: ignore[method-assign]
        async with world.agent({"plain": routine}) as agent:
            world.start_tokens(1)
            await until(lambda: world.lines.of("outbox.failed"))
            await anyio.sleep(30.0)

            seen = agent.supervisor.look()
            assert (ran, seen.outbox_is_writable, seen.is_claiming) == ([], False, False)
            assert held(world) == runs  # kept by heartbeats where it cannot be given back
            assert len(world.lines.of("task.claimed")) == 1
            is_full = False
            await until(lambda: completed(world) == 1, 10.0)
            assert len(ran) == 1
            assert world.lines.of("outbox.mended")

    simulate(main, features=features)
