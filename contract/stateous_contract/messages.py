"""The messages of the wire as values.

Field names are the wire's names; unknown fields are ignored, fields are added, never changed. `Raw` fields hold a
user's JSON as the text it came as: nobody re-writes a user's numbers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

if TYPE_CHECKING:
    OptionalRaw = Raw | None
else:
    OptionalRaw = Raw  # msgspec reads no union with Raw; a field of Raw takes null too, as the text ``null``


class Message(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A value of the wire. Optional fields that were not given are left out when it is written."""


class EnteredBy(Message):
    """The event that brought a token into its state. `error` is text, for the event ``error`` only."""

    name: str
    payload: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET


class GivenAnswer(Message):
    """An answer that the task was given, as the text it came as."""

    key: str
    occurrence: int
    answer: Raw


class PassedStep(Message):
    """The value of a step that was passed. `seq` orders them."""

    step: str
    occurrence: int
    seq: int
    value: Raw


class Grant(Message, kw_only=True):
    """One task, given to one supervisor for one attempt.

    A routine without a graph has `routine`, `version` and `input` in the place of token, state and
    context. `answers` and `checkpoints` are what replay reads.

    With `checkpoints_more` the rest is read page by page; an answer that is not here comes back when it is asked again.
    """

    task: int
    token: str = ""
    state: str = ""
    visit: int = 0
    attempt: int
    context: Raw = Raw(b"{}")
    memory: Raw
    routine: str | None = None
    input: Raw | UnsetType = UNSET
    entered_by: EnteredBy | None = None
    lease_s: float | None = None
    version: int | None = None
    generation: int | None = None
    owner: str | None = None
    suspect: bool = False
    answers: list[GivenAnswer] | None = None
    checkpoints: list[PassedStep] | None = None
    checkpoints_more: bool = False


class Grants(Message):
    """The answer to a claim with `max`."""

    tasks: list[Grant]


class ClaimRequest(Message):
    """Ask for work. Without `max` the answer is one grant (baseline), with it a list (`batch`)."""

    supervisor: str
    states: list[str]
    request: str | None = None
    instance: str | None = None
    max: int | None = None
    max_by_state: dict[str, int] | None = None
    wait: float | None = None
    withdraw: bool = False
    versions: dict[str, list[int]] | None = None
    routines: dict[str, list[int]] | None = None


class HeartbeatRequest(Message):
    """Renew the leases of `tasks`. `attempts` maps a task id (text, as JSON keys are) to the attempt that runs."""

    supervisor: str
    tasks: list[int]
    instance: str | None = None
    attempts: dict[str, int] | None = None


class HeartbeatAnswer(Message):
    """`lost` is ascending; `causes` says why, by task id."""

    lost: list[int]
    causes: dict[str, str] | None = None
    pause: list[int] | None = None
    now: str | None = None


class Schedule(Message):
    """A timer that a routine asks for."""

    event: str
    after: str
    payload: OptionalRaw = None


class Report(Message):
    """The outcome of one attempt. `kind` is event, waiting, returned (with `result`), failed or released."""

    kind: str
    event: str | None = None
    error: str | None = None
    payload: OptionalRaw = None
    context: OptionalRaw = None
    schedules: list[Schedule] | None = None
    attempt: int | None = None
    supervisor: str | None = None
    instance: str | None = None
    reason: str | None = None
    retryable: bool = True
    result: OptionalRaw = None


class TaskMessage(Message):
    """One thing that `POST /tasks/messages` carries: a note, a memory write, a checkpoint or a report of one attempt.

    For a report the outcome's own kind stands in `outcome`, because `kind` names the message.
    """

    task: int
    attempt: int
    kind: str
    text: str | None = None
    key: str | None = None
    value: Raw | UnsetType = UNSET
    step: str | None = None
    occurrence: int | None = None
    version: int | None = None
    outcome: str | None = None
    event: str | None = None
    error: str | None = None
    payload: OptionalRaw = None
    context: OptionalRaw = None
    schedules: list[Schedule] | None = None
    reason: str | None = None
    retryable: bool = True
    result: OptionalRaw = None


class TaskMessages(Message):
    """Everything that a supervisor has to say, in one request."""

    supervisor: str
    instance: str
    messages: list[TaskMessage]


class TokenView(Message):
    """A token as clients see it. `pausing` is told while it is paused and a worker still holds its task."""

    token: str
    state: str
    status: str
    visit: int
    context: Raw
    entered_at: str
    parent: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    pausing: str | UnsetType = UNSET


