"""The courses of the durable calls: what each does, one thing after another, with nobody who does it. Pure.

A course is a generator. It yields what it wishes for (`Send`, `Work`, `Quiet`) and is given what came of it, so that
`def` and `async def` routines, a host and a unit test all follow the same rules. `driving.py` has who grants wishes.
Every call to the control plane is a `Send` of some kind; a new kind needs a course and nothing else here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec import Raw
from stateous_contract.limits import QUESTION_KEY_CHARS_MAX, RETRIES_MAX, STEP_CHARS_MAX
from stateous_contract.messages import Asked, PassedStep, encode

from stateous_supervisor.sdk.endings import CallRefused, FeatureMissing, Parked
from stateous_supervisor.sdk.marks import duration_s
from stateous_supervisor.sdk.replay import Point, Replay
from stateous_supervisor.sdk.values import json_size_checked, json_text, read

# The longest rest between two tries of a step; whoever waits longer parks.
REST_S_MAX: Final = 60.0
# What the agent says to a call that its control plane does not offer.
FEATURE_MISSING: Final = "feature_missing"
OCCURRENCE_MAX: Final = 2**31 - 1

T = TypeVar("T")

_asked: Final = msgspec.json.Decoder(Asked)


@dataclass(frozen=True)
class Send:
    """Ask the control plane. `call` is its kind, `body` the JSON object that goes with it; a `Reply` comes back."""

    call: str
    body: bytes


@dataclass(frozen=True)
class Work:
    """Do a step's function. What it returned comes back, or what it raised is raised. `key` is the step's own.

    After `timeout_s` seconds what is awaited is cancelled, and TimeoutError raised.
    """

    function: Callable[[], Any]
    key: str
    name: str
    timeout_s: float | None = None


@dataclass(frozen=True)
class Rest:
    """Wait in place for some seconds, before a step's function is tried again."""

    seconds: float


@dataclass(frozen=True)
class Quiet:
    """Wait until no step is under way, so that a park interrupts none (S1-70)."""


@dataclass(frozen=True)
class OwnLine:
    """Say whether this is the routine's own line, and not one beside it: its task of the loop, or its thread.

    On a loop, what is beside its own line has a turn first.
    """


class Reply(NamedTuple):
    """What the control plane said. `body` is JSON; from status 400 on an object with `code` and `error`."""

    status: int
    body: bytes
    is_parked: bool = False


class _Refusal(msgspec.Struct):
    code: str = "unknown"
    error: str = ""


class _Page(msgspec.Struct):
    entries: list[PassedStep]
    cursor: str | None = None


_refusal: Final = msgspec.json.Decoder(_Refusal)
_page: Final = msgspec.json.Decoder(_Page)

Wish = Send | Work | Rest | Quiet | OwnLine
Course = Generator[Wish, Any, T]


class Tries(NamedTuple):
    """How often a step's function is tried again, and after how long a rest: `backoff_s`, then twice as long each time.

    Only what is raised as an `Exception` is tried again, and nothing that is one of `not_retryable`.
    """

    retries: int = 0
    backoff_s: float = 1.0
    not_retryable: tuple[type[Exception], ...] = ()
    timeout_s: float | None = None


class Question(NamedTuple):
    """What people are asked, checked. Values are JSON; times are seconds."""

    key: str
    data: str
    schema: str | None
    choices: str | None
    ttl_s: float
    remind_s: float | None


def step(
    replay: Replay,
    name: str,
    function: Callable[[], Any],
    occurrence: int | None,
    is_pausing: Callable[[], bool],
    *,
    tries: Tries,
) -> Course[Any]:
    """Do `function` once for the whole life of the task, and return what it returned (S2-05 … S2-07, S2-30).

    What comes back is always what was stored: JSON, read anew. A pause that is requested is observed before it.
    """
    point = replay.step(name_checked(name, "step", STEP_CHARS_MAX), occurrence_checked(occurrence))
    try:
        stored = yield from stored_of(replay, point)
        if stored is None:
            yield from hold_to_passed(replay, str(point))
        if stored is None and is_pausing():
            yield from _pause(replay, {})
        if stored is None:
            stored = yield from _first(replay, point, function, tries)
        replay.visit(point)
    finally:
        replay.leave(point)
    return read(stored)


