"""One attempt of a routine, and what its agent would report of it.

Durable calls are there too: steps run, and a question is answered from `answers`, or seen in the outcome.
The context, the checks of what is returned and the texts of failures are those of the real host. What is not here:
processes, timeouts, heartbeats. `stateous-supervisor try` runs a routine in a real host.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from stateous_contract.messages import Grant

from stateous_supervisor.host.failures import describe
from stateous_supervisor.host.outcomes import dropped, outcome_of, parked, raised
from stateous_supervisor.host.rehearsal import LEASE_S, asked, entry, grant_of, reply
from stateous_supervisor.link import frames
from stateous_supervisor.sdk.context import AsyncContext, BaseContext, Context, EnteredBy
from stateous_supervisor.sdk.driving import line
from stateous_supervisor.sdk.durable import Reply
from stateous_supervisor.sdk.endings import AttemptLost, Parked
from stateous_supervisor.sdk.marks import Mark, RoutineRef, context_model, mark_of
from stateous_supervisor.sdk.occurrences import Occurrence
from stateous_supervisor.sdk.payloads import completed, payload_text
from stateous_supervisor.sdk.values import json_text, read

# A name, or a name and which time the code comes by it.
Place = str | tuple[str, int]

# What ends a routine, and not the test.
_ENDS: Final = (Exception, SystemExit, GeneratorExit, AttemptLost, Parked, asyncio.CancelledError)

Routine = (
    Callable[[Any], Coroutine[Any, Any, Occurrence[Any] | None]] | Callable[[Any], Occurrence[Any] | None]
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a routine asked people. Times are seconds; `schema` is a JSON Schema."""

    key: str
    occurrence: int
    data: Any
    schema: Any = None
    choices: list[Any] | None = None
    ttl_s: float
    remind_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a routine did, and what its agent would report.

    Args:
        kind: ``event``, ``waiting`` (it returned None), ``returned`` (a routine without a graph did), ``failed``,
            ``parked`` (it waits), or ``lost`` (nothing is reported).
        event: the name of the returned event.
        payload: the event's payload as plain JSON values, as the control plane gets it.
        occurrence: what was returned, when it is an event.
        error: the text of the failure.
        exception: what was raised, for `raise` or a closer look.
        notes: the lines of progress, in order.
        writes: the context values that are reported; none of a failed attempt are.
        context: the whole context afterwards.
        memory: the memory afterwards; it outlives a failure.
        schedules: the timers that are reported, each with `event`, `after` and perhaps `payload`.
        questions: what was asked, in order; of a parked routine the last one has no answer.
        steps: the values of the steps that were passed, by ``name#occurrence``; of `run_through`, also those of
            waits and children.
        result: what a routine without a graph returned, as plain JSON values.
        reason: why a parked routine is parked, as its task's `watchdog_stop_reason`.
        runs: how often it ran from the top to get there.
        elapsed_s: how far the clock of `run_through` went, in seconds.
    """

    kind: Literal["event", "waiting", "returned", "failed", "parked", "lost"]
    event: str | None = None
    payload: dict[str, Any] | None = None
    occurrence: Occurrence[Any] | None = None
    error: str | None = None
    exception: BaseException | None = None
    notes: list[str] = field(default_factory=list)
    writes: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    schedules: list[dict[str, Any]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    reason: str | None = None
    runs: int = 1
    elapsed_s: float = 0.0

    @property
    def question(self) -> Question | None:
        """The question that a parked routine waits for."""
        return self.questions[-1] if self.kind == "parked" and self.questions else None

    @property
    def waiting(self) -> bool:
        """Whether the token now waits for an event from outside."""
        return self.kind == "waiting"

    @property
    def failed(self) -> bool:
        """Whether the attempt failed, so that it is retried or the token gets the event ``error``."""
        return self.kind == "failed"


def run(
    routine: Routine,
    *,
    context: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    entered_by: str | Occurrence[Any] | EnteredBy | None = "__started__",
    token: str = "token-1",  # noqa: S107  a token of a workflow, no secret
    visit: int = 1,
    attempt: int = 1,
    lost: bool = False,
    answers: Mapping[Place, Any] | None = None,
) -> Outcome:
    """Run a routine once and return what it did. `def` and `async def` alike; nothing is to be awaited.

    Args:
        routine: a function that is marked with `on_state`.
        context: the token's context; defaults of the context model that the routine's annotation names are filled in.
        memory: what earlier attempts left.
        entered_by: the event that brought the token here: a name, an event with its payload such as
            ``events.failed(tests)``, or ``EnteredBy("error", None, "text of the failure")``.
        token: the token's id.
        visit: how many times the token has entered this state.
        attempt: which attempt this is.
        lost: run it as an attempt that is over for the control plane, so that `ctx.check()` raises.
        answers: what people have answered, by the question's key, or by ``(key, occurrence)`` where it is asked again.

    Raises:
        TypeError: the routine is not marked, or a value is not JSON.
        ValueError: the context does not fit the routine's model, or an answer is none of its question's choices.
        KeyboardInterrupt, and what a test framework raises to end a test: passed through. Everything else that the
            routine raises is a failed outcome.
    """
    mark = marked(routine)
    if isinstance(mark.state, RoutineRef):
        raise TypeError(
            f"{mark.state.routine!r} is a routine without a graph; testing.run_through takes those"
        )
    model = context_model(routine)
    given = dict(context or {}) if model is None else completed(model, context or {})
    grant = grant_of(
        state=mark.state.name,
        context=given,
        memory=memory or {},
        entered_by=entry_of(entered_by),
        token=token,
        visit=visit,
        attempt=attempt,
    )
    port = Port(model, is_lost=lost, answers=answers or {})
    made = context_of(routine, grant, port)
    returned, raised_by = call(routine, lambda: (made,), port)
    return outcome_from(mark, made, port, returned=returned, exception=raised_by, before=given)


def marked(routine: Any) -> Mark:
    """Return how a routine is marked. Raises TypeError: it is not."""
    mark = mark_of(routine)
    if mark is None:
        name = getattr(routine, "__qualname__", type(routine).__name__)
        raise TypeError(f"{name} is not marked with on_state or routine; a test takes a routine")
    return mark


def context_of(routine: Any, grant: Grant, port: Port) -> BaseContext[Any]:
    """Return the first argument of a routine."""
    return AsyncContext(grant, port) if inspect.iscoroutinefunction(routine) else Context(grant, port)


class Port:
    """Keeps what a routine says. A lost attempt's words are dropped, as they are in a host."""

    def __init__(
        self, model: Any, *, is_lost: bool, answers: Mapping[Place, Any], is_strict: bool = False
    ) -> None:
        self.notes: list[str] = []
        self.works = 0
        self.own_line: object = None
        self.is_strict = is_strict
        self.is_lost = is_lost
        self.is_parked = False
        self.fault: Exception | None = None
        self.questions: list[Question] = []
        self.steps: dict[str, Any] = {}
        self._model = model
        self._answers = answers

    def call(self, kind: str, body: bytes) -> Future[Reply]:
        call: Future[Reply] = Future()
        call.set_result(self._reply(kind, body))
        return call

    def check_held(self) -> None:
        if self.is_lost:
            raise AttemptLost("the attempt is lost: attempt_over")
        if self.is_parked:
            raise Parked("this attempt has parked its task already")

    def is_pausing(self) -> bool:
        return False

    def rest_s(self, seconds: float) -> float:  # noqa: ARG002  that is the point
        """Nobody rests in a test."""
        return 0.0

    def _reply(self, kind: str, body: bytes) -> Reply:
        if kind == "ask":
            return self._ask(read(body))
        if kind == "checkpoint":
            passed = read(body)
            self.steps[f"{passed['step']}#{passed['occurrence']}"] = passed["value"]
        made = reply(kind, body)
        self.is_parked = self.is_parked or made.is_parked
        return made

    def _ask(self, body: dict[str, Any]) -> Reply:
        body.pop("locked_decisions")
        question = Question(**body)
        self.questions.append(question)
        place: Place = (question.key, question.occurrence)
        if place not in self._answers and question.occurrence == 1:
            place = question.key
        self.is_parked = place not in self._answers
        answer = None if self.is_parked else self._answers[place]
        if not self.is_parked and question.choices is not None and answer not in question.choices:
            self.fault = ValueError(
                f"the answer {answer!r} to {question.key!r} is none of its choices: {question.choices!r}"
            )
        text = None if self.is_parked else json_text(answer, f"the answer to {question.key!r}")
        return Reply(200, asked(len(self.questions), text), self.is_parked)

    def note(self, text: str) -> None:
        if not self.is_lost and not self.is_parked:
            self.notes.append(text)

    def remember(self, key: str, value: bytes) -> None:
        """The context's own `Memory` keeps it."""

    def lease_s(self) -> float:
        return 0.0 if self.is_lost else LEASE_S

    def lost_cause(self) -> str | None:
        return "attempt_over" if self.is_lost else None

    def context_model(self) -> Any:
        return self._model


