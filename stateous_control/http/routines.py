"""Routines without a graph over HTTP: `POST /tasks` and `POST /tasks/{id}/children`."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Spawn, Start
from stateous_contract.scan import Fields

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import durable, parts
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call

_ROUTINE: Final = re.compile(limits.ROUTINE_PATTERN, re.ASCII)


async def start(plane: ControlPlane, call: Call) -> Answer:
    """Start a routine: 201 with its task, or 200 with the task that the same key and body began before."""
    said = Start(**_routine(await call.fields()))
    key = parts.idempotency_key(call.header(b"idempotency-key"))
    view, is_new = await plane.supervision.start(said, key)
    return answer(view, 201 if is_new else 200)


async def spawn(plane: ControlPlane, call: Call) -> Answer:
    """Start a child of a task: 201, and the same answer for the same step again."""
    body = await call.fields()
    values = body.values
    said = Spawn(
        **durable.holder(body),
        step=durable.step_name(parts.plain(values, "step")),
        occurrence=durable.occurrence(parts.plain(values, "occurrence")),
        **_routine(body),
    )
    return answer(await plane.supervision.spawn(call.task, said), 201)


def _routine(body: Fields) -> dict[str, Any]:
    values = body.values
    name = parts.plain(values, "routine")
    if not isinstance(name, str) or _ROUTINE.fullmatch(name) is None:
        raise Refused(
            Code.INVALID_ARGUMENT,
            "'routine' must start with a letter or digit and have up to 127 more letters, digits, '.', '_' and '-'",
        )
    given = values.get("input")
    if given is not None:
        parts.refuse_infinite(body, given, "input", Code.INVALID_ARGUMENT)
    return {
        "routine": name,
        "version": durable.version(parts.plain(values, "version")),
        "input": Raw(b"null") if given is None else given,
        "retries": _retries(parts.plain(values, "retries")),
        "backoff_s": _backoff_s(values, "backoff_s"),
        "max_backoff_s": _backoff_s(values, "max_backoff_s"),
        "not_retryable": _errors(parts.plain(values, "not_retryable")),
    }


def _backoff_s(values: parts.Values, name: str) -> float | None:
    value = parts.plain(values, name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= limits.BACKOFF_S_MAX:
        return float(value)
    raise Refused(
        Code.INVALID_ARGUMENT, f"'{name}' must be a number of seconds from 0 to {limits.BACKOFF_S_MAX:,.0f}"
    )


def _errors(value: Any) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) <= limits.NOT_RETRYABLE_MAX and all(map(_is_error, value)):
        return list(value)
    raise Refused(
        Code.INVALID_ARGUMENT,
        f"'not_retryable' must be a list of at most {limits.NOT_RETRYABLE_MAX} names of errors",
    )


def _is_error(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= limits.ERROR_NAME_CHARS_MAX and value.isprintable()


def _retries(value: Any) -> int:
    if value is None:
        return 0
    if parts.is_whole(value, 0, limits.RETRIES_MAX):
        return int(value)
    raise Refused(Code.INVALID_ARGUMENT, f"'retries' must be a whole number from 0 to {limits.RETRIES_MAX}")


def read_routines(value: Any) -> dict[str, list[int]] | None:
    """Return the routines that a claim serves, each with its versions."""
    if value is None:
        return None
    is_map = isinstance(value, dict) and len(value) <= limits.STATES_MAX
    if is_map and all(_ROUTINE.fullmatch(name) and _is_versions(each) for name, each in value.items()):
        return dict(value)
    raise Refused(
        Code.INVALID_ARGUMENT,
        "'routines' must map names of routines to lists of versions, whole numbers from 1, at most 100 each",
    )


def _is_versions(value: Any) -> bool:
    is_list = isinstance(value, list) and 1 <= len(value) <= limits.VERSIONS_MAX
    return is_list and all(parts.is_whole(each, 1, 2**31 - 1) for each in value)
