"""Steps: done once, whichever kind of routine does them, and kept by name and occurrence."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from msgspec import Raw
from stateous_contract.messages import PassedStep
from supervisor.sdk.planes import BOTH, Plane, attempt, both

from stateous_supervisor import AsyncContext, AttemptLost, Context

VALUES: list[Any] = [None, False, 0, "", [], {"ü": [1, {"x": None}]}, 2**70, 1.5, "😀"]


@BOTH
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_step_runs_once_and_its_value_comes_back_s2_06_s2_07(value: Any, is_async: bool) -> None:
    plane, ran = Plane(), []

    def make() -> Any:
        ran.append(1)
        return value

    assert both(plane, "a", make, is_async=is_async) == value
    assert both(plane, "a", make, is_async=is_async) == value
    assert (ran, plane.kinds) == ([1], ["checkpoint"])


@BOTH
def test_what_comes_back_has_been_json_also_the_first_time(is_async: bool) -> None:
    assert both(Plane(), "a", lambda: (1, {2: 3}), is_async=is_async) == [1, {"2": 3}]


@BOTH
def test_the_value_that_stands_comes_back_whoever_made_it_s2_30(is_async: bool) -> None:
    plane = Plane()
    plane.values["a", 1] = b'"first"'

    if is_async:

        async def awaited(ctx: AsyncContext[Any]) -> Any:
            return await ctx.step("a", lambda: "second")

        got = attempt(plane, awaited=awaited, checkpoints=[])
    else:
        got = attempt(plane, lambda ctx: ctx.step("a", lambda: "second"), checkpoints=[])

    assert got == "first"


def test_the_thousandth_step_says_no_more_than_the_hundredth() -> None:
    """Nothing of what was passed goes along with a step; only a park tells it."""
    plane = Plane()

    def plain(ctx: Context[Any]) -> None:
        for number in range(1_000):
            ctx.step(f"s{number:03}", lambda: 1)

    attempt(plane, plain)

    sizes = {len(json.dumps(said)) for _, said in plane.heard}
    assert len(plane.heard) == 1_000
    assert len(sizes) == 1


def test_a_step_takes_any_kind_of_function_s2_12() -> None:
    async def awaited(ctx: AsyncContext[Any]) -> list[int]:
        async def one(value: int = 1) -> int:
            await asyncio.sleep(0)
            return value

        return [
            await ctx.step("a", one),
            await ctx.step("b", lambda: one(2)),
            await ctx.step("c", lambda: 2),
        ]

    assert attempt(Plane(), awaited=awaited) == [1, 2, 2]


def test_an_awaitable_in_a_def_routine_is_refused() -> None:
    async def one() -> int:
        return 1

    with pytest.raises(TypeError, match="the step 'a' returned an awaitable; the steps of a def routine"):
        attempt(Plane(), lambda ctx: ctx.step("a", one))


@BOTH
@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (object(), TypeError, "the value of the step 'a' is not JSON"),
        (float("nan"), TypeError, "holds NaN"),
        ("\0", TypeError, "a NUL character"),
        ("x" * 1_100_000, ValueError, "1,100,002 bytes of JSON; at most"),
    ],
    ids=["object", "nan", "nul", "large"],
)
def test_a_value_that_cannot_be_kept_is_a_clear_failure(
    value: Any, kind: type[Exception], told: str, is_async: bool
) -> None:
    plane = Plane()

    with pytest.raises(kind, match=told):
        both(plane, "a", lambda: value, is_async=is_async)

    assert plane.heard == []


@BOTH
def test_a_step_that_raises_is_not_passed_bh_044(is_async: bool) -> None:
    plane, tries = Plane(), [ZeroDivisionError("no"), 5]

    def make() -> Any:
        made = tries.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    with pytest.raises(ZeroDivisionError):
        both(plane, "a", make, is_async=is_async)
    assert both(plane, "a", make, is_async=is_async) == 5


def test_steps_side_by_side_replay_by_name_whoever_was_faster_s2_22_dx_20() -> None:
    plane, ran = Plane(), []

    async def work(ctx: AsyncContext[Any], name: str, turns: int) -> str:
        async def make() -> str:
            for _ in range(turns):
                await asyncio.sleep(0)
            ran.append(name)
            return name.upper()

        return await ctx.step(name, make)

    async def first(ctx: AsyncContext[Any]) -> list[str]:
        return await asyncio.gather(
            *(work(ctx, name, turns) for name, turns in [("a", 9), ("b", 1), ("c", 4)])
        )

    async def then(ctx: AsyncContext[Any]) -> list[str]:
        return await asyncio.gather(
            *(work(ctx, name, turns) for name, turns in [("c", 1), ("a", 2), ("d", 1)])
        )

    assert attempt(plane, awaited=first) == ["A", "B", "C"]
    assert ran == ["b", "c", "a"]
    assert attempt(plane, awaited=then) == ["C", "A", "D"]
    assert ran == ["b", "c", "a", "d"]


@pytest.mark.parametrize("seed", range(100))
def test_steps_side_by_side_are_kept_over_kills_in_the_middle_dx_20(seed: int) -> None:
    """Ten named steps with random delays; the routine is cut off at a random turn, until it comes through."""
    luck, plane = random.Random(seed), Plane()
    kept: list[str] = []
    names = [f"step-{number}" for number in range(10)]

    async def awaited(ctx: AsyncContext[Any]) -> list[str]:
        async def work(name: str) -> str:
            async def make() -> str:
                for _ in range(luck.randrange(8)):
                    await asyncio.sleep(0)
                assert name not in kept
                return name.upper()

            made = await ctx.step(name, make)
            kept.append(name)
            return made

        return await asyncio.gather(*(work(name) for name in names))

    async def cut_off(ctx: AsyncContext[Any]) -> list[str] | None:
        kept[:] = [step for step, _ in plane.values]
        routine = asyncio.ensure_future(awaited(ctx))
        for _ in range(luck.randrange(1, 12)):
            await asyncio.sleep(0)
        if routine.done():
            return await routine
        routine.cancel()
        await asyncio.wait([routine])
        return None

    got = None
    while got is None:
        got = attempt(plane, awaited=cut_off)

    assert got == [name.upper() for name in names]
    assert len(plane.heard) == 10


def test_a_step_has_a_key_that_every_attempt_has() -> None:
    seen: list[str] = []

    async def awaited(ctx: AsyncContext[Any]) -> None:
        async def make() -> None:
            await asyncio.sleep(0)
            seen.append(ctx.step_key)

        await asyncio.gather(ctx.step("a", make), ctx.step("b", make))

    attempt(Plane(), lambda ctx: ctx.step("a", lambda: seen.append(ctx.step_key)))
    attempt(Plane(), awaited=awaited)

    assert seen == ["T-1.7.1.a#1", "T-1.7.1.a#1", "T-1.7.1.b#1"]
    with pytest.raises(RuntimeError, match="not outside"):
        attempt(Plane(), lambda ctx: ctx.step_key)


def test_a_durable_call_inside_a_step_is_refused() -> None:
    with pytest.raises(RuntimeError, match="a durable call inside the step 'a'"):
        attempt(Plane(), lambda ctx: ctx.step("a", lambda: ctx.ask("b")))


@BOTH
def test_what_did_not_fit_the_grant_is_read_once(is_async: bool) -> None:
    plane = Plane()
    plane.values = {(f"s{number}", 1): str(number).encode() for number in range(5)}
    plane.page = 2
    brought = [PassedStep(step="s0", occurrence=1, seq=1, value=Raw(b"0"))]
    more: dict[str, Any] = {"checkpoints": brought, "checkpoints_more": True}

    def never() -> int:
        raise AssertionError

    if is_async:

        async def awaited(ctx: AsyncContext[Any]) -> list[int]:
            return [await ctx.step(f"s{number}", never) for number in range(5)]

        got = attempt(plane, awaited=awaited, **more)
    else:
        got = attempt(plane, lambda ctx: [ctx.step(f"s{number}", never) for number in range(5)], **more)

    assert got == [0, 1, 2, 3, 4]
    assert [body["after"] for kind, body in plane.heard] == [1, 3]


@BOTH
def test_no_step_begins_once_the_attempt_is_lost_s2_49(is_async: bool) -> None:
    plane, ran = Plane(), []
    plane.cause = "cancelled"

    with pytest.raises(AttemptLost):
        both(plane, "a", lambda: ran.append(1), is_async=is_async)

    assert ran == []