def entry_of(given: str | Occurrence[Any] | EnteredBy | None) -> Any:
    if given is None:
        return None
    if isinstance(given, str):
        return entry(given)
    if isinstance(given, EnteredBy):
        payload = None if given.payload is None else json_text(given.payload, "the payload")
        return entry(given.name, payload, given.error)
    return entry(given.name, payload_text(given))


def call(
    routine: Any, arguments: Callable[[], tuple[Any, ...]], port: Port
) -> tuple[Any, BaseException | None]:
    """Call a routine, and return what it returned and what it raised."""
    try:
        port.own_line = line()
        made = routine(*arguments())
        return (_awaited(_on_own_line(made, port)) if inspect.iscoroutinefunction(routine) else made), None
    except _ENDS as error:
        return None, error  # the runner's boundary: whatever a routine raises is a failed attempt
    except BaseExceptionGroup as group:  # of a TaskGroup, for one
        if group.split(_ENDS)[1] is not None:
            raise
        return None, group


async def _on_own_line(coroutine: Coroutine[Any, Any, Any], port: Port) -> Any:
    port.own_line = line()
    return await coroutine


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also where a loop runs already (a test that is `async def` itself)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    ended: list[tuple[Any, BaseException | None]] = []

    def serve() -> None:
        try:
            ended.append((asyncio.run(coroutine), None))
        except BaseException as error:  # it is raised in the caller's thread
            ended.append((None, error))

    thread = threading.Thread(target=serve, name="routine")
    thread.start()
    thread.join()
    returned, error = ended[0]
    if error is not None:
        raise error
    return returned


