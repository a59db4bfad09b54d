"""One attempt that this host runs: its grant, its context, and the port through which the routine speaks.

Whoever ends it first wins: `take_end` says yes once. The runner moves it; nothing here waits or schedules.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

from msgspec import UNSET, Raw
from stateous_contract.messages import Grant

from stateous_supervisor.host.discovery import Routine
from stateous_supervisor.link.frames import Answer, Call, Frame, Logged, Noted, Remembered
from stateous_supervisor.sdk.context import AsyncContext, BaseContext, Context
from stateous_supervisor.sdk.durable import Reply
from stateous_supervisor.sdk.endings import AttemptLost, Parked
from stateous_supervisor.sdk.marks import input_model
from stateous_supervisor.sdk.payloads import input_read

# The cause of a stop that the control plane knows of: the task waits, and somebody will go on with it.
PARKED: Final = "parked"
# Causes of our own: there a step under way is not waited for.
_OURS: Final = frozenset({"timeout", "fenced", "quit", "drain", "SIGTERM", PARKED})


class Speaker(Protocol):
    """Brings frames to the agent."""

    def post(self, frame: Frame) -> None:
        """Send soon, with what else is there. From any thread."""

    def post_now(self, frame: Frame) -> None:
        """Return when the frame is in the socket pair. From any thread but the link's own."""

    def say(self, line: Logged) -> None:
        """Send a log line soon, unless too many wait. From any thread."""


@dataclass
class Stop:
    """Why an attempt is being stopped. `error` is what to report (a timeout); None drops the result.

    `spares_steps`: a step under way is finished first, and nothing after it is begun (S2-46 … S2-49).
    """

    cause: str
    error: str | None = None
    cancels: int = 0

    @property
    def spares_steps(self) -> bool:
        return self.cause not in _OURS


class Attempt:
    """One attempt of one task. The routine's `Port`."""

    __slots__ = (
        "_calls",
        "_end",
        "_is_pausing",
        "_number",
        "_speaker",
        "attempt",
        "began_at",
        "due_at",
        "future",
        "grant",
        "held_until",
        "is_isolated",
        "is_over",
        "own_line",
        "routine",
        "stop",
        "task",
        "thread",
        "timeout_s",
        "was_seen_done",
        "works",
    )

    def __init__(self, grant: Grant, routine: Routine, speaker: Speaker, lease_s: float) -> None:
        self.grant = grant
        self.routine = routine
        self.task = grant.task
        self.attempt = grant.attempt
        self.held_until = monotonic() + lease_s
        self.began_at = 0.0
        self.timeout_s = 0.0
        self.due_at: float | None = None
        self.stop: Stop | None = None
        self.future: asyncio.Task[None] | None = None
        self.thread: threading.Thread | None = None
        self.is_isolated = False
        self.is_over = False
        self.was_seen_done = False
        self.works = 0
        self.own_line: object = None
        self._calls: dict[int, Future[Reply]] = {}
        self._number = 0
        self._is_pausing = False
        self._speaker = speaker
        self._end = threading.Lock()

    @property
    def key(self) -> tuple[int, int]:
        """Task and attempt."""
        return (self.task, self.attempt)

    def cancel_routine(self) -> None:
        """Cancel an `async def` routine. On the loop."""
        if self.works and self.stop is not None and self.stop.spares_steps:
            return  # its next durable call ends it
        # Before its first line it sees by itself that it was stopped; a cancel then would end it without a word.
        if self.began_at and self.future is not None:
            self.future.cancel()

    def context(self) -> BaseContext[Any]:
        """Make the routine's argument. It is not kept here: the two would keep each other from being freed."""
        kind: type[BaseContext[Any]] = AsyncContext if self.routine.is_async else Context
        return kind(self.grant, self)

    def arguments(self, context: BaseContext[Any]) -> tuple[Any, ...]:
        """Return what the routine is called with. Raises InputInvalid: the input is not what it takes."""
        if self.routine.has_graph:
            return (context,)
        given = b"null" if self.grant.input is UNSET else bytes(self.grant.input)
        model = input_model(self.routine.function)
        return (context, input_read(model, given.decode(), self.routine.ref.routine))

    def take_end(self) -> bool:
        """Whether the caller is the one that ends this attempt."""
        if not self._end.acquire(blocking=False):
            return False
        self.is_over = True
        return True

    # What comes from the agent.

    def answer(self, frame: Answer) -> None:
        """Give an answer to whoever waits for it; once the attempt is stopped, nobody else is answered."""
        self._is_pausing = self._is_pausing or frame.is_pausing
        call = self._calls.pop(frame.id, None)
        if call is not None:
            call.set_result(Reply(frame.status, bytes(frame.body), frame.is_parked))
        if self.stop is not None:
            self.release()

    def ask_to_pause(self) -> None:
        """A person asked for a pause; it is seen at the next durable point."""
        self._is_pausing = True

    def release(self) -> None:
        """Let everybody go who waits for an answer: there will be none for this attempt (S1-44)."""
        while self._calls:
            try:
                _, call = self._calls.popitem()
            except KeyError:  # somebody else was faster
                return
            call.set_exception(self._ending())

    # The routine's port.

    def call(self, kind: str, body: bytes) -> Future[Reply]:
        call: Future[Reply] = Future()
        call.set_running_or_notify_cancel()  # so that nobody can cancel it
        self._number += 1
        number = self._number
        self._calls[number] = call
        if kind == "pause":
            self._is_pausing = False
        if self._counts():
            self._speaker.post(
                Call(id=number, task=self.task, attempt=self.attempt, call=kind, body=Raw(body))
            )
        else:
            self.release()
        return call

    def is_pausing(self) -> bool:
        return self._is_pausing

    @property
    def is_strict(self) -> bool:
        return self.routine.is_strict

    def rest_s(self, seconds: float) -> float:
        return seconds

    def note(self, text: str) -> None:
        if self._counts():
            self._speaker.post_now(Noted(task=self.task, attempt=self.attempt, text=text))

    def remember(self, key: str, value: bytes) -> None:
        if self._counts():
            frame = Remembered(task=self.task, attempt=self.attempt, key=key, value=Raw(value))
            self._speaker.post_now(frame)

    def lease_s(self) -> float:
        return 0.0 if self.lost_cause() is not None else max(0.0, self.held_until - monotonic())

    def lost_cause(self) -> str | None:
        stop = self.stop
        return None if stop is None else stop.cause

    def context_model(self) -> Any:
        return self.routine.context_model()

    def check_held(self) -> None:
        if not self._counts():
            raise self._ending()

    def _ending(self) -> BaseException:
        if self.stop is not None and self.stop.cause == PARKED:
            return Parked("this attempt has parked its task already")
        cause = "it has ended" if self.stop is None else self.stop.cause
        return AttemptLost(f"attempt {self.attempt} of task {self.task} is lost: {cause}")

    def _counts(self) -> bool:
        """What a lost or ended attempt says is dropped: nothing may arrive after its outcome (A-30, A-36)."""
        return not self.is_over and self.stop is None
