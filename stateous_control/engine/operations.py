"""The control plane as a program object: everything that HTTP, commands and tests can ask of it.

It owns the loops (sweep, listener, notifier, writers, claims) and ends them; it never speaks HTTP. Expected refusals
are raised as `Refused` (`Unavailable` when the database cannot answer); anything else that is raised is a fault of ours.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.messages import (
    ClaimRequest,
    Grant,
    Health,
    HeartbeatAnswer,
    HeartbeatRequest,
    HistoryEntry,
    MessageResults,
    Report,
    TaskMessages,
    TokenView,
)

from stateous_control.engine.views import HistoryPage, IsGone, QueueView, SupervisorView, TokenPage
from stateous_control.graph.document import Graph


class ControlPlane:
    """One control plane on one database; any number of them may share it.

    Use it as ``async with ControlPlane(url, graph=graph) as plane``. Entering connects, checks the schema, puts the
    graph on record and starts the loops; it raises `StartRefused` with one sentence where it cannot serve.

    Args:
        url: a PostgreSQL URL. graph: what to serve; None takes the one on record.
        lease_s, heartbeat_s, sweep_s: lease length, how often supervisors beat, pause between sweeps.
        connections_max: connections to the database, the listener's own not counted.
        statement_cache: False behind a pooler that does not keep prepared statements (found out by itself too).
    """

    def __init__(
        self,
        url: str,
        *,
        graph: Graph | None = None,
        lease_s: float = limits.LEASE_S,
        heartbeat_s: float = limits.HEARTBEAT_S,
        sweep_s: float = limits.SWEEP_S,
        releases_max: int = limits.RELEASES_MAX,
        connections_max: int = 10,
        statement_cache: bool = True,
        version: str | None = None,
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    @property
    def graph(self) -> Graph:
        """The graph that new tokens start on (`GET /workflow`)."""
        raise NotImplementedError

    # Tokens.

    async def start_token(
        self, name: str, context: Raw | None, *, owner: str = "default"
    ) -> tuple[TokenView, bool]:
        """Start a token, or return the one that has this name; the flag says whether it is new."""
        raise NotImplementedError

    async def token(self, name: str, *, owner: str = "default") -> TokenView:
        raise NotImplementedError

    async def list_tokens(
        self, *, status: str | None = None, limit: int = limits.LIST_DEFAULT, parent: str | None = None
    ) -> list[TokenView]:
        """Return the newest tokens as the baseline lists them."""
        raise NotImplementedError

    async def page_tokens(
        self,
        *,
        status: str | None = None,
        limit: int = limits.LIST_DEFAULT,
        cursor: str | None = None,
        parent: str | None = None,
    ) -> TokenPage:
        """Return a page with honest counts; raises `Refused` (invalid_argument) for a cursor that is none of ours."""
        raise NotImplementedError

    async def history(
        self, name: str, *, after: int = 0, limit: int | None = None, owner: str = "default"
    ) -> list[HistoryEntry]:
        """Return the token's history after entry `after`, oldest first."""
        raise NotImplementedError

    async def page_history(
        self, name: str, *, after: int = 0, limit: int = limits.LIST_DEFAULT, owner: str = "default"
    ) -> HistoryPage:
        """Return entries after `after` with honest counts; `truncated` where later ones were left out."""
        raise NotImplementedError

    async def fire(
        self, name: str, event: str, payload: Raw | None, *, key: str | None = None, owner: str = "default"
    ) -> tuple[TokenView, bool]:
        """Fire an event; the flag says that `key` was used before and nothing was done."""
        raise NotImplementedError

    async def pause(self, name: str, *, owner: str = "default") -> TokenView:
        raise NotImplementedError

    async def resume(self, name: str, *, owner: str = "default") -> TokenView:
        raise NotImplementedError

    async def cancel(self, name: str, *, owner: str = "default") -> TokenView:
        raise NotImplementedError

    # Work.

    async def claim(self, request: ClaimRequest, is_gone: IsGone = lambda: False) -> list[Grant]:
        """Give out work; an empty list is the 204. Waits up to ``request.wait`` seconds where nothing is ready.

        Answers at once when `begin_stop` was called. Nothing is granted once `is_gone` tells that the client left.
        Cancelling the call takes its claim out of the queue.
        """
        raise NotImplementedError

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        raise NotImplementedError

    async def report(self, task: int, report: Report) -> TokenView:
        raise NotImplementedError

    async def note(self, task: int, text: str, *, attempt: int | None) -> None:
        """Write one line of progress. `text` is stripped and 1 to 500 characters already."""
        raise NotImplementedError

    async def remember(self, task: int, key: str, value: Raw | None, *, attempt: int | None) -> None:
        """Set one key of the state's memory; `value` None (a JSON null) deletes it."""
        raise NotImplementedError

    async def messages(self, messages: TaskMessages) -> MessageResults:
        raise NotImplementedError

    # The house.

    async def supervisors(self) -> list[SupervisorView]:
        raise NotImplementedError

    async def queues(self) -> list[QueueView]:
        raise NotImplementedError

    def health(self) -> Health:
        """Answer from memory alone; never waits for the database."""
        raise NotImplementedError

    async def ready(self) -> None:
        """Ask the database, for one second at most; raises `Unavailable`."""
        raise NotImplementedError

    def begin_stop(self) -> None:
        """Answer every waiting claim empty now, and later ones at once. Safe to call from a signal handler's callback."""
        raise NotImplementedError

    def statistics(self) -> dict[str, Any]:
        """Counters since start, for `/metrics`: claims, grants, reports, notes, heartbeats, lost, swept, timers."""
        raise NotImplementedError
