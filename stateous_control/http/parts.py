"""The parts of a body, checked one by one in the order that the baseline checks them (A.2 to A.8).

Each function takes the fields of a body and returns one value or raises `Refused` with the code of that part. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import ClaimRequest, HeartbeatRequest, Report, Schedule
from stateous_contract.scan import Fields, is_finite

_decode = msgspec.json.Decoder().decode
_decode_each = msgspec.json.Decoder(list[dict[str, Raw]]).decode

TOKEN: Final = re.compile(limits.TOKEN_PATTERN, re.ASCII)
_REQUEST: Final = re.compile(limits.REQUEST_PATTERN, re.ASCII)
_INSTANCE: Final = re.compile(limits.INSTANCE_PATTERN, re.ASCII)
_DURATION: Final = re.compile(limits.DURATION_PATTERN, re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_ATTEMPT_MAX: Final = 2**31 - 1
_OUTCOMES: Final = ("event", "waiting", "returned", "failed", "released")
_RELEASE_REASONS: Final = ("drain", "not_started", "host_died", "agent_died")

Values = Mapping[str, Raw]


def plain(values: Values, name: str) -> Any:
    """Return a field as a Python value, None where it is absent. For fields that are ours, not a user's."""
    raw = values.get(name)
    if raw is None:
        return None
    try:
        return _decode(raw)
    except msgspec.ValidationError:  # a number beyond a float's range
        return float("inf")


def user_object(raw: Raw | None, name: str, code: Code) -> Raw | None:
    """Return a user's object as its text; None where it is absent or null."""
    if raw is None:
        return None
    first = memoryview(raw)[0]
    if first == ord("{"):
        return raw
    if first == ord("n"):
        return None
    raise Refused(code, f"'{name}' must be a JSON object, or null")


def refuse_infinite(body: Fields, raw: Raw | None, name: str, code: Code) -> None:
    """Refuse a user's value that holds a number too large for a float."""
    if not body.is_finite and raw is not None and not is_finite(raw):
        raise Refused(code, f"'{name}' has a number that is out of range")


def token_name(values: Values) -> str:
    name = plain(values, "token")
    if not isinstance(name, str):
        raise Refused(Code.INVALID_TOKEN_ID, "'token' must be a string: the id of the token")
    if TOKEN.fullmatch(name) is None:
        raise Refused(
            Code.INVALID_TOKEN_ID,
            "a token id starts with a letter or digit and has up to 127 more letters, digits, '.', '_' and '-'",
        )
    return name


def supervisor(values: Values, *, is_required: bool = True) -> str | None:
    name = plain(values, "supervisor")
    if name is None and not is_required:
        return None
    if not isinstance(name, str) or not 1 <= len(name) <= limits.SUPERVISOR_CHARS_MAX:
        raise Refused(Code.INVALID_ARGUMENT, "'supervisor' must be a string of 1 to 256 characters")
    return name


def instance(values: Values) -> str | None:
    return _matching(values, "instance", _INSTANCE)


def _matching(values: Values, name: str, pattern: re.Pattern[str]) -> str | None:
    value = plain(values, name)
    if value is None:
        return None
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be 1 to 64 letters, digits, '.', '_' or '-'")
    return value


def is_whole(value: Any, low: int, high: int) -> bool:
    """Say whether `value` is an integer in the range; true is none, and neither is 1.0."""
    return type(value) is int and low <= value <= high


def attempt(values: Values, code: Code) -> int | None:
    value = plain(values, "attempt")
    if value is None:
        return None
    if not (type(value) is int and value >= 1):
        raise Refused(code, "'attempt' must be a whole number, 1 or more")
    return min(value, _ATTEMPT_MAX)


def claim(body: Fields) -> ClaimRequest:
    """Return the claim that a body asks for (A.3, with the extensions wait, batch and versions)."""
    values = body.values
    name = supervisor(values)
    assert name is not None
    return ClaimRequest(
        supervisor=name,
        states=_states(values),
        request=_matching(values, "request", _REQUEST),
        instance=instance(values),
        max=_count(values, "max"),
        max_by_state=_counts(values),
        wait=_wait(values),
        withdraw=_flag(values, "withdraw", default=False, code=Code.INVALID_ARGUMENT),
        versions=_versions(values),
    )


