"""Rows of waits and signals: what a parked task waits for, and what was sent to it or to its token. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import Raw


@dataclass(slots=True)
class Part:
    """One thing that ends a wait: a time (`at`, of a sleep or a timeout), a signal's `name`, or a child `task`."""

    kind: Literal["sleep", "signal", "result", "timeout"]
    at: datetime | None = None
    name: str | None = None
    task: int | None = None


@dataclass(slots=True)
class Wait:
    """A row of ``waits``. `step` and `occurrence` name it within its task; it `is_open` while the task is parked on it.

    `parts` keep the times that were fixed when the task first parked here; they stand whatever becomes of its attempts.
    """

    task_id: int
    step: str
    occurrence: int
    parts: list[Part]
    began_at: datetime
    is_open: bool = False
    is_new: bool = False
    is_changed: bool = False

    @property
    def due_at(self) -> datetime | None:
        """When time alone ends it; None where it never does."""
        return min((part.at for part in self.parts if part.at is not None), default=None)

    def close(self) -> None:
        """Note that nobody is parked on it any more."""
        self.is_open, self.is_changed = False, True


@dataclass(slots=True)
class Signal:
    """A row of ``signals``: sent to a task, or to a token and so to whichever of its tasks waits first.

    `taken_by` is the task whose wait it ended; each ends one at most. `key` is the sender's idempotency key.
    """

    id: int | None
    task_id: int | None
    token_id: int | None
    name: str
    payload: Raw | None
    sent_at: datetime
    sent_by: str
    key: str | None = None
    taken_by: int | None = None
    is_new: bool = False
    is_changed: bool = False

    def is_for(self, task_id: int, token_id: int | None) -> bool:
        """Say whether this task may take it."""
        if self.taken_by is not None:
            return False
        return self.task_id == task_id if self.task_id is not None else self.token_id == token_id
