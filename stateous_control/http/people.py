"""Requests of people about tasks and questions: lists, logs, answers, and steering guarded by a generation (S1-95)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.scan import Fields
from stateous_contract.states import QuestionStatus, TaskState

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import parts
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call, id_of
from stateous_control.store.people import QuestionFilter, TaskFilter

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_STATES: Final = tuple(state.value for state in TaskState)
_STATUSES: Final = tuple(status.value for status in QuestionStatus)
_TEXT_CHARS_MAX: Final = 256
_OF_A_BODY: Final = frozenset({400, 413, 422, 428})

Handler = Callable[[ControlPlane, Call], Awaitable[Answer]]


def hidden_first(handler: Handler) -> Handler:
    """Have a change judge what it is about before its body: what a caller cannot see is not there (S1-122)."""

    @wraps(handler)
    async def judge(plane: ControlPlane, call: Call) -> Answer:
        try:
            return await handler(plane, call)
        except Refused as error:
            if error.code.status in _OF_A_BODY:
                await _look(plane, call)
            raise

    return judge


async def _look(plane: ControlPlane, call: Call) -> None:
    """Raise Refused unless the task or question of the path is there for the caller."""
    if "question" in call.params:
        await plane.supervision.question(_question(call))
    else:
        await plane.supervision.task(call.task)


async def tasks(plane: ControlPlane, call: Call) -> Answer:
    query = call.query
    wanted = TaskFilter(
        current_state=_one_of(query, "current_state", _STATES),
        token=_text(query, "token"),
        state=_text(query, "state"),
        kind=_text(query, "reason"),
        owners=plane.supervision.owners,
    )
    return answer(
        await plane.supervision.tasks(wanted, limit=_limit(query), cursor=_text(query, "cursor", 1_000))
    )


async def task(plane: ControlPlane, call: Call) -> Answer:
    """One task, at once or when it is over; with `generation` when it is above that."""
    query = call.query
    after = _number(query, "generation", low=0, high=limits.TASK_ID_MAX, default=None)
    view = await plane.supervision.task(call.task, wait_s=_wait(query), after_generation=after)
    return answer(view)


async def log(plane: ControlPlane, call: Call) -> Answer:
    """The newest page in chronological order; `cursor` asks for the lines before it (S1-112)."""
    query = call.query
    before = _number(query, "cursor", low=1, high=limits.TASK_ID_MAX, default=None)
    page = await plane.supervision.log(call.task, limit=_limit(query, limits.LOG_DEFAULT), before=before)
    return answer(page)


async def checkpoints(plane: ControlPlane, call: Call) -> Answer:
    query = call.query
    version = _number(query, "version", low=1, high=2**31 - 1, default=1)
    # What a retry took over is numbered up to 0, before what it passed itself.
    lowest = -limits.TASK_ID_MAX
    after = _number(query, "after", low=lowest, high=limits.TASK_ID_MAX, default=None)
    page = await plane.supervision.checkpoints(
        call.task, version=version or 1, after=lowest if after is None else after, limit=_limit(query)
    )
    return answer(page)


@hidden_first
async def pause(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    view = await plane.supervision.pause(call.task, _generation(body), actor_of(body))
    return answer(view)


@hidden_first
async def resume(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    return answer(await plane.supervision.resume(call.task, _generation(body), actor_of(body)))


@hidden_first
async def cancel(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    return answer(await plane.supervision.cancel(call.task, _generation(body), actor_of(body)))


@hidden_first
async def retry(plane: ControlPlane, call: Call) -> Answer:
    """Begin anew where a task ended; its checkpoints and answers go with it unless `checkpoints` is false."""
    body = await call.fields()
    is_named = parts.plain(body.values, "token") is not None
    view = await plane.supervision.retry(
        call.task,
        _generation(body),
        token=parts.token_name(body.values) if is_named else None,
        is_copying=_flag(body, "checkpoints", default=True),
        actor=actor_of(body),
    )
    return answer(view, 201)


async def questions(plane: ControlPlane, call: Call) -> Answer:
    query = call.query
    wanted = QuestionFilter(
        status=_one_of(query, "status", _STATUSES),
        task=_number(query, "task", low=1, high=limits.TASK_ID_MAX, default=None),
        token=_text(query, "token"),
        owners=plane.supervision.owners,
    )
    return answer(
        await plane.supervision.questions(wanted, limit=_limit(query), cursor=_text(query, "cursor", 1_000))
    )


async def question(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.supervision.question(_question(call)))


@hidden_first
async def give_answer(plane: ControlPlane, call: Call) -> Answer:
    """Store an answer; the task that waits for it is ready in the same transaction."""
    number = _question(call)
    body = await call.fields()
    generation, value = _generation(body), _answer(body)
    return answer(await plane.supervision.answer(number, value, generation, actor_of(body)))


def _question(call: Call) -> int:
    digits = call.params["question"]
    question = id_of(digits)
    if question is None:
        raise Refused(Code.QUESTION_NOT_FOUND, f"there is no question {digits[:40]}")
    return question


def _generation(body: Fields) -> int:
    """Return the generation that the caller saw. Nothing is changed unguarded (S1-101)."""
    value = parts.plain(body.values, "expected_generation")
    if value is None:
        raise Refused(
            Code.GENERATION_REQUIRED,
            "'expected_generation' is missing: the generation of the task that you looked at",
        )
    if not parts.is_whole(value, 1, limits.TASK_ID_MAX):
        raise Refused(Code.INVALID_ARGUMENT, "'expected_generation' must be a whole number, 1 or more")
    return int(value)


def _answer(body: Fields) -> Raw:
    raw = body.values.get("answer")
    if raw is None or bytes(raw) == b"null":
        raise Refused(Code.INVALID_ANSWER, "'answer' is missing; null is no answer")
    if len(bytes(raw)) > limits.ANSWER_BYTES_MAX:
        raise Refused(Code.INVALID_ANSWER, f"the answer is larger than {limits.ANSWER_BYTES_MAX} bytes")
    parts.refuse_infinite(body, raw, "answer", Code.INVALID_ANSWER)
    return raw


def actor_of(body: Fields) -> str | None:
    """Return who says to act; with keys the key's name stands in its place."""
    value = parts.plain(body.values, "actor")
    if value is None:
        return None
    if isinstance(value, str) and 1 <= len(value) <= limits.ACTOR_CHARS_MAX and value.isprintable():
        return value
    raise Refused(
        Code.INVALID_ARGUMENT, f"'actor' must be 1 to {limits.ACTOR_CHARS_MAX} printable characters"
    )


def _flag(body: Fields, name: str, *, default: bool) -> bool:
    value = parts.plain(body.values, name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be true or false")
    return value


def _limit(query: dict[str, str], default: int = limits.LIST_DEFAULT) -> int:
    return _number(query, "limit", low=1, high=limits.LIST_MAX, default=default) or default


def _number(query: dict[str, str], name: str, *, low: int, high: int, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be a whole number from {low} to {high}")
    return int(text)


def _wait(query: dict[str, str]) -> float:
    text = query.get("wait", "0")
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII) is None:
        raise Refused(Code.INVALID_ARGUMENT, "'wait' must be a number of seconds, 0 or more")
    return min(float(text), limits.WAIT_S_MAX)


def _one_of(query: dict[str, str], name: str, words: tuple[Any, ...]) -> str | None:
    text = query.get(name)
    if text is not None and text not in words:
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be one of: {', '.join(words)}")
    return text


def _text(query: dict[str, str], name: str, chars_max: int = _TEXT_CHARS_MAX) -> str | None:
    text = query.get(name)
    if text is not None and not (len(text) <= chars_max and text.isprintable()):
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' has characters that are not allowed, or too many")
    return text