def _states(values: Values) -> list[str]:
    states = plain(values, "states")
    if not isinstance(states, list) or not all(_is_state(state) for state in states):
        raise Refused(Code.INVALID_BODY, "'states' must be a list of state names")
    if len(states) > limits.STATES_MAX:
        raise Refused(Code.INVALID_ARGUMENT, "'states' may hold 1000 state names at most")
    return states


def _is_state(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= limits.STATE_CHARS_MAX


def _count(values: Values, name: str) -> int | None:
    value = plain(values, name)
    if value is None or is_whole(value, 1, limits.CLAIM_MAX):
        return value  # type: ignore[no-any-return]
    raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be a whole number from 1 to {limits.CLAIM_MAX}")


def _counts(values: Values) -> dict[str, int] | None:
    value = plain(values, "max_by_state")
    if value is None or _is_map(value, lambda each: is_whole(each, 0, limits.CLAIM_MAX)):
        return value  # type: ignore[no-any-return]
    raise Refused(Code.INVALID_ARGUMENT, f"'max_by_state' must map states to 0 to {limits.CLAIM_MAX}")


def _is_map(value: Any, is_fit: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and len(value) <= limits.STATES_MAX and all(map(is_fit, value.values()))


def _wait(values: Values) -> float | None:
    value = plain(values, "wait")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise Refused(Code.INVALID_ARGUMENT, "'wait' must be a number of seconds, 0 or more")
    return float(min(value, limits.WAIT_S_MAX))


def _flag(values: Values, name: str, *, default: bool, code: Code) -> bool:
    value = plain(values, name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Refused(code, f"'{name}' must be true or false")
    return value


def _versions(values: Values) -> dict[str, list[int]] | None:
    value = plain(values, "versions")
    if value is None or _is_map(value, _is_version_list):
        return value  # type: ignore[no-any-return]
    raise Refused(
        Code.INVALID_ARGUMENT, "'versions' must map states to lists of at most 100 whole numbers, 1 or more"
    )


def _is_version_list(value: Any) -> bool:
    is_list = isinstance(value, list) and len(value) <= limits.VERSIONS_MAX
    return is_list and all(is_whole(each, 1, _ATTEMPT_MAX) for each in value)


def heartbeat(body: Fields) -> HeartbeatRequest:
    """Return the heartbeat that a body holds (A.4)."""
    values = body.values
    name = supervisor(values)
    assert name is not None
    tasks = plain(values, "tasks")
    if not isinstance(tasks, list) or not all(is_whole(task, 1, limits.TASK_ID_MAX) for task in tasks):
        raise Refused(Code.INVALID_BODY, "'tasks' must be a list of task ids")
    if len(tasks) > limits.HEARTBEAT_MAX:
        raise Refused(Code.INVALID_ARGUMENT, f"'tasks' may hold {limits.HEARTBEAT_MAX} task ids at most")
    return HeartbeatRequest(
        supervisor=name, tasks=tasks, instance=instance(values), attempts=_attempts(values)
    )


def _attempts(values: Values) -> dict[str, int] | None:
    value = plain(values, "attempts")
    if value is None:
        return None
    if _is_map(value, lambda each: is_whole(each, 1, _ATTEMPT_MAX)) and all(map(_is_task_id, value)):
        return value  # type: ignore[no-any-return]
    raise Refused(Code.INVALID_ARGUMENT, "'attempts' must map task ids to attempts, 1 or more")


def _is_task_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def report(body: Fields) -> Report:
    """Return the outcome that a body reports (A.6, with `released`)."""
    values = body.values
    read = outcome(
        kind=plain(values, "kind"),
        event=plain(values, "event"),
        error=plain(values, "error"),
        payload=values.get("payload"),
        context=values.get("context"),
        schedules=values.get("schedules"),
        reason=plain(values, "reason"),
        result=values.get("result"),
    )
    read.attempt = attempt(values, Code.INVALID_BODY)
    read.supervisor = supervisor(values, is_required=False)
    read.instance = instance(values)
    read.retryable = _flag(values, "retryable", default=True, code=Code.INVALID_BODY)
    refuse_infinite_outcome(body, read)
    return read


def outcome(
    *,
    kind: Any,
    event: Any,
    error: Any,
    payload: Raw | None,
    context: Raw | None,
    schedules: Raw | None,
    reason: Any,
    result: Raw | None = None,
) -> Report:
    """Check the parts of an outcome, in the baseline's order, and put them together."""
    if kind not in _OUTCOMES:
        raise Refused(Code.INVALID_BODY, f"the kind of an outcome must be one of: {', '.join(_OUTCOMES)}")
    if kind == "event" and not isinstance(event, str):
        raise Refused(Code.INVALID_BODY, "an outcome of kind 'event' needs 'event', a string")
    if kind == "failed" and not isinstance(error, str):
        raise Refused(Code.INVALID_BODY, "an outcome of kind 'failed' needs 'error', a string")
    return Report(
        kind=kind,
        event=event if kind == "event" else None,
        error=error if kind == "failed" else None,
        payload=user_object(payload, "payload", Code.INVALID_BODY),
        context=user_object(context, "context", Code.INVALID_BODY),
        schedules=_schedules(schedules),
        reason=_release_reason(reason) if kind == "released" else None,
        result=result if kind == "returned" else None,
    )


def refuse_infinite_outcome(body: Fields, read: Report) -> None:
    """Refuse an outcome that holds a number too large for a float."""
    if body.is_finite:
        return
    refuse_infinite(body, read.context, "context", Code.INVALID_CONTEXT)
    refuse_infinite(body, read.payload, "payload", Code.INVALID_PAYLOAD)
    refuse_infinite(body, read.result, "result", Code.INVALID_BODY)
    for each in read.schedules or ():
        refuse_infinite(body, each.payload, "payload", Code.INVALID_PAYLOAD)


def _release_reason(value: Any) -> str:
    if isinstance(value, str) and value.partition(":")[0] in _RELEASE_REASONS:
        return value[: limits.ERROR_TEXT_CHARS_MAX]
    raise Refused(Code.INVALID_BODY, f"'reason' must start with one of: {', '.join(_RELEASE_REASONS)}")


def _schedules(raw: Raw | None) -> list[Schedule] | None:
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        each = _decode_each(raw)
    except msgspec.ValidationError:
        raise Refused(Code.INVALID_BODY, "'schedules' must be a list of objects") from None
    return [_schedule(fields) for fields in each]


def _schedule(values: Values) -> Schedule:
    event, after = plain(values, "event"), plain(values, "after")
    if not isinstance(event, str):
        raise Refused(Code.INVALID_BODY, "a schedule needs 'event', a string")
    if not isinstance(after, str) or not is_duration(after):
        raise Refused(
            Code.INVALID_BODY, "a schedule needs 'after': a number and s, m, h or d, 3650 days at most"
        )
    return Schedule(
        event=event, after=after, payload=user_object(values.get("payload"), "payload", Code.INVALID_BODY)
    )


def is_duration(text: str) -> bool:
    """Say whether `text` is a duration such as ``30s`` (C.1)."""
    if len(text) > 12 or _DURATION.fullmatch(text) is None:
        return False
    return int(text[:-1]) * _UNIT_S[text[-1]] <= limits.DURATION_S_MAX


def note_text(text: Any) -> str:
    stripped = text.strip() if isinstance(text, str) else ""
    if not 1 <= len(stripped) <= limits.NOTE_CHARS_MAX:
        raise Refused(
            Code.INVALID_PAYLOAD, f"'text' must be a string of 1 to {limits.NOTE_CHARS_MAX} characters"
        )
    return stripped


def memory_key(key: Any) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= limits.MEMORY_KEY_CHARS_MAX:
        raise Refused(
            Code.INVALID_PAYLOAD, f"'key' must be a string of 1 to {limits.MEMORY_KEY_CHARS_MAX} characters"
        )
    return key


def memory_value(raw: Raw | UnsetType | None, body: Fields) -> Raw:
    """Return the value as its text. A null is a value here: it deletes the key."""
    if raw is None or isinstance(raw, UnsetType):
        raise Refused(Code.INVALID_BODY, "'value' is missing; null deletes the key")
    refuse_infinite(body, raw, "value", Code.INVALID_PAYLOAD)
    return raw


def idempotency_key(header: str | None) -> str | None:
    if header is None:
        return None
    is_clean = all(ord(character) >= 32 and ord(character) != 127 for character in header)
    if not is_clean or not 1 <= len(header) <= limits.IDEMPOTENCY_KEY_CHARS_MAX:
        raise Refused(
            Code.INVALID_PAYLOAD,
            f"the header Idempotency-Key must have 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} characters, "
            "none of them a control character",
        )
    return header
