"""Many messages of a supervisor in one request (feature `batch`), read at the speed of msgspec.

A message that is wrong is answered alone and stops only the later ones of its attempt; an outbox must never jam
behind one bad message. Only a body whose shape hides which task a message is about is refused whole. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from stateous_contract.codes import Code, Refused
from stateous_contract.limits import MESSAGES_MAX, TASK_ID_MAX
from stateous_contract.messages import MessageResult, MessageResults, TaskMessage, TaskMessages
from stateous_contract.scan import Fields

from stateous_control.http import durable, parts

_ATTEMPT_MAX: Final = 2**31 - 1
_OPEN = msgspec.json.Decoder(list[Raw])


class _About(msgspec.Struct):
    """Which attempt a message is about; without this there is nobody to answer."""

    task: Annotated[int, msgspec.Meta(ge=1, le=TASK_ID_MAX)]
    attempt: Annotated[int, msgspec.Meta(ge=1)]


class _Part(_About):
    """A message as it comes, types checked, contents not."""

    kind: str | None = None
    text: str | None = None
    key: str | None = None
    value: Raw | UnsetType = UNSET
    step: str | None = None
    occurrence: int | None = None
    version: int | None = None
    outcome: str | None = None
    event: str | None = None
    error: str | None = None
    payload: Raw | UnsetType = UNSET
    context: Raw | UnsetType = UNSET
    schedules: Raw | UnsetType = UNSET
    reason: str | None = None
    retryable: bool | None = None
    result: Raw | UnsetType = UNSET


_decode_parts = msgspec.json.Decoder(list[_Part]).decode
_decode_part = msgspec.json.Decoder(_Part).decode
_decode_about = msgspec.json.Decoder(_About).decode

_Key = tuple[int, int]


@dataclass(frozen=True)
class Bundle:
    """What a body held: the good messages, and for each bad one (by position) its refusal."""

    good: TaskMessages
    order: list[_Key]
    bad: dict[int, Refused]

    def merge(self, results: list[MessageResult]) -> MessageResults:
        """Put the engine's results and the refusals into the order of the request."""
        if not self.bad:
            return MessageResults(results=results)
        rest = iter(results)
        merged: list[MessageResult] = []
        refused: dict[_Key, MessageResult] = {}
        for position, about in enumerate(self.order):
            error = self.bad.get(position)
            result = next(rest) if error is None else refused.get(about) or _result(about[0], error)
            if result.status >= 400:
                refused.setdefault(about, result)
            merged.append(result)
        return MessageResults(results=merged)


def _result(task: int, error: Refused) -> MessageResult:
    return MessageResult(task=task, status=error.code.status, code=error.code.wire, error=error.sentence)


def read_bundle(body: Fields) -> Bundle:
    """Read the body of ``POST /tasks/messages``."""
    supervisor = parts.supervisor(body.values)
    instance = parts.instance(body.values)
    if instance is None:
        raise Refused(Code.INVALID_ARGUMENT, "'instance' is missing: the id of the supervisor process")
    assert supervisor is not None
    pieces = _pieces(body.values.get("messages"))
    good: list[TaskMessage] = []
    bad: dict[int, Refused] = {}
    stopped: dict[_Key, Refused] = {}
    order: list[_Key] = []
    for position, (about, piece) in enumerate(pieces):
        order.append(about)
        error = stopped.get(about)
        if error is None:
            try:
                good.append(_message(about, piece, body))
                continue
            except Refused as caught:
                error = stopped[about] = caught
        bad[position] = error
    return Bundle(TaskMessages(supervisor=supervisor, instance=instance, messages=good), order, bad)


def _pieces(raw: Raw | None) -> list[tuple[_Key, _Part | Refused]]:
    """Return for each message what it is about and its parts, or why it has none."""
    if raw is None:
        raise Refused(Code.INVALID_BODY, "'messages' is missing: a list of messages")
    try:
        decoded = _decode_parts(raw)
    except msgspec.ValidationError:
        return _pieces_one_by_one(raw)
    _check_count(decoded)
    return [((part.task, min(part.attempt, _ATTEMPT_MAX)), part) for part in decoded]


def _pieces_one_by_one(raw: Raw) -> list[tuple[_Key, _Part | Refused]]:
    try:
        texts = _OPEN.decode(raw)
    except msgspec.ValidationError:
        raise Refused(Code.INVALID_BODY, "'messages' must be a list of messages") from None
    _check_count(texts)
    pieces: list[tuple[_Key, _Part | Refused]] = []
    for position, text in enumerate(texts):
        try:
            about = _decode_about(text)
        except msgspec.ValidationError as error:
            raise Refused(
                Code.INVALID_BODY,
                f"messages[{position}] must be an object with 'task' and 'attempt': {error}",
            ) from None
        pieces.append(((about.task, min(about.attempt, _ATTEMPT_MAX)), _part(text)))
    return pieces


def _check_count(messages: list[Any]) -> None:
    if len(messages) > MESSAGES_MAX:
        raise Refused(Code.INVALID_ARGUMENT, f"'messages' may hold {MESSAGES_MAX} messages at most")


def _part(text: Raw) -> _Part | Refused:
    try:
        return _decode_part(text)
    except msgspec.ValidationError as error:
        return Refused(Code.INVALID_BODY, f"the message has a wrong part: {error}")


def _message(about: _Key, part: _Part | Refused, body: Fields) -> TaskMessage:
    if isinstance(part, Refused):
        raise part
    task, attempt = about
    if part.kind == "note":
        return TaskMessage(task=task, attempt=attempt, kind="note", text=parts.note_text(part.text))
    if part.kind == "memory":
        return TaskMessage(
            task=task,
            attempt=attempt,
            kind="memory",
            key=parts.memory_key(part.key),
            value=parts.memory_value(part.value, body),
        )
    if part.kind == "checkpoint":
        return TaskMessage(
            task=task,
            attempt=attempt,
            kind="checkpoint",
            step=durable.step_name(part.step),
            occurrence=durable.occurrence(part.occurrence),
            version=durable.version(part.version),
            value=parts.memory_value(part.value, body),
        )
    if part.kind == "report":
        return _report(about, part, body)
    raise Refused(Code.INVALID_BODY, "'kind' must be one of: note, memory, checkpoint, report")


def _report(about: _Key, part: _Part, body: Fields) -> TaskMessage:
    outcome = parts.outcome(
        kind=part.outcome,
        event=part.event,
        error=part.error,
        payload=_given(part.payload),
        context=_given(part.context),
        schedules=_given(part.schedules),
        reason=part.reason,
        result=_given(part.result),
    )
    parts.refuse_infinite_outcome(body, outcome)
    return TaskMessage(
        task=about[0],
        attempt=about[1],
        kind="report",
        outcome=outcome.kind,
        event=outcome.event,
        error=outcome.error,
        payload=outcome.payload,
        context=outcome.context,
        schedules=outcome.schedules,
        reason=outcome.reason,
        retryable=part.retryable is not False,
        result=outcome.result,
    )


def _given(raw: Raw | UnsetType) -> Raw | None:
    return None if isinstance(raw, UnsetType) else raw
