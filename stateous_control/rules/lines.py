"""What a book writes and never reads again: lines of histories and logs, and keys of memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Raw


@dataclass(slots=True)
class TaskEntry:
    """One new line of a task's log."""

    seq: int
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class Entry:
    """One new line of a token's history."""

    token_id: int
    seq: int
    at: datetime
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class MemoryWrite:
    """One key of a state's memory; `value` None deletes it."""

    token_id: int
    state: str
    key: str
    value: Raw | None
