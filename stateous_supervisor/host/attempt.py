"""One attempt that this host runs: its grant, its context, and the port through which the routine speaks.

Whoever ends it first wins: `take_end` says yes once. The runner moves it; nothing here waits or schedules.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from msgspec import Raw
from stateous_contract.messages import Grant

from stateous_supervisor.host.discovery import Routine
from stateous_supervisor.link.frames import Frame, Logged, Noted, Remembered
from stateous_supervisor.sdk.context import AsyncContext, BaseContext, Context


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
    """Why an attempt is being stopped. `error` is what to report (a timeout); None drops the result."""

    cause: str
    error: str | None = None
    cancels: int = 0


class Attempt:
    """One attempt of one task. The routine's `Port`."""

    __slots__ = (
        "_end",
        "_speaker",
        "attempt",
        "began_at",
        "due_at",
        "future",
        "grant",
        "held_until",
        "is_isolated",
        "is_over",
        "routine",
        "stop",
        "task",
        "timeout_s",
        "was_seen_done",
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
        self.is_isolated = False
        self.is_over = False
        self.was_seen_done = False
        self._speaker = speaker
        self._end = threading.Lock()

    @property
    def key(self) -> tuple[int, int]:
        """Task and attempt."""
        return (self.task, self.attempt)

    def context(self) -> BaseContext[Any]:
        """Make the routine's argument. It is not kept here: the two would keep each other from being freed."""
        kind: type[BaseContext[Any]] = AsyncContext if self.routine.is_async else Context
        return kind(self.grant, self)

    def take_end(self) -> bool:
        """Whether the caller is the one that ends this attempt."""
        if not self._end.acquire(blocking=False):
            return False
        self.is_over = True
        return True

    # The routine's port.

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

    def _counts(self) -> bool:
        """What a lost or ended attempt says is dropped: nothing may arrive after its outcome (A-30, A-36)."""
        return not self.is_over and self.stop is None
