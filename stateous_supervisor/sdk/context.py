"""The one argument of a routine: the token's context as a mapping, who and where we are, and what we may say.

`Context` is for `def`, `AsyncContext` for `async def` routines; all that is here is a plain call in both. A context
knows nothing of the host: it speaks through a `Port`, which the host (or a test) gives it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NoReturn, Protocol, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw
from stateous_contract.limits import NOTE_CHARS_MAX
from stateous_contract.messages import Grant, Schedule, encode

from stateous_supervisor.sdk.calls import AwaitedCalls, PlainCalls
from stateous_supervisor.sdk.driving import Caller
from stateous_supervisor.sdk.durable import Course, hold_to_passed
from stateous_supervisor.sdk.endings import AttemptLost
from stateous_supervisor.sdk.marks import is_duration
from stateous_supervisor.sdk.memory import Memory
from stateous_supervisor.sdk.occurrences import Occurrence
from stateous_supervisor.sdk.payloads import model_instance, model_of, payload_text
from stateous_supervisor.sdk.replay import Replay
from stateous_supervisor.sdk.values import json_text, read
from stateous_supervisor.sdk.wait_calls import AwaitedWaits, PlainWaits

C = TypeVar("C")
D = TypeVar("D")

_entries = msgspec.json.Decoder(dict[str, Raw])


class Port(Caller, Protocol):
    """What a context asks of whoever runs the routine."""

    def note(self, text: str) -> None: ...
    def remember(self, key: str, value: bytes) -> None: ...
    def lease_s(self) -> float: ...
    def lost_cause(self) -> str | None: ...
    def context_model(self) -> Any: ...


class EnteredBy:
    """The event that brought the token here. `error` is the text of a failure, for the event ``error`` only."""

    __slots__ = ("error", "name", "payload")

    def __init__(self, name: str, payload: dict[str, Any] | None, error: str | None) -> None:
        self.name = name
        self.payload = payload
        self.error = error

    def __repr__(self) -> str:
        return f"EnteredBy({self.name!r}, {self.payload!r})"


class BaseContext(Mapping[str, Any], Generic[C]):
    """What both kinds of context have (A-17).

    As a mapping it gives the token's context: copies are read, and what is written is checked as JSON at once and
    goes out with the outcome. A key cannot be deleted. It is generic in the workflow's context model.
    """

    __slots__ = ("_entered_by", "_entries", "_grant", "_memory", "_port", "_run", "_schedules", "_written")

    def __init__(self, grant: Grant, port: Port) -> None:
        self._grant = grant
        self._port = port
        self._entries: dict[str, Raw | str] | None = None
        self._entered_by: EnteredBy | None = None
        self._memory: Memory | None = None
        self._written: dict[str, str] | None = None
        self._schedules: list[Schedule] | None = None
        self._run: Replay | None = None

    # Who and where we are.

    @property
    def token(self) -> str:
        """The id of the token; empty for a routine without a graph."""
        return self._grant.token

    @property
    def task(self) -> int:
        """The id of the task."""
        return self._grant.task

    @property
    def state(self) -> str:
        """The state that the token is in, as it is claimed; empty for a routine without a graph."""
        return self._grant.state

    @property
    def routine(self) -> str | None:
        """The name of a routine without a graph; None in the routine of a state."""
        return self._grant.routine

    @property
    def visit(self) -> int:
        """How many times the token has entered this state, from 1."""
        return self._grant.visit

    @property
    def attempt(self) -> int:
        """Which attempt of the task this is, from 1."""
        return self._grant.attempt

    @property
    def entered_by(self) -> EnteredBy | None:
        """The event that brought the token here; None where the control plane did not say."""
        given = self._grant.entered_by
        if self._entered_by is None and given is not None:
            payload = None if given.payload is UNSET else read(bytes(given.payload))
            error = None if given.error is UNSET else given.error
            self._entered_by = EnteredBy(given.name, payload, error)
        return self._entered_by

    # The token's context.

    def __getitem__(self, key: str) -> Any:
        return _value(self._all()[key])

    def __setitem__(self, key: str, value: Any) -> None:
        """Set one key of the token's context. It goes out with the outcome. Raises TypeError: not JSON."""
        if not isinstance(key, str):
            raise TypeError(f"a context key is text, not {type(key).__name__}")
        text = json_text(value, f"context[{key!r}]")
        json_text(key, "a context key")
        self._check_token("context")
        entries = self._all()
        if self._written is None:
            self._written = {}
        self._written[key] = entries[key] = text

    def __delitem__(self, key: str) -> NoReturn:
        raise TypeError("a context key cannot be deleted, only set; None is a value like any other")

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def get(self, key: str, /) -> Any: ...
    @overload
    def get(self, key: str, /, default: D) -> Any | D: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """Return a copy of the value of `key`, or `default`."""
        entries = self._all()
        return _value(entries[key]) if key in entries else default

    def update(self, *given: Mapping[str, Any], **named: Any) -> None:
        """Set several keys. All are checked as JSON before the first is set."""
        merged: dict[str, Any] = {}
        for each in (*given, named):
            merged.update(each)
        for key, value in merged.items():
            json_text(value, f"context[{key!r}]")
        for key, value in merged.items():
            self[key] = value

    def model(self) -> C:
        """Return the context, with what was written, as the model that the routine's annotation names.

        Raises TypeError: the routine names no model (``ctx: Context[Ticket]``), or the context does not fit it.
        """
        model = self._port.context_model()
        if model is None:
            raise TypeError(
                "the routine's first parameter names no context model; write ctx: Context[Ticket]"
            )
        found: C = model_instance(model, _object(self._all()))
        return found

    def writes(self) -> dict[str, Any]:
        """Return copies of the context values that this attempt wrote."""
        return {key: read(text) for key, text in (self._written or {}).items()}

    # What outlives the attempt, and what we say.

    @property
    def memory(self) -> Memory:
        """Small values that outlive a failed attempt; each write goes out at once."""
        if self._memory is None:
            self._memory = Memory(_entries.decode(self._grant.memory), self._port.remember)
        return self._memory

    def note(self, text: str) -> None:
        """Say one line of progress, which shows in the token's history at once. Empty text says nothing.

        Raises ValueError for more than 500 characters (surrounding space does not count) and for text that is not
        valid Unicode.
        """
        if not isinstance(text, str):
            raise TypeError(f"a note is text, not {type(text).__name__}")
        line = text.strip()
        if len(line) > NOTE_CHARS_MAX:
            raise ValueError(f"a note has at most {NOTE_CHARS_MAX} characters; this one has {len(line)}")
        if line:
            try:
                json_text(line, "the note")
            except TypeError as error:
                raise ValueError(str(error)) from None
            self._port.note(line)

    def schedule(self, event: type[Occurrence[None]] | Occurrence[Any], after: str) -> None:
        """Have `event` fired at this token `after` a time such as ``"30s"``. It goes out with the outcome.

        Args:
            event: an event class without payload, or an occurrence.
            after: a whole number with s, m, h or d.

        Raises ValueError: the time is none, a class was given whose event has a payload, or it is no event.
        """
        self._check_token("timers")
        if not is_duration(after):
            raise ValueError(f"after is {after!r}; it must be a whole number with s, m, h or d: '30s'")
        made = Schedule(event=_event_name(event), after=after)
        if not isinstance(event, type):
            text = payload_text(event)
            if text is not None:
                made.payload = Raw(text.encode())
        if self._schedules is None:
            self._schedules = []
        self._schedules.append(made)

    def schedules(self) -> list[dict[str, Any]]:
        """Return the timers that this attempt asked for."""
        return [read(encode(each)) for each in self._schedules or []]

    # Whether it still counts.

    @property
    def lease(self) -> float:
        """How many seconds are left of the lease, by our own distrustful count; 0 when it can have ended."""
        return self._port.lease_s()

    @property
    def lost(self) -> bool:
        """Whether this attempt is over for the control plane: nothing that it returns will count."""
        return self._port.lost_cause() is not None

    def check(self) -> None:
        """Raise AttemptLost when this attempt is lost; for `def` routines that want to stop early (S3-70)."""
        cause = self._port.lost_cause()
        if cause is not None:
            raise AttemptLost(f"attempt {self.attempt} of task {self.task} is lost: {cause}")

    def _check_token(self, what: str) -> None:
        if self._grant.routine is not None:
            raise TypeError(f"the routine {self._grant.routine!r} has no token, and so no {what} to write to")

    # For the host.

    def outgoing_context(self) -> str | None:
        """Return the written keys as one JSON object, or None."""
        return _object(dict(self._written)) if self._written else None

    def context_bytes(self) -> int:
        """Return how large the token's context is as JSON, with what was written."""
        return 1 + sum(len(key.encode()) + 4 + _size_bytes(text) for key, text in self._all().items())

    def outgoing_schedules(self) -> list[Schedule] | None:
        """Return the timers as they go out, or None."""
        return self._schedules

    def unmet(self) -> list[str]:
        """Return the steps that earlier attempts passed and this one did not come by."""
        return self._replay().unmet() if self._grant.checkpoints else []

    def ending(self) -> tuple[Course[None], Replay]:
        """Return what there is to do when the routine has returned, before its outcome counts."""
        return hold_to_passed(self._replay(), None), self._replay()

    def _replay(self) -> Replay:
        if self._run is None:
            self._run = Replay(self._grant, is_strict=self._port.is_strict)
        return self._run

    def _caller(self) -> Caller:
        return self._port

    def __repr__(self) -> str:
        grant = self._grant
        return f"{type(self).__name__}(token={grant.token!r}, task={grant.task}, attempt={grant.attempt})"

    def _all(self) -> dict[str, Raw | str]:
        if self._entries is None:
            self._entries = dict(_entries.decode(self._grant.context))
        return self._entries


class Context(BaseContext[C], PlainCalls, PlainWaits):
    """The argument of a `def` routine."""

    __slots__ = ()


class AsyncContext(BaseContext[C], AwaitedCalls, AwaitedWaits):
    """The argument of an `async def` routine."""

    __slots__ = ()


def _value(text: Raw | str) -> Any:
    return read(text if isinstance(text, str) else bytes(text))


def _size_bytes(text: Raw | str) -> int:
    return len(text.encode()) if isinstance(text, str) else memoryview(text).nbytes


def _object(entries: Mapping[str, Raw | str]) -> str:
    members = (
        f"{json_text(key, 'a context key')}:{text if isinstance(text, str) else bytes(text).decode()}"
        for key, text in entries.items()
    )
    return "{" + ",".join(members) + "}"


def _event_name(event: Any) -> str:
    name = inspect.getattr_static(event, "name", None)
    if not (isinstance(name, str) and hasattr(event, "payload_model")):
        kind = type(event).__name__
        raise ValueError(f"schedule takes an event of contract.events, not a value of type {kind}")
    if isinstance(event, type) and model_of(event) is not None:
        raise ValueError(f"the event {name!r} has a payload; schedule an occurrence of it: events.{name}(…)")
    return name
