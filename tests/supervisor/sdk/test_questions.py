"""Questions, pauses and refusals: what parks a routine, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from supervisor.sdk.planes import BOTH, Plain, Plane, attempt, both

from stateous_supervisor import AsyncContext, CallRefused, Context, FeatureMissing, Parked


def test_a_question_parks_with_its_id_and_later_gives_its_answer_s1_41_s1_66() -> None:
    plane = Plane()

    def body(ctx: Context[Any]) -> str:
        ctx.step("built", lambda: 1)
        return ctx.ask("go", {"n": 1}, choices=["yes", "no"], ttl="2h", remind="30m")

    with pytest.raises(Parked) as parked:
        attempt(plane, body)
    assert (parked.value.question, parked.value.reason) == (12, "awaiting_user_answer:go")
    assert not isinstance(parked.value, Exception)
    assert plane.heard[1] == (
        "ask",
        {
            "key": "go",
            "occurrence": 1,
            "data": {"n": 1},
            "choices": ["yes", "no"],
            "ttl_s": 7200.0,
            "remind_s": 1800.0,
            "locked_decisions": {
                "run": "7.1",
                "node": "built#1",
                "visited": ["built#1"],
                "bindings": {"built": "built#1"},
            },
        },
    )

    plane.answers["go", 1] = "yes"
    assert [attempt(plane, body), attempt(plane, body)] == ["yes", "yes"]
    assert attempt(plane, body, answers=[]) == "yes"  # an answer that did not fit the grant
    assert plane.kinds.count("ask") == 2


@BOTH
def test_a_question_in_a_loop_is_a_new_one_each_time_dx_07(is_async: bool) -> None:
    plane = Plane()

    def body(ctx: Context[Any]) -> int:
        while (given := ctx.ask("number")) < 0:
            pass
        return int(given)

    async def awaited(ctx: AsyncContext[Any]) -> int:
        while (given := await ctx.ask("number")) < 0:
            pass
        return int(given)

    def run() -> Any:
        return attempt(plane, awaited=awaited) if is_async else attempt(plane, body)

    for number, given in enumerate([-1, -7, 42], 1):
        with pytest.raises(Parked):
            run()
        assert plane.heard[-1][1]["occurrence"] == number
        plane.answers["number", number] = given

    assert run() == 42
    assert len(plane.heard) == 3


def test_two_questions_may_swap_places_dx_07() -> None:
    plane = Plane()
    plane.answers = {("a", 1): "of a", ("b", 1): "of b"}

    assert attempt(plane, lambda ctx: [ctx.ask("b"), ctx.ask("a")]) == ["of b", "of a"]


class Decision(BaseModel):
    go: bool
    why: str = ""


def test_an_answer_is_read_into_the_type_that_was_asked_for() -> None:
    plane = Plane()
    with pytest.raises(Parked):
        attempt(plane, lambda ctx: ctx.ask("go", schema=Decision))
    assert plane.heard[0][1]["schema"]["properties"]["go"]["type"] == "boolean"

    plane.answers["go", 1] = {"go": True}
    assert attempt(plane, lambda ctx: ctx.ask("go", schema=Decision)) == Decision(go=True)
    plane.answers["go", 1] = {"go": "perhaps"}
    with pytest.raises(ValueError, match="the answer to 'go' does not fit Decision: go: Input should be"):
        attempt(plane, lambda ctx: ctx.ask("go", schema=Decision))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda ctx: ctx.ask(""), "a question's key is text of 1 to 128 printable characters, not ''"),
        (lambda ctx: ctx.ask("a", object()), "the data of the question 'a' is not JSON"),
        (lambda ctx: ctx.ask("a", ttl="soon"), "ttl is 'soon'; it must be seconds, or a whole number"),
        (lambda ctx: ctx.ask("a", remind=0), "remind is 0; it must be above 0"),
        (lambda ctx: ctx.ask("a", occurrence=0), "an occurrence is a whole number from 1, not 0"),
        (lambda ctx: ctx.ask("a", schema=object()), "neither a JSON Schema nor a type"),
        (lambda ctx: ctx.step("a\n", list), "a step is text of 1 to 128 printable characters"),
        (lambda ctx: ctx.step("a" * 129, list), "a step is text of 1 to 128 printable characters"),
        (lambda ctx: ctx.checkpoint(7), "a checkpoint is text of 1 to 128 printable characters, not 7"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_sent(call: Plain, told: str) -> None:
    plane = Plane()

    with pytest.raises((ValueError, TypeError)) as refused:
        attempt(plane, call)

    assert told in str(refused.value)
    assert plane.heard == []


def test_a_checkpoint_is_passed_once_and_parks_where_a_pause_is_requested_s1_71_s1_76() -> None:
    plane = Plane()
    attempt(plane, lambda ctx: ctx.checkpoint("between"))
    attempt(plane, lambda ctx: ctx.checkpoint("between"))
    assert len(plane.heard) == 1

    def both(ctx: Context[Any]) -> None:
        ctx.checkpoint("between")
        ctx.checkpoint("later")

    plane.pauses = 2
    with pytest.raises(Parked, match="user_paused"):
        attempt(plane, both)
    said = plane.heard[-1][1]
    assert (said["step"], said["occurrence"], said["wait"]) == ("later", 1, {"kind": "pause"})
    assert said["locked_decisions"]["visited"] == ["between#1", "later#1"]


@BOTH
def test_a_pause_is_observed_before_a_step_and_never_before_a_passed_one(is_async: bool) -> None:
    """S1-70, S1-74: a request that was taken back is forgotten."""
    plane = Plane()
    both(plane, "a", lambda: 1, is_async=is_async)
    plane.pauses = 2
    both(plane, "a", lambda: 1, is_async=is_async)

    with pytest.raises(Parked):
        both(plane, "b", lambda: 1, is_async=is_async)
    assert "step" not in plane.heard[-1][1]

    plane.pauses = 1
    assert both(plane, "b", lambda: 2, is_async=is_async) == 2


def test_a_park_waits_for_the_steps_beside_it_s1_70() -> None:
    plane = Plane()

    async def awaited(ctx: AsyncContext[Any]) -> None:
        may_end = asyncio.Event()

        async def slow() -> str:
            await may_end.wait()
            return "done"

        async def later() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            may_end.set()

        await asyncio.gather(ctx.step("slow", slow), ctx.ask("go"), later())

    with pytest.raises(Parked):
        attempt(plane, awaited=awaited)

    assert plane.kinds == ["checkpoint", "ask"]
    assert plane.heard[1][1]["locked_decisions"]["node"] == "slow#1" or plane.values == {
        ("slow", 1): b'"done"'
    }


@BOTH
def test_a_feature_that_is_not_offered_is_named_a_64(is_async: bool) -> None:
    plane = Plane()
    plane.refusal = (501, {"code": "feature_missing", "error": "ctx.step needs the feature 'checkpoints'"})

    with pytest.raises(FeatureMissing, match=r"ctx\.step needs the feature 'checkpoints'"):
        both(plane, "a", lambda: 1, is_async=is_async)


def test_a_refusal_is_an_error_like_any_other() -> None:
    plane = Plane()
    plane.refusal = (422, {"code": "invalid_question", "error": "the question's schema is none"})

    with pytest.raises(CallRefused) as refused:
        attempt(plane, lambda ctx: ctx.ask("a", schema={"type": "nope"}))

    assert (refused.value.code, str(refused.value)) == (
        "invalid_question",
        "the question's schema is none (invalid_question)",
    )
