"""What a body says of a wait, and signals to tasks and tokens over HTTP."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Wait

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import parts
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call
from stateous_control.http.people import actor_of, hidden_first
from stateous_control.http.tokens import path_name

KINDS: Final = ("pause", "sleep", "signal", "result", "any", "nondeterminism")
_WHOLE: Final = ("pause", "any", "nondeterminism")
"""Kinds that are no part of an `any`."""

_FOUND_CHARS_MAX: Final = 256
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)


@hidden_first
async def signal_task(plane: ControlPlane, call: Call) -> Answer:
    name, payload, key, actor = await _signal(call)
    return answer(await plane.supervision.signal(call.task, name, payload, key=key, actor=actor))


async def signal_token(plane: ControlPlane, call: Call) -> Answer:
    token = path_name(call)
    name, payload, key, actor = await _signal(call)
    return answer(await plane.supervision.signal_token(token, name, payload, key=key, actor=actor))


async def _signal(call: Call) -> tuple[str, Raw | None, str | None, str | None]:
    """Return name, payload (any JSON value), idempotency key and actor."""
    body = await call.fields()
    name = signal_name(call.params["name"])
    payload = body.values.get("payload")
    if payload is not None:
        parts.refuse_infinite(body, payload, "payload", Code.INVALID_PAYLOAD)
    key = parts.idempotency_key(call.header(b"idempotency-key"))
    return name, payload, key, actor_of(body)


def signal_name(value: Any) -> str:
    """Return the name of a signal: it stands in a path, so it has no slash."""
    is_name = isinstance(value, str) and 1 <= len(value) <= limits.SIGNAL_CHARS_MAX
    if is_name and value.isprintable() and "/" not in value:
        return str(value)
    raise Refused(
        Code.INVALID_ARGUMENT,
        f"the name of a signal must be 1 to {limits.SIGNAL_CHARS_MAX} printable characters without '/'",
    )


def read_wait(value: Any) -> Wait:
    """Return what a task parks for. Raises `Refused` for anything that no task can wait for."""
    kind = _kind(value, KINDS, "'wait'")
    if kind == "any":
        return Wait(kind=kind, of=_several(value.get("of")), timeout_s=_timeout(value))
    return _one(value, kind, "'wait'")


def _kind(value: Any, kinds: tuple[str, ...], where: str) -> str:
    if isinstance(value, dict) and value.get("kind") in kinds:
        return str(value["kind"])
    raise Refused(
        Code.INVALID_BODY, f"{where} must be an object with 'kind', which is one of: {', '.join(kinds)}"
    )


def _several(of: Any) -> list[Wait]:
    if not isinstance(of, list) or not 1 <= len(of) <= limits.WAIT_PARTS_MAX:
        raise Refused(Code.INVALID_BODY, f"'of' must be a list of 1 to {limits.WAIT_PARTS_MAX} waits")
    waits = []
    for number, value in enumerate(of):
        where = f"'of[{number}]'"
        kind = _kind(value, tuple(kind for kind in KINDS if kind not in _WHOLE), where)
        if value.get("timeout_s") is not None:
            raise Refused(Code.INVALID_BODY, f"{where} has a 'timeout_s' of its own; the whole wait has one")
        waits.append(_one(value, kind, where))
    return waits


def _one(value: dict[str, Any], kind: str, where: str) -> Wait:
    if kind == "pause":
        return Wait(kind=kind)
    if kind == "nondeterminism":
        return Wait(kind=kind, found=_found(value.get("found")))
    if kind == "sleep":
        return _sleep(value, where)
    if kind == "result":
        if not parts.is_whole(value.get("task"), 1, limits.TASK_ID_MAX):
            raise Refused(Code.INVALID_ARGUMENT, f"{where} must have 'task', the id of a child")
        return Wait(kind=kind, task=value["task"], timeout_s=_timeout(value))
    return Wait(kind=kind, name=signal_name(value.get("name")), timeout_s=_timeout(value))


def _found(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and len(value) <= _FOUND_CHARS_MAX and value.isprintable()):
        return value
    raise Refused(
        Code.INVALID_ARGUMENT,
        f"'found' must be null or text of at most {_FOUND_CHARS_MAX} printable characters",
    )


def _sleep(value: dict[str, Any], where: str) -> Wait:
    for_s, until = value.get("for_s"), value.get("until")
    if (for_s is None) == (until is None):
        raise Refused(Code.INVALID_ARGUMENT, f"{where} must have either 'for_s' or 'until'")
    if value.get("timeout_s") is not None:
        raise Refused(Code.INVALID_ARGUMENT, f"{where} is a sleep, which has no 'timeout_s'")
    if until is not None:
        return Wait(kind="sleep", until=_time(until))
    return Wait(kind="sleep", for_s=_seconds(for_s, "for_s"))


def _timeout(value: dict[str, Any]) -> float | None:
    seconds = value.get("timeout_s")
    return None if seconds is None else _seconds(seconds, "timeout_s")


def _seconds(value: Any, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and 0 <= value <= limits.DURATION_S_MAX:
        return float(value)
    raise Refused(
        Code.INVALID_ARGUMENT,
        f"'{name}' must be a number of seconds from 0 to {limits.DURATION_S_MAX} (ten years)",
    )


def _time(value: Any) -> datetime:
    """Return a moment; one without its distance from UTC is refused, because it names none (BH-045)."""
    at = None
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
    if at is None or at.tzinfo is None:
        raise Refused(
            Code.INVALID_ARGUMENT,
            "'until' must be a time with its offset, as 2026-12-24T18:00:00+01:00 or …Z",
        )
    try:
        at = at.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    if at < _FIRST or at.year > 9000:
        raise Refused(Code.INVALID_ARGUMENT, "'until' is out of range; it must be before the year 9000")
    return at
