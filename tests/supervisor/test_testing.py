"""`stateous_supervisor.testing`: what a user's unit test of a routine sees (A-61)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from stateous_supervisor import AsyncContext, Context, EnteredBy, Occurrence, StateRef, on_state
from stateous_supervisor.testing import Outcome, run


class Ticket(BaseModel):
    checkout: str
    tries: int = 0


class Result(BaseModel):
    failures: int


class events:
    class passed(Occurrence[Result]):
        name = "passed"

    class again(Occurrence[None]):
        name = "again"


class states:
    testing: ClassVar[StateRef[events.passed]] = StateRef("testing", emits=(events.passed,))


@on_state(states.testing)
def passes(ctx: Context[Ticket]) -> events.passed:
    ctx.note("running")
    ctx["tries"] = ctx["tries"] + 1
    ctx.memory["seen"] = ctx["checkout"]
    ctx.schedule(events.again, "30s")
    return events.passed(Result(failures=0))


@on_state(states.testing)
async def passes_later(ctx: AsyncContext[Ticket]) -> events.passed:
    await asyncio.sleep(0)
    return events.passed(Result(failures=ctx["tries"]))


def returning(value: Any) -> Any:
    @on_state(states.testing)
    def routine(ctx: Context[Any]) -> Any:
        return value

    return routine


def doing(body: Any) -> Any:
    @on_state(states.testing)
    def routine(ctx: Context[Any]) -> None:
        body(ctx)

    return routine


def test_everything_that_a_routine_did_is_in_its_outcome() -> None:
    assert run(passes, context={"checkout": "/c"}) == Outcome(
        kind="event",
        event="passed",
        payload={"failures": 0},
        occurrence=events.passed(Result(failures=0)),
        notes=["running"],
        writes={"tries": 1},
        context={"checkout": "/c", "tries": 1},
        memory={"seen": "/c"},
        schedules=[{"event": "again", "after": "30s"}],
    )


def test_an_async_routine_needs_no_await() -> None:
    assert run(passes_later, context={"checkout": "/c", "tries": 2}).payload == {"failures": 2}


def test_a_routine_is_tried_inside_a_test_that_is_async_itself() -> None:
    async def test() -> Outcome:
        return run(passes_later, context={"checkout": "/c"})

    assert asyncio.run(test()).event == "passed"


def test_none_is_waiting() -> None:
    outcome = run(returning(None))

    assert (outcome.waiting, outcome.failed, outcome.event) == (True, False, None)


def test_what_a_routine_raises_is_a_failure_with_its_exception() -> None:
    def body(ctx: Any) -> None:
        ctx["lost"] = 1
        ctx.memory["kept"] = 1
        raise RuntimeError("it snapped")

    outcome = run(doing(body), context={"a": 1})

    assert outcome.failed
    assert outcome.error == "RuntimeError: it snapped"
    assert isinstance(outcome.exception, RuntimeError)
    assert (outcome.writes, outcome.context, outcome.memory) == ({}, {"a": 1}, {"kept": 1})


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), StopIteration(), asyncio.CancelledError()])
def test_an_exit_is_a_failure_like_any_other(error: BaseException) -> None:
    def body(ctx: Any) -> None:
        raise error

    assert run(doing(body)).failed


def test_a_test_framework_can_end_the_test_from_within_a_routine() -> None:
    with pytest.raises(pytest.fail.Exception, match="not like this"):
        run(doing(lambda ctx: pytest.fail("not like this")))


def test_an_event_that_the_state_does_not_emit_fails_with_what_is_allowed() -> None:
    outcome = run(returning(events.again()))

    assert outcome.error is not None
    assert (
        "the event 'again', which this state does not emit; it may return events.passed or None"
        in outcome.error
    )


@pytest.mark.parametrize(
    ("given", "name", "payload", "error"),
    [
        ("passed", "passed", None, None),
        (events.passed(Result(failures=3)), "passed", {"failures": 3}, None),
        (EnteredBy("error", None, "it snapped"), "error", None, "it snapped"),
    ],
)
def test_the_event_that_brought_the_token_is_said_in_three_ways(
    given: Any, name: str, payload: Any, error: str | None
) -> None:
    seen: list[Any] = []

    run(doing(lambda ctx: seen.append(ctx.entered_by)), entered_by=given)

    assert [(e.name, e.payload, e.error) for e in seen] == [(name, payload, error)]


def test_who_and_where_the_attempt_is_can_be_said() -> None:
    seen: list[Any] = []

    run(
        doing(lambda ctx: seen.append((ctx.token, ctx.visit, ctx.attempt, dict(ctx.memory)))),
        token="t", visit=2, attempt=3, memory={"a": [1]},
    )  # fmt: skip

    assert seen == [("t", 2, 3, {"a": [1]})]


def test_a_lost_attempt_reports_nothing() -> None:
    def body(ctx: Any) -> None:
        ctx.note("dropped")
        ctx.check()

    outcome = run(doing(body), lost=True)

    assert (outcome.kind, outcome.error, outcome.notes) == ("lost", None, [])
    assert "is lost" in str(outcome.exception)


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({}, "the context does not fit Ticket: checkout: Field required"),
        ({"checkout": 1}, "the context does not fit Ticket: checkout: Input should be a valid string"),
    ],
)
def test_a_context_that_no_token_could_have_is_refused(context: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(passes, context=context)


def test_a_function_without_a_state_is_refused() -> None:
    with pytest.raises(TypeError, match="not marked with on_state"):
        run(lambda ctx: None)


DOC = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-routine.md"
SDLC = Path(__file__).parents[2] / "examples" / "sdlc"


def test_the_example_of_the_how_to_page_passes(tmp_path: Path) -> None:
    """The page's first Python block is a whole test file, run as the page says."""
    block = DOC.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    (tmp_path / "test_coding.py").write_text(block)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "test_coding.py"],
        cwd=tmp_path, env={"PYTHONPATH": str(SDLC), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_routine_that_asks_shows_its_question_and_goes_on_with_answers() -> None:
    def body(ctx: Context[Any]) -> None:
        built = ctx.step("build", lambda: {"size": 3})
        ctx["tries"] = 0
        while ctx.ask("go", built, choices=["yes", "no"], ttl="2h") == "no":
            ctx["tries"] += 1

    parked = run(doing(body))
    done = run(doing(body), answers={"go": "no", ("go", 2): "yes"})

    assert parked.kind == "parked"
    assert parked.question is not None
    assert (parked.question.key, parked.question.data, parked.question.choices) == (
        "go",
        {"size": 3},
        ["yes", "no"],
    )
    assert (parked.steps, parked.writes, parked.failed) == ({"build#1": {"size": 3}}, {}, False)
    assert (done.kind, done.writes, len(done.questions), done.question) == ("waiting", {"tries": 1}, 2, None)


def test_an_async_routine_asks_too_and_a_swallowed_park_is_still_one_dx_06() -> None:
    @on_state(states.testing)
    async def swallows(ctx: AsyncContext[Any]) -> Any:
        try:
            await ctx.ask("go")
        except BaseException:
            ctx.note("swallowed")
        return events.passed(Result(failures=0))

    outcome = run(swallows)

    assert (outcome.kind, outcome.event, outcome.notes) == ("parked", None, [])


def test_an_answer_that_nobody_could_give_is_refused() -> None:
    with pytest.raises(ValueError, match="the answer 'maybe' to 'go' is none of its choices"):
        run(doing(lambda ctx: ctx.ask("go", choices=["yes"])), answers={"go": "maybe"})
