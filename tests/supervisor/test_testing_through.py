"""`stateous_supervisor.testing.run_through`: a durable routine to its end, with a clock that jumps, and found out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import subprocess
import sys
import traceback
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from stateous_supervisor import (
    AsyncContext,
    Context,
    Finished,
    Occurrence,
    Received,
    Result,
    Signal,
    Sleep,
    StateRef,
    TimedOut,
    on_state,
    routine,
)
from stateous_supervisor.testing import After, NotDeterministic, run, run_through

ROOT = Path(__file__).parents[2]
DAY_S = 86_400.0


class Size(BaseModel):
    size: int


class built(Occurrence[Size]):
    name = "built"


BUILDING: StateRef[built] = StateRef("building", emits=(built,))


def of(body: Any) -> Any:
    """A routine without a graph that does `body`."""

    @routine("r")
    def done(ctx: Context[Any], given: Any) -> Any:
        return body(ctx)

    return done


@routine("orders.ship")
def ship(ctx: Context[Any], order: dict[str, Any]) -> dict[str, Any]:
    label = ctx.step("label", lambda: f"label {order['number']}")
    ctx.sleep_for("cool-off", "6h")
    paid = ctx.wait_for_signal("paid", timeout="14d")
    if isinstance(paid, TimedOut):
        return {"state": "never paid"}
    child = ctx.spawn("orders.pack", order)
    packed = ctx.wait_for_result(child, timeout="1d")
    agreed = ctx.ask("ok", choices=["yes", "no"])
    sent = ctx.step("hand over", lambda: f"{label} by {paid.payload}")
    return {"sent": sent, "box": packed.value if isinstance(packed, Finished) else None, "agreed": agreed}


def test_a_routine_goes_through_all_that_it_waits_for_and_no_time_passes_s2_08() -> None:
    outcome = run_through(
        ship, {"number": 7},
        signals={"paid": After("1d", "card")}, children={"orders.pack": After("2h", "box 7")}, answers={"ok": "yes"},
    )  # fmt: skip

    assert (outcome.kind, outcome.error) == ("returned", None)
    assert outcome.result == {"sent": "label 7 by card", "box": "box 7", "agreed": "yes"}
    assert outcome.elapsed_s == DAY_S + 2 * 3_600
    assert list(outcome.steps) == [
        "label#1", "cool-off#1", "signal:paid#1", "spawn:orders.pack#1", "result:2#1", "hand over#1",
    ]  # fmt: skip
    assert [question.key for question in outcome.questions] == ["ok"]


def test_what_never_comes_times_out_or_leaves_the_routine_parked() -> None:
    timed_out = run_through(ship, {"number": 7})
    parked = run_through(ship, {"number": 7}, signals={"paid": 1})
    late = run_through(of(lambda ctx: ctx.ask("ok", ttl="1h")), answers={"ok": After("2h", 1)})
    no_child = run_through(of(lambda ctx: ctx.wait_for_result(ctx.spawn("c", name="one")).value))

    assert (timed_out.result, timed_out.elapsed_s) == ({"state": "never paid"}, 14 * DAY_S + 6 * 3_600)
    assert (parked.kind, parked.reason) == ("parked", "awaiting_user_answer:ok")
    assert parked.question is not None
    assert (parked.steps["result:2#1"], late.kind) == ({"outcome": "timeout"}, "parked")
    assert (no_child.kind, no_child.reason) == ("parked", "awaiting_result:2")


def test_functions_of_steps_run_once_and_what_is_outside_of_them_in_each_run_s2_03_s2_06() -> None:
    ran: list[str] = []

    def body(ctx: Context[Any]) -> int:
        ran.append("top")
        ctx.memory["runs"] = ctx.memory.get("runs", 0) + 1
        for name in ("a", "b"):
            ctx.step(name, partial(ran.append, name))
        ctx.checkpoint("here")
        ctx.sleep_for("nap", 60)
        return ctx.attempt

    outcome = run_through(of(body))

    assert [each for each in ran if each != "top"] == ["a", "b"]
    # Before b, after the checkpoint, after the sleep, and once more after the end.
    assert (ran.count("top"), outcome.runs, outcome.result, outcome.memory) == (5, 4, 4, {"runs": 4})


async def _slowly(value: str, ticks: int) -> str:
    for _ in range(ticks):
        await asyncio.sleep(0)
    return value


def test_steps_side_by_side_in_any_order_are_no_difference_s2_22() -> None:
    @on_state(BUILDING)
    async def build(ctx: AsyncContext[Any]) -> built:
        async def branch(name: str, ticks: int) -> int:
            await ctx.step(f"{name}1", lambda: _slowly(name, ticks))
            await ctx.step(f"{name}2", lambda: name)
            await ctx.step(f"{name}3", lambda: name)
            return 3

        sizes = await asyncio.gather(branch("a", 9), branch("b", 3), branch("c", 1))
        ctx["size"] = sum(sizes)
        return built(Size(size=ctx["size"]))

    outcome = run_through(build, context={"size": 0})

    assert (outcome.event, outcome.payload, outcome.writes) == ("built", {"size": 9}, {"size": 9})
    assert len(outcome.steps) == 9


@pytest.mark.parametrize("seed", range(40))
def test_branches_of_steps_and_sleeps_in_any_mixture_are_no_difference_s2_22(seed: int) -> None:
    dice = random.Random(seed)
    plans = [[dice.choice("pas ") for _ in range(dice.randint(1, 4))] for _ in range(dice.randint(2, 4))]
    has_group = dice.random() < 0.5

    @routine("mixed")
    async def mixed(ctx: AsyncContext[Any], given: Any) -> None:
        async def branch(number: int) -> None:
            for place, kind in enumerate(plans[number]):
                name = f"{number}.{place}"
                if kind == "p":
                    await ctx.step(name, lambda: 1)
                elif kind == "a":
                    await ctx.step(name, lambda: _slowly("x", number))
                elif kind == "s":
                    await ctx.sleep_for(name, "1h")
                else:
                    await _slowly("x", number)

        if has_group:
            async with asyncio.TaskGroup() as group:
                for number in range(len(plans)):
                    group.create_task(branch(number))
        else:
            await asyncio.gather(*map(branch, range(len(plans))))

    outcome = run_through(mixed)

    assert (outcome.kind, outcome.error) == ("returned", None)
    assert len(outcome.steps) == sum(kind != " " for plan in plans for kind in plan)


def test_a_park_within_a_group_is_a_park_and_a_test_can_be_ended_there() -> None:
    @routine("grouped")
    async def grouped(ctx: AsyncContext[Any], ends: bool) -> None:
        async def fails() -> None:
            pytest.fail("not like this")

        async with asyncio.TaskGroup() as group:
            group.create_task(fails() if ends else ctx.wait_for_signal("go"))

    outcome = run_through(grouped, False)

    assert (outcome.kind, outcome.reason) == ("parked", "awaiting_signal:go#1")
    with pytest.raises(BaseExceptionGroup) as ended:
        run_through(grouped, True)
    assert ended.group_contains(pytest.fail.Exception)


def test_a_name_that_is_another_one_in_each_run_is_found_s2_13() -> None:
    numbers = itertools.count(1)

    def body(ctx: Context[Any]) -> None:
        ctx.step(f"draw-{next(numbers)}", lambda: 1)
        ctx.step("b", lambda: 2)

    with pytest.raises(
        NotDeterministic, match=r"run 2 was to come to 'draw-1#1', as .* came to 'draw-2#1'"
    ) as found:
        run_through(of(body))

    assert (found.value.run, found.value.expected, found.value.found) == (2, "draw-1#1", "draw-2#1")


def body_of_turns(first: Any, later: Any) -> Any:
    """A body that does `first` in its first run, and `later` in all others."""
    turns = itertools.count()

    def body(ctx: Any) -> None:
        (later if next(turns) else first)(ctx)

    return body


@pytest.mark.parametrize(
    ("first", "later", "expected", "found"),
    [
        (lambda c: c.step("a", int), lambda c: None, "a#1", "its end"),
        (lambda c: None, lambda c: c.step("a", pytest.fail), "its end", "a#1"),
        (lambda c: None, lambda c: c.spawn("x"), "its end", "spawn:x#1"),
        (lambda c: c.ask("go"), lambda c: c.sleep_for("nap", 1), "question:go#1", "nap#1"),
        (lambda c: c.sleep_for("nap", 1), lambda c: c.ask("go"), "nap#1", "question:go#1"),
        (lambda c: c.spawn("x"), lambda c: c.wait_for_signal("s"), "spawn:x#1", "signal:s#1"),
        (lambda c: [c.step("a", int), c.step("a", int)], lambda c: c.step("b", int), "a#1", "b#1"),
    ],
)  # fmt: skip
def test_each_kind_of_call_that_is_not_come_by_again_is_named(
    first: Any, later: Any, expected: str, found: str
) -> None:
    with pytest.raises(NotDeterministic) as raised:
        run_through(of(body_of_turns(first, later)), answers={"go": 1}, signals={"s": 1})

    assert (raised.value.expected, raised.value.found) == (expected, found)


def test_a_run_that_fails_after_its_end_only_is_told() -> None:
    again = body_of_turns(lambda c: c.step("a", int), lambda c: c.sleep_for("a", 1))

    with pytest.raises(NotDeterministic, match="came to \"RuntimeError: 'a#1' was passed as a step"):
        run_through(of(again))


def test_a_strict_routine_is_stopped_at_the_call_that_is_not_the_one_of_before() -> None:
    """Nothing that comes after it runs, whatever the routine catches; others are told at the end of the run."""
    begun: list[str] = []
    turns = iter([["a", "b"], ["c", "d"]])

    @routine("strict", strict=True)
    def body(ctx: Context[Any], given: Any) -> None:
        for name in next(turns):
            with contextlib.suppress(Exception):
                ctx.step(name, partial(begun.append, name))

    with pytest.raises(NotDeterministic) as raised:
        run_through(body)

    assert (raised.value.run, raised.value.expected, raised.value.found) == (2, "a#1", "c#1")
    assert begun == ["a"]
    assert "ctx.step(name" in "".join(traceback.format_tb(raised.value.__traceback__))


def test_a_strict_routine_with_steps_side_by_side_is_deterministic_s2_22() -> None:
    @routine("strict", strict=True)
    async def body(ctx: AsyncContext[Any], given: Any) -> list[int]:
        async def slow(number: int) -> int:
            await asyncio.sleep(0.01 * (3 - number))
            return number

        sides = (ctx.step(f"side {number}", partial(slow, number)) for number in range(3))
        await asyncio.gather(*sides)
        return [await ctx.step("end", lambda: 7)]

    assert run_through(body).result == [7]


def test_of_several_things_the_first_one_counts_and_says_which_dx_09() -> None:
    def body(ctx: Context[Any]) -> list[Any]:
        child = ctx.spawn("c")
        got = [
            ctx.first("one", Sleep("1h"), Signal("go"), Result(child)),
            ctx.first("two", Sleep("1h"), Result(child)),
            ctx.first("three", Sleep("2d"), Signal("go"), timeout="1d"),
            ctx.wait_for_signal("go", timeout="30d"),
        ]
        return [repr(each) for each in got]

    outcome = run_through(
        of(body), signals={"go": 1, ("go", 2): After("10d", 2)}, children={"c": After("10m", "done")}
    )

    assert outcome.result == [
        repr(Received("go", 1, 1)),
        repr(Finished(2, "completed", "done", None, None, 1)),
        repr(TimedOut()),
        repr(Received("go", 2)),
    ]
    assert outcome.elapsed_s == 10 * DAY_S


def test_a_child_that_fails_or_takes_too_long_says_so_s2_40() -> None:
    def body(ctx: Context[Any]) -> list[Any]:
        one, two = ctx.spawn("c", name="one"), ctx.spawn("c", name="two")
        failed = ctx.wait_for_result(one)
        late = bool(ctx.wait_for_result(two, timeout="1h"))
        gone = ctx.first("gone", Result(two))
        assert isinstance(failed, Finished)
        assert isinstance(gone, Finished)
        return [failed.state, failed.error, late, gone.state, gone.reason]

    outcome = run_through(of(body), children={"one": KeyError("x"), "two": After("2h", 1)})

    assert outcome.result == [
        "failed", "KeyError: 'x'", False, "cancelled", "cancelled:result_wait_timeout",
    ]  # fmt: skip


def test_a_sleep_until_a_moment_ends_there_and_a_past_one_at_once() -> None:
    start = datetime(2027, 1, 1, 9, tzinfo=UTC)

    def body(ctx: Context[Any]) -> None:
        ctx.sleep_until("past", start - timedelta(days=1))
        ctx.sleep_until("friday", start + timedelta(days=3))

    assert run_through(of(body), started=start).elapsed_s == 3 * DAY_S


def test_a_failure_ends_it_with_what_was_passed() -> None:
    def body(ctx: Context[Any]) -> None:
        ctx.step("a", lambda: 1)
        ctx.step("b", lambda: 1 / 0)

    outcome = run_through(of(body))

    assert (outcome.kind, outcome.error, outcome.steps) == (
        "failed",
        "ZeroDivisionError: division by zero",
        {"a#1": 1},
    )


def test_an_input_and_a_routine_that_do_not_fit_are_told() -> None:
    @routine("typed")
    def typed(ctx: Context[Any], given: Size) -> int:
        return given.size

    assert run_through(typed, Size(size=2)).result == 2
    assert "the input of 'typed' does not fit Size: size: " in str(run_through(typed, {"size": "x"}).error)
    with pytest.raises(
        TypeError, match=r"'typed' is a routine without a graph; testing\.run_through takes those"
    ):
        run(cast("Any", typed))
    with pytest.raises(ValueError, match="the answer 'maybe' to 'go' is none of its choices"):
        run_through(of(lambda ctx: ctx.ask("go", choices=["yes"])), answers={"go": "maybe"})


def test_a_routine_without_an_end_is_not_run_for_ever() -> None:
    def body(ctx: Context[Any]) -> None:
        while True:
            ctx.sleep_for("poll", "1h")

    with pytest.raises(RuntimeError, match="not come to its end within 20 runs from the top"):
        run_through(of(body), runs_max=20)


def test_the_durable_example_of_the_how_to_page_passes(tmp_path: Path) -> None:
    """The page's second Python block is a whole test file, run as the page says."""
    page = (ROOT / "docs" / "how-to" / "test-a-routine.md").read_text("utf-8")
    (tmp_path / "test_publishing.py").write_text(page.split("```python\n")[2].partition("```")[0])

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "test_publishing.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "examples" / "publish"), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
