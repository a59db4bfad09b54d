"""The durable calls as routines make them: plain calls for `def`, awaited ones for `async def`, with one meaning.

Each checks its arguments, and has a course of `durable.py` followed.
"""

# ruff: noqa: ASYNC109  the driver holds a step to its timeout
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from stateous_supervisor.sdk import durable
from stateous_supervisor.sdk.driving import Caller, drive, drive_async, step_key
from stateous_supervisor.sdk.marks import duration_s
from stateous_supervisor.sdk.payloads import fitted, schema_text
from stateous_supervisor.sdk.replay import Replay

TTL: Final = "7d"
BACKOFF_S: Final = 1.0

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
Schema = Mapping[str, Any] | bool | None


class Calls(ABC):
    """What both kinds have in common."""

    __slots__ = ()

    @property
    def step_key(self) -> str:
        """A key of the step that runs, the same in every attempt: for services that do a thing once for each key.

        Raises RuntimeError: no step runs here.
        """
        return step_key()

    @abstractmethod
    def _replay(self) -> Replay:
        """Return the book of this run."""

    @abstractmethod
    def _caller(self) -> Caller:
        """Return who carries calls to the control plane."""


class PlainCalls(Calls):
    """The durable calls of a `def` routine."""

    __slots__ = ()

    @overload
    def ask(
        self,
        key: str,
        data: Any = None,
        *,
        choices: Sequence[T],
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    @overload
    def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: type[T],
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    @overload
    def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: Schema = None,
        choices: None = None,
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> Any: ...
    def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: Any = None,
        choices: Sequence[Any] | None = None,
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> Any:
        """Ask people, and return their answer; until there is one the task is parked and holds nothing.

        The first time this leaves the routine with `Parked`. When somebody has answered, the routine starts again
        from the top, on any box, and this returns the answer, each time that it is run (S1-36 … S1-66).

        Args:
            key: names the question. The same key again is the next question of that name.
            data: what is shown to whoever answers; JSON.
            schema: what an answer must be: a JSON Schema, or a type such as a pydantic model, which it is read into.
            choices: the answers that are allowed.
            ttl: after which time the task expires, with no default answer: seconds, or text such as ``"2h"``.
            remind: how often people are reminded.
            occurrence: which question of that key this is, from 1, where the code does not come by in order.

        Raises:
            Parked: nobody has answered yet; let it through.
            FeatureMissing: the control plane has no questions. CallRefused: it does not take this one.
            TypeError, ValueError: an argument is not what it may be, or the answer does not fit the type.
        """
        asked = _question(key, data, schema, choices, (ttl, remind))
        answer = drive(durable.ask(self._replay(), asked, occurrence), self._replay(), self._caller())
        return fitted(schema, answer, key)

    def step(
        self,
        name: str,
        function: Callable[[], T],
        *,
        retries: int = 0,
        backoff: float | str = BACKOFF_S,
        not_retryable: Errors = (),
        occurrence: int | None = None,
    ) -> T:
        """Do `function` once in the life of the task, and return its value: from then on the stored one (S2-06).

        What comes back has been JSON, also the first time: a tuple is a list. A process that dies after the function
        and before the value is stored makes the function run again; `step_key` helps services to do it once.

        Args:
            name: names the step. The same name again is its next occurrence.
            function: takes nothing and returns JSON.
            retries: how often it is tried again in this attempt when it raises an `Exception`; 0 to 1,000.
            backoff: the rest before the second try: seconds, or text such as ``"5s"``; at most a minute. It doubles,
                up to a minute. The attempt waits in place and keeps its slot.
            not_retryable: errors after which nothing is tried again.
            occurrence: which time this is, from 1; the same one returns the same value.

        Raises:
            TypeError, ValueError: the value is not JSON or too large, or an argument is not what it may be.
            RuntimeError: a step of this name is under way, or this is called inside a step.
            Parked: a pause was requested, and is observed before the step. FeatureMissing, CallRefused: as for `ask`.
        """
        tries = durable.tries(retries, backoff, not_retryable)
        course = durable.step(
            self._replay(), name, function, occurrence, self._caller().is_pausing, tries=tries
        )
        return drive(course, self._replay(), self._caller())  # type: ignore[no-any-return]

    def checkpoint(self, name: str, *, occurrence: int | None = None) -> None:
        """Let a pause take effect here, between steps; once passed it is passed (S1-71, S1-76).

        Raises Parked: a pause was requested. FeatureMissing: the control plane has no pauses.
        """
        course = durable.checkpoint(self._replay(), name, occurrence)
        drive(course, self._replay(), self._caller())


class AwaitedCalls(Calls):
    """The durable calls of an `async def` routine: as `PlainCalls` has them, and awaited."""

    __slots__ = ()

    @overload
    async def ask(
        self,
        key: str,
        data: Any = None,
        *,
        choices: Sequence[T],
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    @overload
    async def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: type[T],
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    @overload
    async def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: Schema = None,
        choices: None = None,
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> Any: ...
    async def ask(
        self,
        key: str,
        data: Any = None,
        *,
        schema: Any = None,
        choices: Sequence[Any] | None = None,
        ttl: float | str = TTL,
        remind: float | str | None = None,
        occurrence: int | None = None,
    ) -> Any:
        """Ask people, and return their answer; arguments and errors are those of `PlainCalls.ask`."""
        asked = _question(key, data, schema, choices, (ttl, remind))
        course = durable.ask(self._replay(), asked, occurrence)
        return fitted(schema, await drive_async(course, self._replay(), self._caller()), key)

    @overload
    async def step(
        self,
        name: str,
        function: Callable[[], Awaitable[T]],
        *,
        retries: int = 0,
        backoff: float | str = BACKOFF_S,
        not_retryable: Errors = (),
        timeout: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[], T],
        *,
        retries: int = 0,
        backoff: float | str = BACKOFF_S,
        not_retryable: Errors = (),
        timeout: float | str | None = None,
        occurrence: int | None = None,
    ) -> T: ...
    async def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        retries: int = 0,
        backoff: float | str = BACKOFF_S,
        not_retryable: Errors = (),
        timeout: float | str | None = None,
        occurrence: int | None = None,
    ) -> Any:
        """Do `function` once in the life of the task, as `PlainCalls.step` does; it may be `async def` (S2-12).

        Steps may run side by side, each under a name of its own (S2-22). `timeout` is for each try: what is awaited is
        cancelled after it, and the step raises TimeoutError, which is tried again like other errors. A plain function
        cannot be interrupted, and runs on.
        """
        tries = durable.tries(retries, backoff, not_retryable, timeout)
        course = durable.step(
            self._replay(), name, function, occurrence, self._caller().is_pausing, tries=tries
        )
        return await drive_async(course, self._replay(), self._caller())

    async def checkpoint(self, name: str, *, occurrence: int | None = None) -> None:
        """Let a pause take effect here, as `PlainCalls.checkpoint` does."""
        course = durable.checkpoint(self._replay(), name, occurrence)
        await drive_async(course, self._replay(), self._caller())


def _question(
    key: str,
    data: Any,
    schema: Any,
    choices: Sequence[Any] | None,
    times: tuple[float | str, float | str | None],
) -> durable.Question:
    ttl, remind = times
    return durable.question(
        key,
        data,
        schema=schema_text(schema, key),
        choices=choices,
        ttl_s=duration_s(ttl, "ttl"),
        remind_s=None if remind is None else duration_s(remind, "remind"),
    )
