"""A request that is cut each time, because something on the way takes nothing so large (BH-040)."""

from __future__ import annotations

import re
from typing import Any

import anyio
import httpx
from msgspec import Raw
from supervisor.doubles import (
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

from stateous_supervisor.agent import cuts
from stateous_supervisor.link.frames import Answer, Call, Remembered

LIMIT = 100_000
LARGE = DONE | {"context": Raw(b'{"label":"' + b"x" * 300_000 + b'"}')}


class Narrow:
    """Cuts the connection under each body above `limit`, and remembers when."""

    def __init__(self, world: World, limit: int = LIMIT) -> None:
        self.limit = limit
        self.cut_at: list[float] = []
        self._app = world.app
        world.app = self.app  # type: ignore[method-assign]

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > self.limit:
            self.cut_at.append(anyio.current_time())
            raise httpx.WriteError("connection reset by peer")
        told = [{"type": "http.request", "body": body}]

        async def again() -> Any:
            return told.pop() if told else await receive()

        await self._app(scope, again, send)


@BOTH
def test_an_outcome_that_is_cut_each_time_while_others_pass_fails_with_its_size_bh_040(
    features: tuple[str, ...],
) -> None:
    """The attempt fails once for each retry, within a few minutes, and holds up nobody."""

    async def main(world: World) -> None:
        world.start_tokens(1, path="brittle")
        world.start_tokens(3, prefix="small")
        narrow = Narrow(world)
        async with world.agent({"brittle": lambda _: LARGE, "plain": lambda _: DONE}):
            await until(lambda: completed(world) == 3, 10.0)
            await until(lambda: "task_failed" in kinds(world), 600.0)

            error = text_of(world, "task_failed")
            assert re.search(r"cut \d times in a row under its 300,\d+ bytes", error)
            assert "task_done" not in kinds(world)
            assert narrow.cut_at[-1] - narrow.cut_at[0] >= cuts.SPAN_S
            sent = len(narrow.cut_at)
            await anyio.sleep(600.0)
            assert len(narrow.cut_at) == sent
            assert held(world) == 0

    simulate(main, features=features)


@BOTH
def test_cuts_through_which_nobody_gets_an_answer_fail_nothing_bh_040(features: tuple[str, ...]) -> None:
    """An outage that looks like cuts: however long it is, the outcome is kept and arrives."""

    async def main(world: World) -> None:
        world.start_tokens(1)

        async def large(_: Any) -> Any:
            await anyio.sleep(5.0)
            narrow.limit = -1
            return LARGE

        narrow = Narrow(world)
        async with world.agent({"plain": large}):
            await until(lambda: len(narrow.cut_at) > 100, 3_600.0)
            narrow.limit = 10_000_000
            await until(lambda: completed(world) == 1, 120.0)

            assert "task_failed" not in kinds(world)

    simulate(main, features=features, lease_s=1e6)


@BOTH
def test_a_limit_that_goes_away_in_time_costs_nothing_bh_040(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        narrow = Narrow(world)
        async with world.agent({"plain": lambda _: LARGE}):
            await until(lambda: narrow.cut_at)
            await anyio.sleep(cuts.SPAN_S - 5.0)
            narrow.limit = 10_000_000
            await until(lambda: completed(world) == 1, 60.0)

            assert "task_failed" not in kinds(world)

    simulate(main, features=features)


def test_a_memory_write_that_is_cut_each_time_is_set_aside_and_the_outcome_arrives_bh_040() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({})

        def routine(grant: Any) -> dict[str, Any]:
            value = Raw(b'"' + b"x" * 200_000 + b'"')
            hosts.last.say(Remembered(task=grant.task, attempt=grant.attempt, key="k", value=value))
            return DONE

        hosts.routines["plain"] = routine
        Narrow(world)
        async with world.agent(hosts):
            await until(lambda: completed(world) == 1, 600.0)

            (refused,) = world.lines.of("message.refused")
            assert (refused["message"], refused["code"]) == ("memory", "cut_on_the_way")
            assert "task_failed" not in kinds(world)

    simulate(main)


def test_a_call_that_is_cut_each_time_is_answered_to_its_routine_bh_040() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        Narrow(world)
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            body = Raw(b'{"key":"' + b"x" * 200_000 + b'"}')
            hosts.last.say(Call(id=1, call="ask", body=body, task=1, attempt=1))
            await until(lambda: any(isinstance(frame, Answer) for frame in hosts.last.heard), 600.0)

            (answer,) = [frame for frame in hosts.last.heard if isinstance(frame, Answer)]
            assert (answer.status, b"cut_on_the_way" in bytes(answer.body)) == (413, True)

    simulate(main, features=("wait", "batch", "release", "questions"))


def after(count: int, *, answered: bool = True) -> cuts.Cuts:
    found = cuts.NONE
    for number in range(count):
        found = cuts.cut_again(found, 10.0 * number, number if answered else 0)
    return found


def test_it_takes_many_cuts_over_a_while_and_answers_between_them() -> None:
    assert cuts.are_enough(after(5), 40.0, cuts.BYTES_MIN)
    assert not cuts.are_enough(after(4), 40.0, cuts.BYTES_MIN)
    assert not cuts.are_enough(after(5), 29.9, cuts.BYTES_MIN)
    assert not cuts.are_enough(after(50, answered=False), 500.0, cuts.BYTES_MIN)
    assert not cuts.are_enough(after(50), 500.0, cuts.BYTES_MIN - 1)
