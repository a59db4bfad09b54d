"""What a routine can wait for, and what comes of a wait. Values only; `waits.py` has the courses.

Routines match on what comes back: ``case Received(payload=p)``, ``case TimedOut()``. A `TimedOut` is false and all
others are true, so that ``if got := ctx.wait_for_signal("go", timeout="1h")`` says what it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from stateous_supervisor.sdk.endings import ChildFailed


class Child(NamedTuple):
    """A task that this routine started. `task` is its id."""

    task: int
    routine: str


# What `first` waits for.


@dataclass(frozen=True)
class Sleep:
    """A time: seconds or text such as ``"5m"`` from the first park on, or a moment with its offset from UTC."""

    until: float | str | datetime


@dataclass(frozen=True)
class Signal:
    """A signal of that name, to this task or its token."""

    name: str


@dataclass(frozen=True)
class Result:
    """The end of a child."""

    child: Child | int


Awaited = Sleep | Signal | Result


# What came of it. `index` is the place of what came first among the waits of a `first`, from 0.


@dataclass(frozen=True)
class Slept:
    """The time has come."""

    index: int = 0


@dataclass(frozen=True)
class Received:
    """A signal came."""

    name: str
    payload: Any = None
    index: int = 0


@dataclass(frozen=True)
class Finished:
    """A child has ended. `state` is completed (with `result`), failed, expired or cancelled (with `reason`)."""

    task: int
    state: str
    result: Any = None
    reason: str | None = None
    error: str | None = None
    index: int = 0

    @property
    def value(self) -> Any:
        """What the child returned. Raises ChildFailed: it did not complete."""
        if self.state != "completed":
            raise ChildFailed(self.task, self.state, self.reason, self.error)
        return self.result


@dataclass(frozen=True)
class TimedOut:
    """The timeout came first."""

    def __bool__(self) -> bool:
        return False


Ended = Slept | Received | Finished | TimedOut