class MessageResult(Message):
    """What became of one message. `status` is the HTTP status that it would have had alone."""

    task: int
    status: int
    token: TokenView | None = None
    value: Raw | UnsetType = UNSET
    pause: bool = False
    code: str | None = None
    error: str | None = None


class MessageResults(Message):
    """One result a message, in order."""

    results: list[MessageResult]


class Checkpoint(Message):
    """Keep the value of a step that was passed (`PUT /tasks/{id}/checkpoints`). The first value stands for ever."""

    supervisor: str
    instance: str
    attempt: int
    step: str
    occurrence: int
    value: Raw
    version: int = 1


class Standing(Message):
    """The value that stands. `pause`: a pause is requested, so the next durable point is where to park."""

    value: Raw
    pause: bool = False


class Ask(Message):
    """Ask people a question and park (`POST /tasks/{id}/questions`). Times in seconds."""

    supervisor: str
    instance: str
    attempt: int
    key: str
    occurrence: int
    data: Raw
    ttl_s: float
    locked_decisions: Raw
    schema: OptionalRaw = None
    choices: OptionalRaw = None
    remind_s: float | None = None


class Asked(Message):
    """The question that stands. Not `parked`: it was answered before, with `answer`, and the attempt goes on."""

    question: int
    status: str
    parked: bool
    generation: int
    expires_at: str
    answer: Raw | UnsetType = UNSET


class Wait(Message):
    """What a task parks for.

    `kind` is pause, sleep (`for_s` or `until`), signal (`name`), result (`task`), any (the first of `of`) or
    nondeterminism (until a person resumes; `found` came in the place of the step). `timeout_s` ends a signal, result or
    any with an outcome of its own. Times count from the first park.
    """

    kind: str
    for_s: float | None = None
    until: datetime | None = None
    name: str | None = None
    task: int | None = None
    of: list[Wait] | None = None
    timeout_s: float | None = None
    found: str | None = None


class Park(Message):
    """Park (`POST /tasks/{id}/park`). `step` and `occurrence` name the point; for a pause they may be left out."""

    supervisor: str
    instance: str
    attempt: int
    wait: Wait
    locked_decisions: Raw
    step: str | None = None
    occurrence: int | None = None


class Parked(Message):
    """`status` is parked, or ready where there is nothing to wait for: then the attempt goes on, with `value`.

    `until` is when time ends the wait, for a parked task; `pause` says that a pause is requested.
    """

    status: str
    generation: int
    value: Raw | UnsetType = UNSET
    until: str | UnsetType = UNSET
    pause: bool = False


class StartToken(Message):
    """Start a token. `key` makes it once: the same key and body begin nothing again."""

    token: str
    context: OptionalRaw = None
    key: str | None = None


class StartResult(Message):
    """What became of one of many starts: 201 started, 200 it was there, or why it was refused."""

    status: int
    token: str | None = None
    code: str | None = None
    error: str | None = None


class StartResults(Message):
    """One result a start, in order."""

    results: list[StartResult]


class Start(Message):
    """Start a routine without a graph (`POST /tasks`)."""

    routine: str
    input: Raw
    version: int = 1
    retries: int = 0
    backoff_s: float | None = None
    max_backoff_s: float | None = None
    not_retryable: list[str] | None = None


class Spawn(Message):
    """Start a child of the task (`POST /tasks/{id}/children`). `step` and `occurrence` name it within its parent."""

    supervisor: str
    instance: str
    attempt: int
    step: str
    occurrence: int
    routine: str
    input: Raw
    version: int = 1
    retries: int = 0
    backoff_s: float | None = None
    max_backoff_s: float | None = None
    not_retryable: list[str] | None = None


class Spawned(Message):
    """The child: new, or the one that this step started before."""

    task: int
    pause: bool = False


class Signalled(Message):
    """A signal that was taken in. `delivered`: it ended a wait at once; else it is kept for the next one."""

    name: str
    delivered: bool
    task: int | None = None
    token: str | None = None
    duplicate: bool = False


class Refusal(Message):
    """The body of every answer of 400 and above. Who answered first and when: of `already_answered` only."""

    error: str
    code: str
    answered_by: str | None = None
    answered_at: str | None = None


class HistoryEntry(Message):
    """One line of a token's history."""

    seq: int
    at: str
    kind: str
    data: Raw


def encode(message: Any) -> bytes:
    """Write a message as compact JSON."""
    return msgspec.json.encode(message)
