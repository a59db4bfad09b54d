"""What stands in a report: the outcome a routine made, or the one that the agent makes in its place.

Pure. Error texts are at most 8 KB of UTF-8 (A-19), a report is at most as large as the control plane takes
(A-39). Called by the assignment's table and by the roster.
"""

from __future__ import annotations

from typing import Final

import msgspec
from stateous_contract.limits import ERROR_BYTES_MAX
from stateous_contract.messages import Report, TaskMessage

from stateous_supervisor.link.frames import Noted, Outcome, Remembered

CUT_MARK: Final = " … [cut]"
ENVELOPE_BYTES: Final = 1_024  # what names, instance and keys around an outcome take at most

_WHY: Final = {
    "drain": "the supervisor was stopped before the routine ended",
    "not_started": "the supervisor could not start the routine",
    "agent_died": "the supervisor's process died while the routine ran",
    "fenced": "the routine was stopped because its lease could not be proven any more",
}
# Of the reasons that cost nothing, the one that says "stopped here".
_ON_THE_WIRE: Final = {"fenced": "drain"}

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(TaskMessage)


def of(outcome: Outcome) -> TaskMessage:
    """Return the report of what a routine did."""
    return TaskMessage(
        task=outcome.task,
        attempt=outcome.attempt,
        kind="report",
        outcome=outcome.outcome,
        event=outcome.event,
        error=None if outcome.error is None else cut(outcome.error),
        payload=outcome.payload,
        context=outcome.context,
        schedules=outcome.schedules,
        result=outcome.result,
        retryable=outcome.is_retryable,
    )


def word(said: Noted | Remembered) -> TaskMessage:
    """Return the message of a note or a memory write."""
    if isinstance(said, Noted):
        return TaskMessage(task=said.task, attempt=said.attempt, kind="note", text=said.text)
    return TaskMessage(task=said.task, attempt=said.attempt, kind="memory", key=said.key, value=said.value)


def dropped(outcome: Outcome) -> TaskMessage:
    """Return the failure of a routine that its host dropped although nobody had asked for it."""
    return failed((outcome.task, outcome.attempt), "the routine was cancelled inside its host")


def failed(key: tuple[int, int], error: str) -> TaskMessage:
    """Return a failed attempt with that text."""
    return TaskMessage(task=key[0], attempt=key[1], kind="report", outcome="failed", error=cut(error))


def released(key: tuple[int, int], reason: str) -> TaskMessage:
    """Return a report that gives the task back without spending a retry (`release`)."""
    return TaskMessage(task=key[0], attempt=key[1], kind="report", outcome="released", reason=cut(reason))


def host_died(key: tuple[int, int], reason: str, *, can_release: bool) -> TaskMessage:
    """Return what becomes of an attempt whose host is gone (A-23)."""
    if can_release:
        return released(key, f"host_died: {reason}")
    return failed(key, f"the routine's host died: {reason}")


def given_back(key: tuple[int, int], reason: str, *, can_release: bool) -> TaskMessage:
    """Return what becomes of an attempt that nobody goes on with here."""
    if can_release:
        return released(key, _ON_THE_WIRE.get(reason, reason))
    return failed(key, _WHY.get(reason, reason))


def refused(key: tuple[int, int], code: str, sentence: str) -> TaskMessage:
    """Return the one failure that stands in for an outcome that was refused (A-38)."""
    return failed(key, f"this outcome was refused ({code}): {sentence}")


def too_large(message: TaskMessage, size_bytes: int, bytes_max: int) -> TaskMessage:
    """Return the failure that stands in for an outcome beyond the limit (A-39)."""
    key = (message.task, message.attempt)
    return failed(
        key, f"the outcome is {size_bytes} bytes as JSON; this control plane takes at most {bytes_max}"
    )


def write(message: TaskMessage, bytes_max: int) -> tuple[TaskMessage, bytes]:
    """Return a report that fits `bytes_max`, and its JSON; a failure takes the place of one that does not."""
    text = _encoder.encode(message)
    if len(text) + ENVELOPE_BYTES <= bytes_max or message.outcome in ("failed", "released"):
        return message, text
    small = too_large(message, len(text), bytes_max)
    return small, _encoder.encode(small)


def read(body: bytes) -> TaskMessage:
    """Return a report that `write` wrote."""
    return _decoder.decode(body)


def alone(message: TaskMessage, supervisor: str, instance: str | None) -> Report:
    """Return the same report as the baseline's `POST /tasks/{task}/report` takes it."""
    return Report(
        kind=message.outcome or "failed",
        event=message.event,
        error=message.error,
        payload=message.payload,
        context=message.context,
        schedules=message.schedules,
        attempt=message.attempt,
        supervisor=supervisor,
        instance=instance,
        reason=message.reason,
        retryable=message.retryable,
        result=message.result,
    )


def cut(text: str, bytes_max: int = ERROR_BYTES_MAX) -> str:
    """Return `text` as UTF-8 that is at most `bytes_max` long, with a mark where it was cut.

    Lone surrogates, which no JSON text can carry, become question marks.
    """
    whole = text.encode("utf-8", "replace")
    if len(whole) <= bytes_max:
        return whole.decode()
    room = bytes_max - len(CUT_MARK.encode())
    return whole[:room].decode("utf-8", "ignore") + CUT_MARK


def shown_s(span_s: float) -> float:
    """Return a span as the log shows it; `round` would take as long as all the rest of the line."""
    return int(span_s * 10_000) / 10_000
