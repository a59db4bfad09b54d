"""What the engine answers beyond the baseline's messages: pages, supervisors, queues. Field names are wire names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET, Raw
from stateous_contract import limits
from stateous_contract.health import AUTH, FEATURES, Health, Limits
from stateous_contract.messages import HistoryEntry, Message, TokenView

from stateous_control.engine.sweep import Seen
from stateous_control.graph.document import Graph
from stateous_control.rules.queues import version_of
from stateous_control.rules.views import STEP_GOES_ON, stamp
from stateous_control.store.pool import Row
from stateous_control.store.reading import Counted

LIMITS: Final = Limits(
    body_bytes_max=limits.BODY_BYTES_MAX,
    batch_bytes_max=limits.BATCH_BYTES_MAX,
    depth_max=limits.DEPTH_MAX,
    claim_max=limits.CLAIM_MAX,
    heartbeat_max=limits.HEARTBEAT_MAX,
    messages_max=limits.MESSAGES_MAX,
    wait_s_max=limits.WAIT_S_MAX,
)

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


def health_view(
    graph: Graph,
    seen: Seen,
    *,
    unroutable: int,
    is_keyed: bool,
    lease_s: float,
    heartbeat_s: float,
    version: str | None,
) -> Health:
    """Return how the control plane is, as its last sweep saw it. With keys nobody is named to those without one."""
    return Health(
        workflow=graph.workflow,
        checksum=graph.checksum,
        protocol=limits.PROTOCOL,
        features=[*FEATURES, AUTH] if is_keyed else list(FEATURES),
        limits=LIMITS,
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        now=seen.now_text,
        as_of=seen.now_text,
        alarms=seen.alarms_without_names if is_keyed else seen.alarms,
        version=version,
        unroutable=unroutable,
    )


class QueueView(Message):
    """The waiting work of one version of a state (``coding``, ``coding#2``) or of a routine (``@publish#1``).

    `is_served` False: no supervisor seen of late serves it; `unroutable` are the tasks that wait for one (DX-22).
    """

    state: str
    depth: int
    delayed: int
    running: int
    oldest_wait_s: float
    is_served: bool
    version: int = 1
    unroutable: int = 0


def token_row_view(row: Row, *, is_owner_shown: bool = False) -> TokenView:
    """Return a token as clients see it, from its row; the owner where the caller sees those of several."""
    return TokenView(
        token=row["name"],
        state=row["state"],
        status=row["status"],
        visit=row["visit"],
        context=Raw(row["context"].encode()),
        entered_at=stamp(row["entered_at"]),
        parent=UNSET if row["parent"] is None else row["parent"],
        owner=row["owner"] if is_owner_shown else UNSET,
        pausing=STEP_GOES_ON if row["is_pausing"] else UNSET,
    )


def history_view(row: Row) -> HistoryEntry:
    """Return a line of history as clients see it."""
    return HistoryEntry(seq=row["seq"], at=stamp(row["at"]), kind=row["kind"], data=Raw(row["data"].encode()))


def token_page(page: Counted, cursor: str | None, *, is_owner_shown: bool = False) -> TokenPage:
    """Wrap a page of tokens in its counts."""
    returned = len(page.rows)
    return TokenPage(
        returned_count=returned,
        total_count=page.total,
        withheld_count=page.total - returned,
        truncated=page.total > returned,
        entries=[token_row_view(row, is_owner_shown=is_owner_shown) for row in page.rows],
        cursor=cursor,
    )


def history_page(page: Counted) -> HistoryPage:
    """Wrap a page of history in its counts."""
    returned = len(page.rows)
    return HistoryPage(
        returned_count=returned,
        total_count=page.total,
        withheld_count=page.total - returned,
        truncated=page.total > returned,
        entries=[history_view(row) for row in page.rows],
    )


def supervisor_views(rows: list[Row]) -> list[SupervisorView]:
    """Return supervisors as clients see them; two live processes of one name are marked (BH-010)."""
    return [
        SupervisorView(
            name=row["name"],
            last_seen=stamp(row["last_seen"]),
            running=row["running"],
            states=row["states"],
            instance=row["instance"] or None,
            version=row["version"],
            is_live=row["is_live"],
            is_duplicate=any(_are_twins(row, other) for other in rows),
        )
        for row in rows
    ]


def _are_twins(one: Row, other: Row) -> bool:
    """Whether two processes of one name live at one time: each was heard since the other began.

    One that began when the other was heard no more has taken its place, as after a restart.
    """
    return (
        (one["name"], one["scope"]) == (other["name"], other["scope"])
        and one["instance"] != other["instance"]
        and one["is_live"]
        and other["is_live"]
        and one["last_seen"] > other["first_seen"]
        and other["last_seen"] > one["first_seen"]
    )


def queue_view(row: Row) -> QueueView:
    """Return a state's work as clients see it."""
    return QueueView(
        state=row["state"],
        depth=row["depth"],
        delayed=row["delayed"],
        running=row["running"],
        oldest_wait_s=row["oldest_wait_s"] or 0.0,
        is_served=row["is_served"],
        version=version_of(row["state"]),
        unroutable=0 if row["is_served"] else row["depth"] + row["delayed"],
    )
