"""What the engine answers beyond the baseline's messages: pages, supervisors, queues. Field names are wire names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from stateous_contract.messages import HistoryEntry, Message, TokenView

IsGone = Callable[[], bool]
"""Tells without waiting whether the client behind a request has closed its connection."""


class TokenPage(Message):
    """One page of a list of tokens, with counts of one snapshot: `withheld_count` = total - returned (S1-109)."""

    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    entries: list[TokenView]
    cursor: str | None = None


class HistoryPage(Message):
    """A part of a token's history. `total_count` is its newest sequence number: the history has no gaps (S1-106)."""

    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    entries: list[HistoryEntry]


class SupervisorView(Message):
    """One supervisor process as last seen. `running` counts the leases that it holds."""

    name: str
    last_seen: str
    running: int
    states: list[str]
    instance: str | None = None
    version: str | None = None
    is_live: bool = True
    is_duplicate: bool = False


class QueueView(Message):
    """The waiting work of one state. `is_served` False: no supervisor seen of late serves it."""

    state: str
    depth: int
    delayed: int
    running: int
    oldest_wait_s: float
    is_served: bool


def stamp(at: datetime) -> str:
    """Write a time as the wire has it: UTC with Z, microseconds left out when they are zero."""
    return at.isoformat().replace("+00:00", "Z")