def _first(replay: Replay, point: Point, function: Callable[[], Any], tries: Tries) -> Course[bytes]:
    replay.begin(point)
    try:
        made = yield from _tried(Work(function, replay.key_of(point), point.name, tries.timeout_s), tries)
        what = f"the value of the step {point.name!r}"
        value = json_size_checked(json_text(made, what), what)
        place = {"step": point.name, "occurrence": point.occurrence, "version": replay.version}
        reply = yield from send("checkpoint", {**place, "value": Raw(value)})
        replay.keep(point, reply.body)
    finally:
        replay.end(point)
    return reply.body


def _tried(work: Work, tries: Tries) -> Course[Any]:
    """Do a step's function, again after a rest while it raises and tries are left."""
    for rest_s in _rests_s(tries):
        try:
            return (yield work)
        except tries.not_retryable:
            raise
        except Exception:  # user code: whatever it raises is tried again
            yield Rest(rest_s)
    return (yield work)


def _rests_s(tries: Tries) -> Iterator[float]:
    rest_s = tries.backoff_s
    for _ in range(tries.retries):
        yield rest_s
        rest_s = min(2 * rest_s, REST_S_MAX)


def checkpoint(replay: Replay, name: str, occurrence: int | None) -> Course[None]:
    """Pass a point where a pause is observed; once it is passed it is passed (S1-71, S1-76)."""
    point = replay.step(name_checked(name, "checkpoint", STEP_CHARS_MAX), occurrence_checked(occurrence))
    try:
        stored = yield from stored_of(replay, point)
        if stored is None:
            yield from hold_to_passed(replay, str(point))
        replay.visit(point)
        if stored is None:
            yield from _pause(replay, {"step": point.name, "occurrence": point.occurrence})
            replay.keep(point, b"null")
    finally:
        replay.leave(point)


def ask(replay: Replay, question: Question, occurrence: int | None) -> Course[Any]:
    """Ask people: park, or return the answer that was given (S1-36, S1-43, S1-66).

    Raises Parked: nobody has answered yet; the attempt is over.
    """
    point = replay.question(
        name_checked(question.key, "question's key", QUESTION_KEY_CHARS_MAX), occurrence_checked(occurrence)
    )
    answer = replay.answer_of(point)
    if answer is None:
        yield from hold_to_passed(replay, f"question:{point}")
        answer = yield from _ask(replay, point, question)
        replay.keep_answer(point, answer)
    replay.visit(point, is_step=False)
    return read(answer)


def _ask(replay: Replay, point: Point, question: Question) -> Course[bytes]:
    body: dict[str, Any] = {
        "key": point.name,
        "occurrence": point.occurrence,
        "data": Raw(question.data.encode()),
        "ttl_s": question.ttl_s,
    }
    if question.schema is not None:
        body["schema"] = Raw(question.schema.encode())
    if question.choices is not None:
        body["choices"] = Raw(question.choices.encode())
    if question.remind_s is not None:
        body["remind_s"] = question.remind_s
    reply = yield from park(replay, "ask", body)
    asked = _asked.decode(reply.body)
    if reply.is_parked:
        raise Parked(f"awaiting_user_answer:{point.name}", asked.question)
    return bytes(asked.answer) if isinstance(asked.answer, Raw) else b"null"


def _pause(replay: Replay, passed: Mapping[str, Any]) -> Course[None]:
    """Park if a pause is still requested; `passed` names the point that counts as passed by it."""
    reply = yield from park(replay, "pause", {"wait": {"kind": "pause"}, **passed})
    if reply.is_parked:
        raise Parked("user_paused")


def hold_to_passed(replay: Replay, found: str | None, *, is_of_child: bool = False) -> Course[None]:
    """Park the task of a strict routine that is about to do something new and left out what it has passed (S2-13).

    `found` is what it came to in its place; None is its end; `is_of_child`: it begins a child or waits for one, which a
    retry does anew for children that it left behind. Raises Parked. Lines beside the routine's own may yet come
    by what is missing, so only the own one is judged: at its next new call, or at its end.
    """
    if not replay.is_strict:
        return
    yield from _read_all(replay)
    if replay.first_unmet(is_of_child=is_of_child) is None:
        return
    if not (yield OwnLine()):
        return
    yield Quiet()
    unmet = replay.first_unmet(is_of_child=is_of_child)
    if unmet is not None:
        place = {"step": unmet.name, "occurrence": unmet.occurrence}
        yield from park(replay, "diverged", {"wait": {"kind": "nondeterminism", "found": found}, **place})
        raise Parked(f"nondeterminism:{unmet.name}")


