"""A durable routine from its first line to its end, through all waits, and whether it finds its way again.

The routine is parked at each wait, and before each step that follows a new one in the same run, as a person's pause
would do it; it then starts from the top with what stands. So each point is come by again in every later run. A run
that ends without having come by a point that stands is not the run that it was (S2-13).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.messages import Grant

from stateous_supervisor.host.rehearsal import grant_of
from stateous_supervisor.sdk.context import EnteredBy
from stateous_supervisor.sdk.durable import Reply
from stateous_supervisor.sdk.endings import Parked
from stateous_supervisor.sdk.marks import Mark, RoutineRef, context_model, input_model
from stateous_supervisor.sdk.occurrences import Occurrence
from stateous_supervisor.sdk.payloads import completed, input_read, result_text
from stateous_supervisor.sdk.replay import Point, Replay
from stateous_supervisor.sdk.values import read
from stateous_supervisor.testing.once import (
    Outcome,
    Place,
    Port,
    Question,
    call,
    context_of,
    entry_of,
    marked,
    outcome_from,
)
from stateous_supervisor.testing.plane import PARKED, READY, Plane

END: Final = "its end"


class NotDeterministic(AssertionError):
    """A routine did not come by what it had passed, in the same code with the same values.

    Args:
        run: which run from the top it was, from 1.
        expected: the durable call that an earlier run passed, ``name#occurrence``, or ``its end``.
        found: the durable call that came in its place, ``its end``, or the failure that came after its end only.
            Questions are ``question:name#occurrence``.
    """

    def __init__(self, run: int, expected: str, found: str) -> None:
        super().__init__(
            f"the routine is not deterministic: run {run} was to come to {expected!r}, as the runs before it did, "
            f"and came to {found!r}"
        )
        self.run = run
        self.expected = expected
        self.found = found


def run_through(
    routine: Any,
    given: Any = None,
    *,
    context: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    entered_by: str | Occurrence[Any] | EnteredBy | None = "__started__",
    answers: Mapping[Place, Any] | None = None,
    signals: Mapping[Place, Any] | None = None,
    children: Mapping[Place, Any] | None = None,
    started: datetime | None = None,
    runs_max: int = 1_000,
) -> Outcome:
    """Run a durable routine to its end, `def` or `async def`; return what it did at last, with all that was passed.

    It starts from the top after each step and each wait, and once more after its end. Functions of steps run once.
    Nobody waits: a clock of its own jumps. A value may be ``After("2h", value)``, which comes that much later.
    A routine whose wait nothing ends is `parked`, as is one whose answer comes after the question's time.

    Args:
        routine: a function that is marked with `on_state` or `routine`.
        given: the input of a routine without a graph.
        context: the token's context, as for `run`.
        memory: what earlier attempts left.
        entered_by: the event that brought the token here, as for `run`.
        answers: what people answer, by the question's key, or by ``(key, occurrence)`` where it is asked again.
        signals: the payloads of the signals that are sent, by name, or by ``(name, 2)`` for another of that name.
        children: the results of children, by the name given to `spawn`, or the routine's; an exception is a failure.
        started: when the run begins, with its offset from UTC, for `sleep_until`. Without it: now.
        runs_max: after how many runs from the top a routine is taken for one without an end.

    Raises:
        NotDeterministic: a run did not come by what an earlier one had passed.
        RuntimeError: it has no end within `runs_max` runs.
        TypeError, ValueError: as for `run`.
    """
    moment = started or datetime.now(UTC)
    plane = Plane(moment, answers=answers or {}, signals=signals or {}, children=children or {})
    play = _Play(routine, given, context or {}, entered_by, plane)
    outcome = play.run(memory or {})
    while outcome.kind == "parked" and plane.wake():
        if play.runs >= runs_max:
            raise RuntimeError(f"the routine has not come to its end within {runs_max} runs from the top")
        outcome = play.run(outcome.memory)
    runs = play.runs
    if outcome.kind in ("event", "waiting", "returned"):
        again = play.run(outcome.memory, is_over=True)
        if again.failed:
            raise NotDeterministic(play.runs, END, str(again.error)) from again.exception
    steps = {str(point): read(value) for point, value in plane.points.items()}
    elapsed_s = (plane.now - moment).total_seconds()
    return replace(outcome, questions=plane.questions, steps=steps, runs=runs, elapsed_s=elapsed_s)


class _Play:
    """One routine, and how often it has run from the top."""

    def __init__(
        self, routine: Any, given: Any, context: Mapping[str, Any], entered_by: Any, plane: Plane
    ) -> None:
        self.runs = 0
        self._routine = routine
        self._mark = marked(routine)
        self._model = context_model(routine)
        has_graph = not isinstance(self._mark.state, RoutineRef)
        is_filled = has_graph and self._model is not None
        self._context = completed(self._model, context) if is_filled else dict(context)
        self._entered_by = entry_of(entered_by) if has_graph else None
        self._input = result_text(given, "the input")
        self._plane = plane

    def run(self, memory: Mapping[str, Any], *, is_over: bool = False) -> Outcome:
        """Run it once from the top. `is_over`: it has been to its end, so that nothing new may come.

        Raises NotDeterministic.
        """
        self.runs += 1
        grant = self._grant(memory)
        port = _Port(self._model, self._plane, self.runs, is_over=is_over, is_strict=self._mark.is_strict)
        context = context_of(self._routine, grant, port)
        book = context._run = _Book(grant, is_strict=port.is_strict)  # noqa: SLF001  the same package's own book, with a list beside it
        returned, error = call(self._routine, lambda: (context, *self._arguments()), port)
        outcome = outcome_from(
            self._mark, context, port, returned=returned, exception=error, before=self._context
        )
        if outcome.kind != "failed":
            book.check(self.runs, is_over=is_over)
        return outcome

    def _grant(self, memory: Mapping[str, Any]) -> Grant:
        grant = grant_of(
            state=self._mark.state.name,
            context=self._context,
            memory=memory,
            entered_by=self._entered_by,
            token="token-1",
            visit=1,
            attempt=self.runs,
        )
        passed, answers = self._plane.passed(), self._plane.answered()
        made = msgspec.structs.replace(grant, version=self._mark.version, checkpoints=passed, answers=answers)
        return _without_graph(made, self._mark, self._input)

    def _arguments(self) -> tuple[Any, ...]:
        ref = self._mark.state
        if not isinstance(ref, RoutineRef):
            return ()
        return (input_read(input_model(self._routine), self._input, ref.routine),)


class _Port(Port):
    """Brings what the routine asks to the plane, and parks it before anything new once something new has passed."""

    def __init__(self, model: Any, plane: Plane, run: int, *, is_over: bool, is_strict: bool) -> None:
        super().__init__(model, is_lost=False, answers={}, is_strict=is_strict)
        self._plane = plane
        self._run = run
        self._is_over = is_over
        self._has_new = False

    def check_held(self) -> None:
        """Nothing: steps beside the one that parked are to be come by too, and what is new parks."""

    def is_pausing(self) -> bool:
        return self._has_new or self._is_over or self.is_parked

    def rest_s(self, seconds: float) -> float:
        self._plane.now += timedelta(seconds=seconds)
        return 0.0

    def call(self, kind: str, body: bytes) -> Future[Reply]:
        made: Future[Reply] = Future()
        if kind == "diverged":
            self.fault = self.fault or _diverged(self._run, read(body))
            made.set_exception(self.fault)
            return made
        if kind != "checkpoint" and (self._is_over or self.is_parked):
            self.is_parked = True
            made.set_exception(Parked("user_paused"))
            return made
        try:
            made.set_result(self._asked(kind, read(body)))
        except ValueError as error:
            self.fault, self.is_parked = error, True
            made.set_exception(Parked("user_paused"))
        return made

    def _asked(self, kind: str, said: dict[str, Any]) -> Reply:
        said.pop("locked_decisions", None)
        reply = self._plane.ask(Question(**said)) if kind == "ask" else self._at_point(kind, said)
        self._has_new = True
        self.is_parked = self.is_parked or reply.is_parked
        return reply

    def _at_point(self, kind: str, said: dict[str, Any]) -> Reply:
        if "step" not in said:
            return PARKED
        point = Point(said["step"], said["occurrence"])
        if kind == "spawn":
            return self._plane.spawn(point)
        if kind == "park":
            return self._plane.park(point, said["wait"])
        kept = self._plane.keep(point, said.get("value"))
        if kind == "pause":
            return PARKED if self._has_new else READY
        return kept


class _Book(Replay):
    """The book of one run, and where the code came by, in order."""

    def __init__(self, grant: Grant, *, is_strict: bool) -> None:
        super().__init__(grant, is_strict=is_strict)
        self._standing = [*map(str, self._values), *(f"question:{point}" for point in self._answers)]
        self._seen: list[str] = []

    def step(self, name: str, occurrence: int | None) -> Point:
        point = super().step(name, occurrence)
        self._seen.append(str(point))
        return point

    def question(self, key: str, occurrence: int | None) -> Point:
        point = super().question(key, occurrence)
        self._seen.append(f"question:{point}")
        return point

    def check(self, run: int, *, is_over: bool) -> None:
        """Raise NotDeterministic where the code did not come by what stands, or after its end by something new."""
        seen, standing = set(self._seen), set(self._standing)
        unmet = next((each for each in self._standing if each not in seen), None)
        new = next((each for each in self._seen if each not in standing), None)
        if unmet is not None or (is_over and new is not None):
            raise NotDeterministic(run, unmet or END, new or END)


def _diverged(run: int, said: dict[str, Any]) -> NotDeterministic:
    unmet = Point(said["step"], said["occurrence"])
    return NotDeterministic(run, str(unmet), said["wait"]["found"] or END)


def _without_graph(grant: Grant, mark: Mark, given: str) -> Grant:
    if not isinstance(mark.state, RoutineRef):
        return grant
    name = mark.state.routine
    return msgspec.structs.replace(
        grant, token="", state="", visit=0, routine=name, input=Raw(given.encode())
    )
