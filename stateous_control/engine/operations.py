"""The control plane as a program object: everything that HTTP, commands and tests can ask of it.

It owns the loops (sweep, listener, notifier, writers, claims) and ends them; it never speaks HTTP. Expected refusals
are raised as `Refused` (`Unavailable` when the database cannot answer); anything else is a fault of ours.
"""

from __future__ import annotations

import asyncio
import copy
import re
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.health import Health
from stateous_contract.messages import (
    ClaimRequest,
    Grant,
    HeartbeatAnswer,
    HeartbeatRequest,
    HistoryEntry,
    MessageResults,
    Report,
    StartResult,
    StartToken,
    TaskMessages,
    TokenView,
)

from stateous_control.engine import changes, heartbeats, passing, starting
from stateous_control.engine.attendance import Attendance
from stateous_control.engine.chores import FOR_EVER
from stateous_control.engine.claims import Claims
from stateous_control.engine.cursors import read_cursor, write_cursor
from stateous_control.engine.gathering import Answer, Gathering, Operation
from stateous_control.engine.granting import queues_of
from stateous_control.engine.keyring import Keyring
from stateous_control.engine.lifecycle import Loops
from stateous_control.engine.notices import Notices
from stateous_control.engine.people import TaskView
from stateous_control.engine.record import settle_graph
from stateous_control.engine.retention import Windows
from stateous_control.engine.supervision import Supervision
from stateous_control.engine.sweep import Sweep, live_s
from stateous_control.engine.telling import Deliver, Telling
from stateous_control.engine.views import (
    HistoryPage,
    IsGone,
    QueueView,
    SupervisorView,
    TokenPage,
    health_view,
    history_page,
    history_view,
    queue_view,
    supervisor_views,
    token_page,
    token_row_view,
)
from stateous_control.engine.watching import Watching, all_of
from stateous_control.engine.withdrawing import give_back
from stateous_control.graph.document import Graph
from stateous_control.rules.access import OPEN, Access
from stateous_control.store import migrate, reading
from stateous_control.store.books import Shelf
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Pool

READY_S: Final = 1.0
CURSOR_OF_TOKENS: Final = "tokens:"