def park(replay: Replay, call: str, body: Mapping[str, Any]) -> Course[Reply]:
    """Make a call that may park: after all steps that are under way, and with where the run is (S1-50, S1-70)."""
    yield Quiet()
    return (yield from send(call, {**body, "locked_decisions": replay.decisions()}))


def send(call: str, body: Mapping[str, Any]) -> Course[Reply]:
    """Make a call. Raises FeatureMissing, CallRefused: the control plane has no such thing, or refuses this one."""
    reply: Reply = yield Send(call, encode(body))
    if reply.status >= 400 or reply.status == 0:
        _raise(reply)
    return reply


def _raise(reply: Reply) -> NoReturn:
    refusal = _refusal.decode(reply.body)
    if refusal.code == FEATURE_MISSING:
        raise FeatureMissing(refusal.error)
    raise CallRefused(refusal.code, refusal.error)


def stored_of(replay: Replay, point: Point) -> Course[bytes | None]:
    """Return what stands for a point; what did not fit the grant is read first."""
    stored = replay.value_of(point)
    while stored is None and replay.rest_after is not None:
        yield from _read_more(replay, replay.rest_after)
        stored = replay.value_of(point)
    return stored


def _read_all(replay: Replay) -> Course[None]:
    while replay.rest_after is not None:
        yield from _read_more(replay, replay.rest_after)


def _read_more(replay: Replay, after: int) -> Course[None]:
    reply = yield from send("checkpoints", {"version": replay.version, "after": after})
    page = _page.decode(reply.body)
    replay.take(page.entries, is_last=page.cursor is None or not page.entries)


def question(
    key: str,
    data: Any,
    *,
    schema: str | None,
    choices: Sequence[Any] | None,
    ttl_s: float,
    remind_s: float | None,
) -> Question:
    """Return a question. Raises TypeError: data or choices are not JSON."""
    what = f"of the question {key!r}"
    return Question(
        key=key,
        data=json_text(data, f"the data {what}"),
        schema=schema,
        choices=None if choices is None else json_text(list(choices), f"the list of choices {what}"),
        ttl_s=ttl_s,
        remind_s=remind_s,
    )


def tries(
    retries: int, backoff: float | str, not_retryable: Any, timeout: float | str | None = None
) -> Tries:
    """Return how a step is tried. Raises TypeError, ValueError: that is no way to."""
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise ValueError(f"retries is {retries!r:.150}; it must be a whole number from 0 to {RETRIES_MAX}")
    kinds = not_retryable if isinstance(not_retryable, tuple) else (not_retryable,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise TypeError(f"not_retryable is a class of errors, or a tuple of them, not {not_retryable!r:.150}")
    backoff_s = duration_s(backoff, "backoff")
    if backoff_s > REST_S_MAX:
        raise ValueError(
            f"backoff is {backoff!r}; a step rests in place, for at most {REST_S_MAX:g} s: whoever waits longer "
            "lets the attempt fail, and has the state's retries"
        )
    return Tries(retries, backoff_s, kinds, None if timeout is None else duration_s(timeout, "timeout"))


def name_checked(name: Any, what: str, chars_max: int) -> str:
    """Return a name as it is. Raises ValueError: it is none."""
    if isinstance(name, str) and 1 <= len(name) <= chars_max and name.isprintable():
        json_text(name, f"the {what}")
        return name
    raise ValueError(f"a {what} is text of 1 to {chars_max} printable characters, not {name!r:.150}")


def occurrence_checked(occurrence: Any) -> int | None:
    """Return an occurrence as it is. Raises ValueError: it is none."""
    if occurrence is None:
        return None
    is_whole = isinstance(occurrence, int) and not isinstance(occurrence, bool)
    if is_whole and 1 <= occurrence <= OCCURRENCE_MAX:
        return int(occurrence)
    raise ValueError(f"an occurrence is a whole number from 1, not {occurrence!r:.150}")
