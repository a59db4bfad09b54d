"""Durable calls of workers over HTTP: ask and park, pause, checkpoints. Each names supervisor, instance and attempt."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Ask, Checkpoint, Park
from stateous_contract.scan import Fields

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import parts
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call
from stateous_control.http.waits import read_wait

_OCCURRENCE_MAX: Final = 2**31 - 1
_DECIDED: Final = ("run", "node", "visited", "bindings")
_decode = msgspec.json.Decoder().decode


async def ask(plane: ControlPlane, call: Call) -> Answer:
    """Ask people: 201 and the attempt is parked, or 200 with the answer that an earlier attempt was given."""
    asked = await plane.supervision.ask(call.task, read_ask(await call.fields()))
    return answer(asked, 201 if asked.parked else 200)


async def park(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.supervision.park(call.task, read_park(await call.fields())))


async def checkpoint(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.supervision.store(call.task, read_checkpoint(await call.fields())))


def read_ask(body: Fields) -> Ask:
    """Return the question that a body asks."""
    values = body.values
    return Ask(
        **holder(body),
        key=_name(values, "key", limits.QUESTION_KEY_CHARS_MAX),
        occurrence=occurrence(parts.plain(values, "occurrence")),
        data=_required(body, "data"),
        schema=_schema(body),
        choices=_choices(body),
        ttl_s=_seconds(values, "ttl_s"),
        remind_s=None if parts.plain(values, "remind_s") is None else _seconds(values, "remind_s"),
        locked_decisions=_decisions(body),
    )


def read_park(body: Fields) -> Park:
    """Return what a body parks for. Only a pause may leave its step out."""
    values = body.values
    wait = read_wait(parts.plain(values, "wait"))
    is_unnamed = wait.kind == "pause" and parts.plain(values, "step") is None
    step = None if is_unnamed else step_name(parts.plain(values, "step"))
    return Park(
        **holder(body),
        wait=wait,
        step=step,
        occurrence=None if step is None else occurrence(parts.plain(values, "occurrence")),
        locked_decisions=_decisions(body),
    )


def read_checkpoint(body: Fields) -> Checkpoint:
    """Return the value of a step that a body holds; null is a value."""
    values = body.values
    return Checkpoint(
        **holder(body),
        step=step_name(parts.plain(values, "step")),
        occurrence=occurrence(parts.plain(values, "occurrence")),
        value=_required(body, "value"),
        version=version(parts.plain(values, "version")),
    )


def step_name(value: Any) -> str:
    return _checked(value, "step", limits.STEP_CHARS_MAX)


def occurrence(value: Any) -> int:
    if parts.is_whole(value, 1, _OCCURRENCE_MAX):
        return int(value)
    raise Refused(Code.INVALID_ARGUMENT, "'occurrence' must be a whole number, 1 or more")


def version(value: Any) -> int:
    if value is None:
        return 1
    if parts.is_whole(value, 1, _OCCURRENCE_MAX):
        return int(value)
    raise Refused(Code.INVALID_ARGUMENT, "'version' must be a whole number, 1 or more")


def holder(body: Fields) -> dict[str, Any]:
    """Return who says to hold the task."""
    supervisor, instance = parts.supervisor(body.values), parts.instance(body.values)
    attempt = parts.attempt(body.values, Code.INVALID_ARGUMENT)
    if instance is None or attempt is None:
        raise Refused(Code.INVALID_ARGUMENT, "'supervisor', 'instance' and 'attempt' say who holds the task")
    return {"supervisor": supervisor, "instance": instance, "attempt": attempt}


def _name(values: parts.Values, name: str, chars_max: int) -> str:
    return _checked(parts.plain(values, name), name, chars_max)


def _checked(value: Any, name: str, chars_max: int) -> str:
    if isinstance(value, str) and 1 <= len(value) <= chars_max and value.isprintable():
        return value
    raise Refused(
        Code.INVALID_ARGUMENT, f"'{name}' must be a string of 1 to {chars_max} printable characters"
    )


def _required(body: Fields, name: str) -> Raw:
    raw = body.values.get(name)
    if raw is None:
        raise Refused(Code.INVALID_BODY, f"'{name}' is missing: any JSON value")
    parts.refuse_infinite(body, raw, name, Code.INVALID_BODY)
    return raw


def _seconds(values: parts.Values, name: str) -> float:
    value = parts.plain(values, name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= limits.DURATION_S_MAX:
        return float(value)
    raise Refused(
        Code.INVALID_ARGUMENT,
        f"'{name}' must be a number of seconds, more than 0 and at most {limits.DURATION_S_MAX}",
    )


def _schema(body: Fields) -> Raw | None:
    raw = _optional(body, "schema")
    if raw is not None and bytes(raw)[:1] not in (b"{", b"t", b"f"):
        raise Refused(Code.INVALID_QUESTION, "'schema' must be a JSON Schema: an object, true or false")
    return raw


def _choices(body: Fields) -> Raw | None:
    raw = _optional(body, "choices")
    if raw is None:
        return None
    choices = _decode(raw)
    if not isinstance(choices, list) or not 1 <= len(choices) <= limits.CHOICES_MAX or None in choices:
        raise Refused(
            Code.INVALID_QUESTION, f"'choices' must be a list of 1 to {limits.CHOICES_MAX} values, none null"
        )
    return raw


def _optional(body: Fields, name: str) -> Raw | None:
    raw = body.values.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    if len(bytes(raw)) > limits.QUESTION_SCHEMA_BYTES_MAX:
        raise Refused(
            Code.INVALID_QUESTION, f"'{name}' is larger than {limits.QUESTION_SCHEMA_BYTES_MAX} bytes"
        )
    parts.refuse_infinite(body, raw, name, Code.INVALID_QUESTION)
    return raw


def _decisions(body: Fields) -> Raw:
    raw = body.values.get("locked_decisions")
    decided = None if raw is None else _decode(raw)
    if raw is None or not isinstance(decided, dict) or not decided.keys() >= set(_DECIDED):
        raise Refused(Code.INVALID_BODY, f"'locked_decisions' must be an object with: {', '.join(_DECIDED)}")
    if len(bytes(raw)) > limits.DECISIONS_BYTES_MAX:
        raise Refused(
            Code.INVALID_ARGUMENT, f"'locked_decisions' is larger than {limits.DECISIONS_BYTES_MAX} bytes"
        )
    return raw
