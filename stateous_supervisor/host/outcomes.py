"""What a routine returned, as the outcome that the agent reports (A-18, S3-28, S3-34).

Values in, `Outcome` frames out; who runs the routine and how it is sent is not known here.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from msgspec import Raw
from stateous_contract.limits import BODY_BYTES_MAX, CONTEXT_BYTES_MAX, ERROR_BYTES_MAX
from stateous_contract.messages import encode

from stateous_supervisor.host.failures import Described, clean, own
from stateous_supervisor.link.frames import Outcome
from stateous_supervisor.sdk.context import BaseContext
from stateous_supervisor.sdk.marks import RoutineRef
from stateous_supervisor.sdk.payloads import payload_text, result_text
from stateous_supervisor.sdk.values import json_size_checked

# What stands around the values in the body of a report: ids, names, braces.
AROUND_BYTES: Final = 4_096

# Task and attempt.
Key = tuple[int, int]


def outcome_of(returned: Any, state: Any, context: BaseContext[Any]) -> Outcome:
    """Return the outcome for what a routine of `state` returned.

    It is `failed`, with what was returned and what is allowed, for anything but an event of the state or None, and
    for values that no control plane takes.
    """
    key = (context.task, context.attempt)
    if isinstance(state, RoutineRef):
        return _returned(key, returned, state)
    if returned is None:
        return _sized(context, "waiting", None, None)
    if type(returned) not in state.emits:
        return failed(key, _not_allowed(returned, state))
    try:
        payload = payload_text(returned)
    except (ValueError, TypeError) as error:
        text = f"the routine of {state.name!r} returned an event that cannot be sent: {error}"
        return failed(key, text)
    return _sized(context, "event", returned.name, payload)


def _returned(key: Key, returned: Any, ref: RoutineRef) -> Outcome:
    """Return the outcome of a routine without a graph: its result, which is JSON (S2-11)."""
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return failed(
            key, f"the routine {ref.routine!r} returned {_what(returned, None)}; it may return JSON"
        )
    what = f"the result of {ref.routine!r}"
    try:
        result = json_size_checked(result_text(returned, what), what)
    except (TypeError, ValueError) as error:
        return failed(key, str(error))
    return Outcome(task=key[0], attempt=key[1], outcome="returned", result=Raw(result))


def failed(key: Key, error: str, traceback: str | None = None) -> Outcome:
    """Return a failed outcome of attempt `key`. Writes and timers of a failed attempt are dropped."""
    text = clean(error, ERROR_BYTES_MAX)
    return Outcome(task=key[0], attempt=key[1], outcome="failed", error=text, traceback=traceback)


def raised(key: Key, described: Described, *, is_retryable: bool = True) -> Outcome:
    """Return the outcome of an attempt that ended by an exception; some are there again in every attempt."""
    outcome = failed(key, described.text, described.traceback)
    outcome.is_retryable = is_retryable
    return outcome


def dropped(key: Key, cause: str) -> Outcome:
    """Return what tells the agent that the attempt ended and nothing is to be reported."""
    return Outcome(task=key[0], attempt=key[1], outcome="failed", error=cause, is_dropped=True)


def parked(key: Key) -> Outcome:
    """Return what tells the agent that a parked attempt has left its routine (S1-47)."""
    return Outcome(task=key[0], attempt=key[1], outcome="parked", is_dropped=True)


def _sized(context: BaseContext[Any], kind: str, event: str | None, payload: str | None) -> Outcome:
    written = context.outgoing_context()
    schedules = context.outgoing_schedules()
    if written is None and schedules is None and payload is None:
        return Outcome(task=context.task, attempt=context.attempt, outcome=kind, event=event)
    raw_payload = None if payload is None else payload.encode()
    raw_context = None if written is None else written.encode()
    parts = {"payload": len(raw_payload or b""), "context": len(raw_context or b"")}
    parts["schedules"] = sum(len(encode(each)) for each in schedules or ())
    size = sum(parts.values()) + AROUND_BYTES
    if size > BODY_BYTES_MAX:
        largest = max(parts, key=lambda part: parts[part])
        return failed(
            (context.task, context.attempt),
            f"the outcome is {size:,} bytes of JSON, {parts[largest]:,} of them the {largest}; "
            f"at most {BODY_BYTES_MAX:,} are allowed",
        )
    if raw_context is not None and (whole := context.context_bytes()) > CONTEXT_BYTES_MAX:
        return failed(
            (context.task, context.attempt),
            f"the token's context would be {whole:,} bytes of JSON with what this routine wrote; "
            f"at most {CONTEXT_BYTES_MAX:,} are allowed",
        )
    return Outcome(
        task=context.task,
        attempt=context.attempt,
        outcome=kind,
        event=event,
        payload=None if raw_payload is None else Raw(raw_payload),
        context=None if raw_context is None else Raw(raw_context),
        schedules=schedules,
    )


def _not_allowed(returned: Any, state: Any) -> str:
    names = ", ".join(f"events.{event.__name__}" for event in state.emits)
    allowed = f"it may return {names} or None" if names else "it may return None"
    return f"the routine of {state.name!r} returned {_what(returned, state)}; {allowed}"


def _what(returned: Any, state: Any) -> str:
    if inspect.iscoroutine(returned):
        returned.close()
        return "a coroutine that nothing awaits (write the routine, or what wraps it, as 'async def')"
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return "a generator, so its code has not run (it must not use 'yield')"
    if isinstance(returned, type):
        name = _event_name(returned)
        return f"the class {returned.__name__}" + (
            f", not an event: events.{returned.__name__}(…)" if name else ""
        )
    name = _event_name(type(returned))
    if name is None:
        return own(returned)
    if any(name == event.name for event in state.emits):
        return (
            f"an event {name!r} of another class than that of the contract (a subclass, or a second import)"
        )
    return f"the event {name!r}, which this state does not emit"


def _event_name(kind: type) -> str | None:
    name = inspect.getattr_static(kind, "name", None)
    return name if isinstance(name, str) and hasattr(kind, "payload_model") else None