def _frame(
    mark: Mark, context: BaseContext[Any], port: Port, returned: Any, error: BaseException | None
) -> frames.Outcome:
    if port.is_parked:
        return parked((context.task, context.attempt))
    if port.is_lost:
        return dropped((context.task, context.attempt), "attempt_over")
    if error is not None:
        return raised((context.task, context.attempt), describe(error))
    return outcome_of(returned, mark.state, context)


def outcome_from(
    mark: Mark,
    context: BaseContext[Any],
    port: Port,
    *,
    returned: Any,
    exception: BaseException | None,
    before: dict[str, Any],
) -> Outcome:
    """Return what an attempt did. Raises what went wrong with the test: it gave what could not be given, for one."""
    if port.fault is not None:
        raise port.fault
    frame = _frame(mark, context, port, returned, exception)
    is_reported = not frame.is_dropped and frame.outcome != "failed"
    kinds: dict[str, Literal["event", "waiting", "returned", "parked", "lost"]] = {
        "event": "event",
        "waiting": "waiting",
        "returned": "returned",
        "parked": "parked",
    }
    return Outcome(
        kind=kinds.get(frame.outcome, "lost" if frame.is_dropped else "failed"),
        event=frame.event,
        payload=read(bytes(frame.payload)) if frame.payload is not None else None,
        occurrence=returned if frame.event is not None else None,
        error=None if frame.is_dropped else frame.error,
        exception=exception,
        notes=port.notes,
        writes=context.writes() if is_reported else {},
        context=dict(context) if is_reported else before,
        memory=dict(context.memory),
        schedules=context.schedules() if is_reported else [],
        questions=port.questions,
        steps=port.steps,
        result=None if frame.result is None else read(bytes(frame.result)),
        reason=_reason(exception) if port.is_parked else None,
    )


def _reason(error: BaseException | None) -> str | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.reason if isinstance(error, Parked) else None
