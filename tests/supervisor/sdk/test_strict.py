"""Strict routines: a replay that leaves out what was passed parks before anything new is done (S2-13)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from supervisor.sdk.planes import BOTH, Plane, attempt

from stateous_supervisor import AsyncContext, Context, Parked


def strict(**stored: Any) -> Plane:
    """A plane on which steps stand, for a strict routine."""
    plane = Plane()
    plane.is_strict = True
    plane.values = {(name, 1): str(value).encode() for name, value in stored.items()}
    return plane


def follow(plane: Plane, *calls: Any, is_async: bool, **given: Any) -> Any:
    """Make calls one after another; each takes the context."""
    if is_async:

        async def awaited(ctx: AsyncContext[Any]) -> Any:
            return [await call(ctx) for call in calls]

        return attempt(plane, awaited=awaited, **given)
    return attempt(plane, lambda ctx: [call(ctx) for call in calls], **given)


def step(name: str) -> Any:
    return lambda ctx: ctx.step(name, lambda: name)


NEW = {
    "step": (step("new"), "new#1"),
    "checkpoint": (lambda ctx: ctx.checkpoint("here"), "here#1"),
    "sleep": (lambda ctx: ctx.sleep_for("nap", 1), "nap#1"),
    "signal": (lambda ctx: ctx.wait_for_signal("go"), "signal:go#1"),
    "result": (lambda ctx: ctx.wait_for_result(7), "result:7#1"),
    "spawn": (lambda ctx: ctx.spawn("child", 1), "spawn:child#1"),
    "question": (lambda ctx: ctx.ask("ok"), "question:ok#1"),
}


@BOTH
@pytest.mark.parametrize("kind", NEW)
def test_nothing_new_is_begun_while_a_step_that_stands_was_not_come_by_s2_13(
    kind: str, *, is_async: bool
) -> None:
    plane = strict(a=1, gone=2, late=3)
    call, found = NEW[kind]

    with pytest.raises(Parked, match=r"nondeterminism:gone\)") as parked:
        follow(plane, step("a"), call, is_async=is_async)

    [(said, body)] = plane.heard
    assert (said, body["step"], body["occurrence"]) == ("diverged", "gone", 1)
    assert body["wait"] == {"kind": "nondeterminism", "found": found}
    assert body["locked_decisions"]["visited"] == ["a#1"]
    assert parked.value.reason == "nondeterminism:gone"


@BOTH
def test_without_strict_the_routine_goes_on_c12(*, is_async: bool) -> None:
    plane = strict(gone=2)
    plane.is_strict = False

    assert follow(plane, step("new"), is_async=is_async) == ["new"]


@BOTH
def test_steps_may_be_swapped_and_come_after_all_that_stands_s2_16(*, is_async: bool) -> None:
    plane = strict(a=1, b=2)

    assert follow(plane, step("b"), step("a"), step("new"), is_async=is_async) == [2, 1, "new"]


@BOTH
def test_what_did_not_fit_the_grant_is_read_before_anything_new(*, is_async: bool) -> None:
    plane = strict(a=1, gone=2)
    plane.page = 1
    more = {"checkpoints": [], "checkpoints_more": True}

    with pytest.raises(Parked, match="nondeterminism:gone"):
        follow(plane, step("a"), NEW["question"][0], is_async=is_async, **more)

    assert plane.kinds == ["checkpoints", "checkpoints", "diverged"]


def test_steps_side_by_side_may_have_ended_in_any_order_s2_22() -> None:
    """Of three that were begun together the last one alone was kept; a replay does the others."""
    plane = strict(c=3)

    async def awaited(ctx: AsyncContext[Any]) -> Any:
        async def twice(name: str) -> Any:
            return await ctx.step(name, lambda: name), await ctx.step(f"{name}2", lambda: name)

        done = await asyncio.gather(twice("a"), ctx.step("b", lambda: "b"), ctx.step("c", lambda: "c"))
        return [*done, await ctx.step("new", lambda: 4)]

    assert attempt(plane, awaited=awaited) == [("a", "a"), "b", 3, 4]


def test_threads_of_a_def_routine_may_have_ended_in_any_order_s2_22() -> None:
    plane = strict(b=2)

    def plain(ctx: Context[Any]) -> Any:
        done: list[Any] = []
        beside = threading.Thread(target=lambda: done.append(ctx.step("a", lambda: "a")))
        beside.start()
        beside.join()
        return [*done, ctx.step("b", lambda: "b"), ctx.step("new", lambda: 3)]

    assert attempt(plane, plain) == ["a", 2, 3]


def test_what_is_begun_beside_has_its_turn_before_the_own_line_is_judged() -> None:
    """A task that the routine has just begun comes by its step, and one under way is awaited."""
    plane = strict(beside=1, after=2)

    async def awaited(ctx: AsyncContext[Any]) -> Any:
        async def chain() -> Any:
            await ctx.step("beside", lambda: "never")
            await ctx.step("slow", lambda: asyncio.sleep(0.01, "slow"))
            await ctx.step("slow too", lambda: asyncio.sleep(0.01, "slow"))
            return await ctx.step("after", lambda: "never")

        running = asyncio.create_task(chain())
        return await ctx.step("new", lambda: "new"), await running

    assert attempt(plane, awaited=awaited) == ("new", 2)


def test_the_own_line_is_judged_once_what_was_beside_it_is_over() -> None:
    """Beside it nobody is judged; the next new call of the routine itself parks."""
    plane = strict(gone=1)

    async def awaited(ctx: AsyncContext[Any]) -> Any:
        await asyncio.gather(ctx.step("a", lambda: "a"), ctx.step("b", lambda: "b"))
        return await ctx.step("c", lambda: "c")

    with pytest.raises(Parked, match="nondeterminism:gone"):
        attempt(plane, awaited=awaited)

    assert plane.kinds == ["checkpoint", "checkpoint", "diverged"]
