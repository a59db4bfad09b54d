"""What an agent says while nobody answers it: each cause at once, none twice within a minute (A-09, A-57)."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count, cycle
from typing import Any

import anyio
import pytest
from fakes import Fault as Misbehaviour
from supervisor.doubles import DONE, World, read_all, simulate, until

from stateous_supervisor.agent.contact import CAUSES_MAX
from stateous_supervisor.cli import status

EVERY = ("GET /health", "POST /tasks/claim")


def fail(world: World, status: int) -> None:
    world.fake.faults[:] = [Misbehaviour(each, times=100_000, status=status) for each in EVERY]


def told(world: World) -> list[str]:
    """Return the causes that the log has, without what was asked."""
    return [line["error"].partition(" ")[2] for line in world.lines.of("control_plane.unreachable")]


def test_another_cause_is_told_at_once_and_is_in_the_status() -> None:
    async def main(world: World) -> None:
        async with world.agent({"plain": lambda _: DONE}) as agent:
            await until(lambda: world.heard("/tasks/claim"))
            fail(world, 503)
            await until(lambda: told(world) == ["answered 503"], 40.0)
            await anyio.sleep(5.0)
            seen = agent.supervisor.look()
            assert seen.away_cause == "answered 503"
            shown = next(line for line in status._lines(seen) if line.startswith("control plane"))
            assert re.search(r", away for \d+ s: answered 503$", shown)

            fail(world, 502)
            await until(lambda: len(told(world)) == 2, 35.0)

            assert told(world)[1] == "answered 502"
            assert agent.supervisor.look().away_cause == "answered 502"

            world.fake.faults.clear()
            await until(lambda: agent.supervisor.look().away_s is None, 60.0)
            assert agent.supervisor.look().away_cause is None

    simulate(main)


def answering(monkeypatch: pytest.MonkeyPatch, world: World, locations: Any) -> None:
    """Let somebody else answer in place of the control plane, with a redirect to somewhere else each time."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await read_all(receive)
        headers = [(b"location", f"http://{next(locations)}".encode())]
        await send({"type": "http.response.start", "status": 302, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(world, "app", app)


def test_causes_that_take_turns_are_told_once_a_minute_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        answering(monkeypatch, world, cycle(["one", "two"]))
        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(600.0)

            times = Counter(told(world))
            assert len(times) == 2
            assert min(times.values()) >= 5
            assert max(times.values()) <= 11

    simulate(main)


def test_causes_without_end_are_few_lines_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        answering(monkeypatch, world, count())
        async with world.agent({"plain": lambda _: DONE}):
            await anyio.sleep(600.0)

            assert 11 < len(told(world)) <= CAUSES_MAX * 11

    simulate(main)
