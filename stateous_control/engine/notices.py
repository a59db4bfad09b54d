"""Tells waiting claims that work came: at once in this process, in batches in the others.

A NOTIFY inside a write's transaction would take one lock for the whole database at each commit. So notices go out
in transactions of their own, at most once in 10 ms, and only while another control plane is about. Losing one costs
a look of the backstop, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from stateous_contract.states import TaskState

from stateous_control.engine.claims import Claims, Queue
from stateous_control.rules.book import Book
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Listener, Mode, Pool, Session
from stateous_control.store.statements import statements

CHANNEL: Final = "stateous_work"
GATHER_S: Final = 0.01
PAYLOAD_BYTES_MAX: Final = 7_000


class Notice(msgspec.Struct, array_like=True):
    """What one control plane tells the others.

    `ended` names request ids of claims that were withdrawn; `older` says since when, in seconds of the epoch, work is
    ready that has its old place back.
    """

    plane: str
    ready: list[Queue] = []
    later: list[tuple[Queue, float]] = []
    ended: list[tuple[str, str, str, str]] = []
    older: list[tuple[Queue, float]] = []


class Notices:
    """Both directions of the channel.

    Args:
        pool: the database. plane: this control plane's id. claims: who waits here.

    """

    def __init__(self, pool: Pool, plane: str, claims: Claims) -> None:
        self.others = 0
        self.listener = Listener(pool, CHANNEL, self.hear)
        self._pool = pool
        self._plane = plane
        self._claims = claims
        self._ready: set[Queue] = set()
        self._later: dict[Queue, float] = {}
        self._ended: set[tuple[str, str, str, str]] = set()
        self._older: dict[Queue, float] = {}
        self._is_due = asyncio.Event()

    def committed(self, book: Book) -> None:
        """Tell of the tasks that a transaction made ready."""
        oldest: dict[Queue, datetime] = {}
        soonest: dict[Queue, datetime] = {}
        for task in book.tasks.values():
            if task.ready_at is None or task.current_state is TaskState.RUNNING:
                continue
            if task.is_new or task.is_changed:
                kind = oldest if task.ready_at <= book.now else soonest
                queue = (book.tokens[task.token_id].owner, task.state)
                kind[queue] = min(task.ready_at, kind.get(queue, task.ready_at))
        for queue, ready_at in soonest.items():
            delay_s = (ready_at - book.now).total_seconds()
            self._claims.ready_in(queue, delay_s)
            self._later[queue] = min(delay_s, self._later.get(queue, delay_s))
        if oldest:
            self._claims.came(oldest)
            self._claims.ready(oldest)
            self._ready |= oldest.keys()
            # Only what has its old place back may lie before a place where a look begins.
            self._older |= {queue: at.timestamp() for queue, at in oldest.items() if at < book.now}
        self._send()

    def tell_ended(self, scope: str, supervisor: str, instance: str, request: str) -> None:
        """Tell that a claim was withdrawn; it may wait at another control plane."""
        self._claims.end(scope, supervisor, instance, request)
        self._ended.add((scope, supervisor, instance, request))
        self._send()

    def hear(self, payload: str) -> None:
        """Take in what another control plane tells; anything that is not a notice is ignored."""
        try:
            notice = msgspec.json.decode(payload, type=Notice)
        except msgspec.DecodeError:
            return
        if notice.plane == self._plane:
            return
        self._claims.came({queue: datetime.fromtimestamp(at, UTC) for queue, at in notice.older})
        self._claims.ready(notice.ready)
        for queue, delay_s in notice.later:
            self._claims.ready_in(queue, min(delay_s, 3600.0))
        for ended in notice.ended:
            self._claims.end(*ended)

    async def publish(self) -> None:
        """Send what has gathered, for ever."""
        while True:
            await self._is_due.wait()
            await asyncio.sleep(GATHER_S)
            self._is_due.clear()
            payloads = list(self._take())
            try:
                await self._pool.run(lambda session, p=payloads: _notify(session, p), Mode.BEAT)  # type: ignore[misc]
            except Unavailable:
                continue  # only a wake-up is lost

    def _send(self) -> None:
        if self.others == 0:
            self._ready.clear()
            self._later.clear()
            self._ended.clear()
            self._older.clear()
        elif self._ready or self._later or self._ended:
            self._is_due.set()

    def _take(self) -> Iterator[str]:
        """Cut what has gathered into payloads that fit: a NOTIFY of 8000 bytes is refused."""
        ready, later, ended = sorted(self._ready), list(self._later.items()), list(self._ended)
        older = list(self._older.items())
        self._ready, self._later, self._ended, self._older = set(), {}, set(), {}
        while ready or later or ended or older:
            part = Notice(self._plane, ready[:20], later[:20], ended[:4], older[:5])
            del ready[:20], later[:20], ended[:4], older[:5]
            text = msgspec.json.encode(part)
            if len(text) <= PAYLOAD_BYTES_MAX:
                yield text.decode()


async def _notify(session: Session, payloads: list[str]) -> None:
    for payload in payloads:
        await session.fetch(statements.notify, CHANNEL, payload)