class ControlPlane:
    """One control plane on one database; any number of them may share it.

    Use it as ``async with ControlPlane(url, graph=graph) as plane``. Entering connects, checks the schema, puts the
    graph on record and starts the loops; it raises `StartRefused` with one sentence where it cannot serve.

    Args:
        url: a PostgreSQL URL. graph: what to serve; None takes the one on record.
        lease_s, heartbeat_s, sweep_s: lease length, how often supervisors beat, pause between sweeps.
        releases_max: releases of a dead host before each counts as a failure.
        retry_delay_s: what the first retry of a failed attempt waits; 0 retries at once, as the baseline does.
        connections_max: connections to the database, the listener's own not counted.
        statement_cache: False behind a pooler that does not keep prepared statements (also found out by itself).
        version: of this program, for `/health`. task_ttl_s: how long a task may live, None for ever.
        on_question: tells people outside of an open question; None tells nobody. windows: how long ends are kept.
    """

    _access: Access = OPEN

    def __init__(
        self,
        url: str,
        *,
        graph: Graph | None = None,
        lease_s: float = limits.LEASE_S,
        heartbeat_s: float = limits.HEARTBEAT_S,
        sweep_s: float = limits.SWEEP_S,
        releases_max: int = limits.RELEASES_MAX,
        retry_delay_s: float = 1.0,
        connections_max: int = 10,
        statement_cache: bool = True,
        version: str | None = None,
        task_ttl_s: float | None = None,
        on_question: Deliver | None = None,
        windows: Windows = FOR_EVER,
    ) -> None:
        self.plane = secrets.token_hex(8)
        self._graph = graph
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._sweep_s = sweep_s
        self._version = version
        self._pool = Pool(url, connections_max=connections_max, statement_cache=statement_cache)
        self._shelf = Shelf(releases_max=releases_max, retry_delay_s=retry_delay_s, task_ttl_s=task_ttl_s)
        self.keyring = Keyring(self._pool)
        self._loops = Loops()
        self._claims = Claims(self._pool, lease_s, self._loops.serve)
        self._notices = Notices(self._pool, self.plane, self._claims)
        self._watching = Watching()
        self._telling = Telling(self._pool, on_question)
        committed = all_of(self._notices.committed, self._watching.committed, self._telling.committed)
        self._gathering = Gathering(self._pool, self._shelf, committed)
        self._attendance = Attendance(self._pool)
        self._sweep = Sweep(
            self._pool,
            self._shelf,
            self.plane,
            committed,
            lease_s=lease_s, heartbeat_s=heartbeat_s, sweep_s=sweep_s, windows=windows)  # fmt: skip
        self._counted = dict.fromkeys(("claims", "grants", "heartbeats", "leases_renewed", "leases_lost"), 0)

    async def __aenter__(self) -> Self:
        try:
            await migrate.check(self._pool)
            self._graph = await settle_graph(self._pool, self._graph)
            self._shelf.keep(self._graph)
            await self._sweep.observe()
            await self.keyring.read()
        except BaseException:
            await self._pool.close()
            raise
        self._notices.others = self._sweep.seen.others
        self._loops.start(
            gathering=self._gathering,
            claims=self._claims,
            notices=self._notices,
            sweep=self._sweep,
            attendance=self._attendance,
            keyring=self.keyring,
            telling=self._telling,
            sweep_s=self._sweep_s,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_stop()
        await self._loops.stop()
        self._gathering.stop()
        await self._pool.close()

    @property
    def graph(self) -> Graph:
        """The graph that new tokens start on (`GET /workflow`)."""
        assert self._graph is not None, "a control plane is entered before it is asked"
        return self._graph

    def seen_by(self, access: Access) -> Self:
        """Return this control plane as one caller sees it: what is not the caller's own does not exist in it."""
        if access is self._access:
            return self
        seen = copy.copy(self)
        seen._access = access  # noqa: SLF001 - it is of this very class
        return seen

    # Tokens. Each belongs to the caller's owner; ids mean something within it only.

    async def start_token(
        self, name: str, context: Raw | None, *, key: str | None = None
    ) -> tuple[TokenView, bool]:
        """Start a token, or return the one that is there; the flag says whether it is new. `key` makes it once."""
        self._access.check_owner()
        said = StartToken(token=name, context=context, key=key)
        return await self._run(starting.start(self.graph, self._access.place(), said))

    async def start_tokens(self, starts: Sequence[StartToken]) -> list[StartResult]:
        """Start many tokens in one transaction, with one result for each."""
        self._access.check_owner()
        return await self._run(starting.start_many(self.graph, self._access.place(), starts))

    async def token(self, name: str) -> TokenView:
        """Return the token of exactly this name, spelled as it is."""
        row = await reading.find_token(self._pool, self._place_of(name), name)
        if row is None:
            raise _no_token(name)
        return token_row_view(row)

    async def list_tokens(
        self, *, status: str | None = None, limit: int = limits.LIST_DEFAULT, parent: str | None = None
    ) -> list[TokenView]:
        """Return the newest tokens as the baseline lists them."""
        owners, _ = self._access.bounds
        rows = await reading.list_tokens(self._pool, status, parent, limit, owners)
        return [token_row_view(row, is_owner_shown=self._access.sees_several) for row in rows]

    async def page_tokens(
        self,
        *,
        status: str | None = None,
        limit: int = limits.LIST_DEFAULT,
        cursor: str | None = None,
        parent: str | None = None,
    ) -> TokenPage:
        """Return a page with honest counts, newest start first; the order never changes while one walks (BH-056).

        Raises `Refused` (invalid_argument) for a cursor that is none of this list's.
        """
        before = None if cursor is None else read_cursor(CURSOR_OF_TOKENS, cursor)
        page = await reading.page_tokens(
            self._pool, status, parent, limit, before, owners=self._access.bounds[0]
        )
        cursor = write_cursor(CURSOR_OF_TOKENS, page.rows[-1]["id"]) if len(page.rows) == limit else None
        return token_page(page, cursor, is_owner_shown=self._access.sees_several)

    async def history(self, name: str, *, after: int = 0, limit: int | None = None) -> list[HistoryEntry]:
        """Return the token's history after entry `after`, oldest first."""
        rows = await reading.token_history(self._pool, self._place_of(name), name, after, limit)
        if rows is None:
            raise _no_token(name)
        return [history_view(row) for row in rows]

    async def page_history(
        self, name: str, *, after: int | None = None, limit: int = limits.LIST_DEFAULT
    ) -> HistoryPage:
        """Return the newest entries, or with `after`, also 0, the first ones after it; in order, with honest counts."""
        page = await reading.page_history(self._pool, self._place_of(name), name, after, limit)
        if page is None:
            raise _no_token(name)
        return history_page(page)

    async def fire(
        self, name: str, event: str, payload: Raw | None, *, key: str | None = None
    ) -> tuple[TokenView, bool]:
        """Fire an event; the flag says that `key` was used before and nothing was done."""
        return await self._run(changes.fire(self._place_of(name), name, event, payload, key))

    async def pause(self, name: str) -> TokenView:
        """Pause a token: events are held, timers stop, its task is not handed out."""
        return await self._run(changes.pause(self._place_of(name), name))

    async def resume(self, name: str) -> TokenView:
        """End a token's pause: held events are applied, timers get the paused time back."""
        return await self._run(changes.resume(self._place_of(name), name))

    async def cancel(self, name: str) -> TokenView:
        """End a token; its tasks are cancelled."""
        return await self._run(changes.cancel(self._place_of(name), name))

    # Work.

    async def claim(
        self, request: ClaimRequest, is_gone: IsGone = lambda: False, *, version: str | None = None
    ) -> list[Grant]:
        """Give out work; an empty list is the 204. Waits up to ``request.wait`` seconds where nothing is ready.

        `version` is that of the agent that asks, where it tells one; it is shown to people and decides nothing.
        Answers at once when `begin_stop` was called. Nothing is granted once `is_gone` tells that the client left.
        Cancelling the call takes its claim out of the queue.
        """
        self._access.check_owner()
        self._access.check_states([*request.states, *(f"@{routine}" for routine in request.routines or ())])
        self._counted["claims"] += 1
        scope = self._access.scope
        self._attendance.hear(
            request.supervisor, request.instance, queues_of(request), scope=scope, version=version
        )
        if request.withdraw:
            self._notices.tell_ended(scope, request.supervisor, request.instance or "", request.request or "")
            await give_back(self._pool, self._run, request, scope)
            return []
        access = self._access
        grants = await self._claims.claim(
            # A claim that waits is given nothing once its key is no longer good.
            request,
            lambda: is_gone() or not self.keyring.is_live(access),
            access,
        )
        self._counted["grants"] += len(grants)
        return grants

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Renew leases; the answer names what is lost."""
        self._attendance.hear(request.supervisor, request.instance, scope=self._access.scope)
        answer = await heartbeats.renew(self._pool, request, self._lease_s, self._access)
        self._counted["heartbeats"] += 1
        self._counted["leases_lost"] += len(answer.lost)
        self._counted["leases_renewed"] += len(set(request.tasks)) - len(answer.lost)
        return answer

    async def report(self, task: int, report: Report) -> TokenView | TaskView:
        """Take an outcome, or a report from outside; the answer is the token, or a task without one, as it is then."""
        return await self._run(changes.report(task, report))

    async def note(self, task: int, text: str, *, attempt: int | None) -> None:
        """Write one line of progress. `text` is stripped and 1 to 500 characters already."""
        await self._run(changes.note(task, text, attempt))

    async def remember(self, task: int, key: str, value: Raw | None, *, attempt: int | None) -> None:
        """Set one key of the state's memory; `value` None (a JSON null) deletes it."""
        await self._run(changes.remember(task, key, value, attempt))

    async def messages(self, messages: TaskMessages) -> MessageResults:
        """Take everything that a supervisor has to say, in order, in one transaction."""
        return await passing.take(self._pool, messages, self._access, self._watching.wake, self._run)

    @property
    def supervision(self) -> Supervision:
        """Questions, checkpoints, and tasks for people, as this caller sees them."""
        return Supervision(
            self._pool, self._run, self._access, self._watching, self.keyring, live_s=self._live_s
        )

    # The house.

    async def supervisors(self) -> list[SupervisorView]:
        """Return every supervisor heard of, by name."""
        return supervisor_views(await reading.supervisors(self._pool, self._live_s, self._access.bounds[0]))

    async def queues(self) -> list[QueueView]:
        """Return the waiting and running work of each state that has any."""
        rows = await reading.queues(self._pool, self._live_s, self._access.bounds[0])
        return [queue_view(row) for row in rows]

    def health(self) -> Health:
        """Answer from memory alone; never waits for the database."""
        return health_view(
            self.graph,
            self._sweep.seen,
            unroutable=self._sweep.chores.unroutable,
            is_keyed=self.keyring.is_on,
            lease_s=self._lease_s,
            heartbeat_s=self._heartbeat_s,
            version=self._version,
        )

    async def ready(self) -> None:
        """Ask the database, for one second at most; raises `Unavailable`."""
        try:
            async with asyncio.timeout(READY_S):
                await reading.ask(self._pool, READY_S)
        except TimeoutError:
            raise Unavailable("the database did not answer within a second") from None

    def begin_stop(self) -> None:
        """Answer every waiting claim empty now, and later ones at once. A callback of the event loop may call it."""
        self._claims.begin_stop()
        self._watching.begin_stop()

    def statistics(self) -> dict[str, Any]:
        """Counters since the start, for `/metrics`."""
        return {
            **self._counted,
            "operations": self._gathering.operations,
            "write_transactions": self._gathering.transactions,
            "transactions": self._pool.transactions,
            "statements": self._pool.statements,
            **self._sweep.statistics(),
            "questions_told": self._telling.delivered,
            "questions_untold": self._telling.failed,
            "tasks_unexplained": len(self._sweep.seen.unexplained),
        }

    @property
    def _live_s(self) -> float:
        return live_s(self._heartbeat_s)

    def _place_of(self, name: str) -> str:
        """Return the owner in which the caller's token of this name would be. Raises `Refused`: not found."""
        owner = self._access.place()
        if not self._access.covers(owner) or not re.fullmatch(limits.TOKEN_PATTERN, name, re.ASCII):
            raise _no_token(name)
        return owner

    async def _run(self, operation: Operation[Answer]) -> Answer:
        operation.access = self._access
        return await self._gathering.run(operation)


def _no_token(name: str) -> Refused:
    return Refused(Code.TOKEN_NOT_FOUND, f"there is no token {name[:128]!r}")
