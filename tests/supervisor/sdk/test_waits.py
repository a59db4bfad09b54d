"""Waits and children: parked once, read from what stands, in routines of both kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from supervisor.sdk.planes import BOTH, Plane, attempt

from stateous_supervisor import (
    AsyncContext,
    Child,
    ChildFailed,
    Context,
    Finished,
    Parked,
    Received,
    Result,
    Signal,
    Sleep,
    Slept,
    TimedOut,
    routine,
)

Call = Callable[[Any], Any]
NOON = datetime(2026, 12, 24, 12, tzinfo=UTC)
DONE = {"outcome": "result", "task": 17, "state": "completed", "result": [1]}
FAILED = {"outcome": "result", "task": 17, "state": "failed", "reason": "failed:exception", "error": "no"}
# A call, the wait that it sends with its step, why it is parked, what the control plane says of its end, and what
# the routine is given.
WAITS: list[tuple[Call, dict[str, Any], str, str, dict[str, Any], Any]] = [
    (
        lambda ctx: ctx.sleep_for("cool-off", "5m"),
        {"kind": "sleep", "for_s": 300.0},
        "cool-off",
        "sleeping:cool-off#1",
        {"outcome": "slept"},
        None,
    ),
    (
        lambda ctx: ctx.sleep_until("noon", NOON),
        {"kind": "sleep", "until": "2026-12-24T12:00:00+00:00"},
        "noon",
        "sleeping:noon#1",
        {"outcome": "slept"},
        None,
    ),
    (
        lambda ctx: ctx.wait_for_signal("go"),
        {"kind": "signal", "name": "go"},
        "signal:go",
        "awaiting_signal:go#1",
        {"outcome": "signal", "name": "go", "payload": {"n": 2**70}},
        Received("go", {"n": 2**70}),
    ),
    (
        lambda ctx: ctx.wait_for_signal("go", timeout=1.5),
        {"kind": "signal", "name": "go", "timeout_s": 1.5},
        "signal:go",
        "awaiting_signal:go#1",
        {"outcome": "timeout"},
        TimedOut(),
    ),
    (
        lambda ctx: ctx.wait_for_result(Child(17, "a"), timeout="1h"),
        {"kind": "result", "task": 17, "timeout_s": 3600.0},
        "result:17",
        "awaiting_result:17",
        DONE,
        Finished(17, "completed", [1]),
    ),
    (
        lambda ctx: ctx.first("one of", Signal("go"), Result(17), Sleep("1h"), timeout="2h"),
        {
            "kind": "any",
            "of": [
                {"kind": "signal", "name": "go"},
                {"kind": "result", "task": 17},
                {"kind": "sleep", "for_s": 3600.0},
            ],
            "timeout_s": 7200.0,
        },
        "one of",
        "awaiting_any:one of#1",
        {"outcome": "slept", "index": 2},
        Slept(2),
    ),
]
ALL = pytest.mark.parametrize("case", WAITS, ids=lambda case: case[3])


def run(plane: Plane, call: Call, *, is_async: bool) -> Any:
    """Make one call in a routine of either kind."""
    if not is_async:
        return attempt(plane, call)

    async def awaited(ctx: AsyncContext[Any]) -> Any:
        return await call(ctx)

    return attempt(plane, awaited=awaited)


@BOTH
@ALL
def test_a_wait_parks_with_its_point_and_says_why(case: Any, is_async: bool) -> None:
    """S2-31 … S2-33: one request; what it says is the whole wait."""
    call, said, step, reason, _, _ = case
    plane = Plane()
    with pytest.raises(Parked) as parked:
        run(plane, call, is_async=is_async)

    [(kind, body)] = plane.heard
    assert (kind, body["wait"], body["step"], body["occurrence"]) == ("park", said, step, 1)
    assert body["locked_decisions"]["run"] == "7.1"
    assert parked.value.reason == reason


@BOTH
@ALL
def test_what_ended_a_wait_comes_back_at_once_and_on_each_replay(case: Any, is_async: bool) -> None:
    """S2-09, DX-09: a wait that is over already costs no park, and a replay sends nothing."""
    call, _, step, _, told, wanted = case
    plane = Plane()
    plane.ended[step] = told

    got = [run(plane, call, is_async=is_async) for _ in range(2)]

    assert got == [wanted, wanted]
    assert plane.kinds == ["park"]
    assert bool(got[0]) is (wanted is not None and wanted != TimedOut())


@BOTH
def test_a_child_is_started_once_and_adopted_by_a_replay_s2_34(is_async: bool) -> None:
    plane = Plane()

    @routine("reports.publish", version=3)
    def publish(ctx: Context[Any], request: dict[str, int]) -> None: ...

    def call(ctx: Any) -> Any:
        return ctx.spawn(publish, {"id": 1}, retries=2)

    assert [run(plane, call, is_async=is_async) for _ in range(2)] == [Child(100, "reports.publish")] * 2
    [(kind, body)] = plane.heard
    wanted = {"routine": "reports.publish", "version": 3, "input": {"id": 1}, "retries": 2}
    assert (kind, body) == ("spawn", {"step": "spawn:reports.publish", "occurrence": 1, **wanted})


def test_children_of_one_routine_are_told_apart_by_order_or_name() -> None:
    plane = Plane()

    def body(ctx: Context[Any]) -> list[int]:
        kids = [ctx.spawn("a", 1), ctx.spawn("a", 2), ctx.spawn("a", 3, name="third", version=4)]
        return [kid.task for kid in kids]

    assert attempt(plane, body) == attempt(plane, body) == [100, 101, 102]
    places = [(said["step"], said["occurrence"], said["version"]) for _, said in plane.heard]
    assert places == [("spawn:a", 1, 1), ("spawn:a", 2, 1), ("spawn:third", 1, 4)]


def test_the_value_of_a_child_that_did_not_complete_is_an_error() -> None:
    plane = Plane()
    plane.ended["result:17"] = FAILED

    with pytest.raises(ChildFailed, match=r"task 17 is failed \(failed:exception\): no") as failed:
        attempt(plane, lambda ctx: ctx.wait_for_result(17).value)

    assert (failed.value.task, failed.value.state) == (17, "failed")
    plane.ended["result:18"] = DONE
    assert attempt(plane, lambda ctx: ctx.wait_for_result(18).value) == [1]


BAD: list[tuple[Call, type[Exception], str]] = [
    (lambda ctx: ctx.sleep_for("", 1), ValueError, "a sleep is text of 1 to 128 printable characters"),
    (lambda ctx: ctx.sleep_for("a", 0), ValueError, "the time of a sleep is 0; it must be above 0"),
    (lambda ctx: ctx.sleep_for("a", -5), ValueError, "the time of a sleep is -5; it must be above 0"),
    (
        lambda ctx: ctx.sleep_for("a", float("nan")),
        ValueError,
        "the time of a sleep is nan; it must be above 0",
    ),
    (
        lambda ctx: ctx.sleep_for("a", float("inf")),
        ValueError,
        "is inf; it must be above 0 and at most 3650 days",
    ),
    (lambda ctx: ctx.sleep_for("a", "1000000000d"), ValueError, "is '1000000000d'; it must be above 0 and"),
    (lambda ctx: ctx.sleep_for("a", "1 day"), ValueError, "the time of a sleep is '1 day'"),
    (lambda ctx: ctx.sleep_until("a", datetime(2026, 1, 1)), ValueError, "names no moment"),  # noqa: DTZ001
    (lambda ctx: ctx.wait_for_signal("a/b"), ValueError, "no '/', and this one is 'a/b'"),
    (lambda ctx: ctx.wait_for_signal("x" * 122), ValueError, "1 to 121 printable characters"),
    (lambda ctx: ctx.wait_for_signal("a", timeout="x"), ValueError, "timeout is 'x'"),
    (lambda ctx: ctx.wait_for_result("a"), TypeError, "a result is that of a Child"),
    (lambda ctx: ctx.first("a"), ValueError, "first takes 1 to 100 waits, not 0"),
    (lambda ctx: ctx.first("a", "go"), TypeError, "first takes Sleep, Signal and Result, not 'go'"),
    (lambda ctx: ctx.spawn("a b"), ValueError, "marked with @routine, or its name, not 'a b'"),
    (lambda ctx: ctx.spawn(print, 1), ValueError, "marked with @routine, or its name"),
    (lambda ctx: ctx.spawn("a", object()), TypeError, "the input of 'a' is not JSON"),
    (lambda ctx: ctx.spawn("a", retries=-1), ValueError, "retries is -1"),
]


@BOTH
@pytest.mark.parametrize(("call", "kind", "told"), BAD, ids=[told for _, _, told in BAD])
def test_what_is_no_wait_is_one_clear_sentence_and_nothing_is_sent(
    call: Call, kind: type[Exception], told: str, is_async: bool
) -> None:
    """BH-045: a moment without its offset is refused here already."""
    plane = Plane()
    with pytest.raises(kind) as refused:
        run(plane, call, is_async=is_async)
    assert told in str(refused.value)
    assert plane.heard == []


@BOTH
@pytest.mark.parametrize(("fold", "moment"), [(0, "01:30"), (1, "00:30")])
def test_a_moment_that_no_clock_shows_is_one_all_the_same_bh_045(
    fold: int, moment: str, is_async: bool
) -> None:
    """In the gap of a change of clocks Python reads it by the offset before, or with `fold` by the one after it."""
    plane = Plane()
    in_the_gap = datetime(2027, 3, 28, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)

    with pytest.raises(Parked):
        run(plane, lambda ctx: ctx.sleep_until("spring", in_the_gap), is_async=is_async)

    [(_, said)] = plane.heard
    until = datetime.fromisoformat(said["wait"]["until"]).astimezone(UTC)
    assert until.isoformat() == f"2027-03-28T{moment}:00+00:00"


def test_a_point_that_was_a_step_is_not_taken_for_a_wait() -> None:
    plane = Plane()
    attempt(plane, lambda ctx: ctx.step("a", lambda: 5))
    with pytest.raises(RuntimeError, match="'a#1' was passed as a step and is a wait by now"):
        attempt(plane, lambda ctx: ctx.sleep_for("a", 1))


def test_both_kinds_have_the_same_calls() -> None:
    for name in ("sleep_for", "sleep_until", "wait_for_signal", "wait_for_result", "first", "spawn"):
        plain, awaited = getattr(Context, name), getattr(AsyncContext, name)
        assert inspect.signature(plain) == inspect.signature(awaited)
        assert inspect.iscoroutinefunction(awaited)
