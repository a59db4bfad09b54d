"""A step that is tried again in its attempt: how often, after what rest, and what ends it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from supervisor.sdk.planes import BOTH, Plane, attempt

from stateous_supervisor import AsyncContext, AttemptLost, routine
from stateous_supervisor.testing import run_through


def failing(times: int, error: type[BaseException] = ConnectionError) -> tuple[list[int], Callable[[], Any]]:
    """A function that raises so many times, and what counts its calls."""
    ran: list[int] = []

    def make() -> str:
        ran.append(len(ran))
        if len(ran) <= times:
            raise error("not yet")
        return "done"

    return ran, make


def step(plane: Plane, make: Callable[[], Any], *, is_async: bool, **how: Any) -> Any:
    if is_async:

        async def awaited(ctx: AsyncContext[Any]) -> Any:
            return await ctx.step("a", make, **how)

        return attempt(plane, awaited=awaited)
    return attempt(plane, lambda ctx: ctx.step("a", make, **how))


@BOTH
def test_a_step_is_tried_again_after_rests_that_double_up_to_a_minute(is_async: bool) -> None:
    plane, (ran, make) = Plane(), failing(5)

    assert step(plane, make, is_async=is_async, retries=5, backoff="7s") == "done"
    assert (len(ran), plane.rests, plane.kinds) == (6, [7.0, 14.0, 28.0, 56.0, 60.0], ["checkpoint"])


@BOTH
def test_the_last_error_is_raised_and_nothing_is_stored(is_async: bool) -> None:
    plane, (ran, make) = Plane(), failing(9)

    with pytest.raises(ConnectionError, match="not yet"):
        step(plane, make, is_async=is_async, retries=2)

    assert (len(ran), plane.rests, plane.values, plane.works) == (3, [1.0, 2.0], {}, 0)


@BOTH
@pytest.mark.parametrize("how", [{}, {"retries": 3, "not_retryable": (KeyError, OSError)}])
def test_without_retries_and_for_named_errors_nothing_is_tried_again(
    how: dict[str, Any], is_async: bool
) -> None:
    plane, (ran, make) = Plane(), failing(1)

    with pytest.raises(ConnectionError):
        step(plane, make, is_async=is_async, **how)

    assert (len(ran), plane.rests) == (1, [])


@BOTH
@pytest.mark.parametrize("error", [SystemExit, AttemptLost, asyncio.CancelledError])
def test_what_is_no_exception_ends_the_step_at_once(error: type[BaseException], is_async: bool) -> None:
    _, make = failing(1, error)

    with pytest.raises(error):
        step(plane := Plane(), make, is_async=is_async, retries=3)

    assert plane.rests == []


@BOTH
def test_the_key_of_a_step_is_the_same_in_each_try(is_async: bool) -> None:
    from stateous_supervisor.sdk.driving import step_key

    keys: list[str] = []

    def make() -> None:
        keys.append(step_key())
        if len(keys) < 3:
            raise OSError

    step(Plane(), make, is_async=is_async, retries=2)

    assert keys == ["T-1.7.1.a#1"] * 3


@pytest.mark.parametrize("seconds", [3_600.0])
def test_a_rest_ends_when_the_attempt_is_lost_s2_49(seconds: float) -> None:
    """The wait is an hour, and the test would not end."""

    class Resting(Plane):
        def rest_s(self, asked: float) -> float:
            self.cause = "attempt_over"
            return seconds

    ran, make = failing(1)

    with pytest.raises(AttemptLost):
        step(Resting(), make, is_async=False, retries=1)

    assert len(ran) == 1


def test_a_timeout_cancels_what_is_awaited_and_counts_as_an_error() -> None:
    ended: list[str] = []

    async def hangs() -> str:
        if len(ended) == 2:
            return "done"
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    plane = Plane()

    assert step(plane, hangs, is_async=True, retries=2, timeout=0.05) == "done"
    assert (ended, plane.rests) == (["cancelled", "cancelled"], [1.0, 2.0])
    ended.clear()
    with pytest.raises(TimeoutError, match=r"the step 'a' was not done within 0\.05 s, and was cancelled"):
        step(Plane(), hangs, is_async=True, timeout=0.05)


def test_a_timeout_of_the_functions_own_keeps_its_text() -> None:
    async def own() -> None:
        raise TimeoutError("the server took too long")

    with pytest.raises(TimeoutError, match="the server took too long"):
        step(Plane(), own, is_async=True, timeout=60)


def test_a_plain_function_is_not_interrupted_and_a_def_routine_has_no_timeout_of_steps() -> None:
    assert step(Plane(), lambda: 3, is_async=True, timeout=60) == 3
    with pytest.raises(TypeError, match="timeout"):
        step(Plane(), lambda: 3, is_async=False, timeout=60)


@BOTH
@pytest.mark.parametrize(
    ("how", "kind", "told"),
    [
        ({"retries": -1}, ValueError, "retries is -1; it must be a whole number from 0 to 1000"),
        ({"retries": True}, ValueError, "retries is True"),
        ({"backoff": "2m"}, ValueError, "backoff is '2m'; a step rests in place, for at most 60 s"),
        ({"backoff": 0}, ValueError, "backoff is 0; it must be above 0"),
        ({"not_retryable": "OSError"}, TypeError, "not_retryable is a class of errors, or a tuple of them, not 'OSError'"),
    ],
)  # fmt: skip
def test_what_is_no_way_to_try_is_refused_before_anything_runs(
    how: dict[str, Any], kind: type[Exception], told: str, is_async: bool
) -> None:
    ran, make = failing(0)

    with pytest.raises(kind, match=told):
        step(Plane(), make, is_async=is_async, **how)

    assert ran == []


def test_nobody_rests_in_a_unit_test_and_the_clock_says_how_long_it_would_have_been() -> None:
    _, make = failing(2)

    @routine("tried")
    def tried(ctx: Any, given: Any) -> Any:
        return ctx.step("a", make, retries=2, backoff=20)

    outcome = run_through(tried)

    assert (outcome.result, outcome.elapsed_s) == ("done", 60.0)
