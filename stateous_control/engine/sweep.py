"""What time brings about: ended leases, due timers, and forgetting. Each control plane sweeps; there is no leader.

A pass takes bounded batches, passes over whatever another transaction holds, and looks at everything again under the
lock, so that any number of sweepers end a lease once. After an outage nobody is judged before each supervisor had
the time for a beat (ADR 10). A pass that fails is logged and tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from stateous_control.engine.chores import Chores
from stateous_control.engine.retention import Windows
from stateous_control.logs import logger
from stateous_control.rules.book import Book, Task
from stateous_control.rules.expiry import expire
from stateous_control.rules.leases import end_lease
from stateous_control.rules.routines import settle
from stateous_control.rules.timers import fire_timer
from stateous_control.rules.views import stamp
from stateous_control.rules.waits import wake
from stateous_control.store.books import OpenBook, Shelf, Wanted
from stateous_control.store.pool import Mode, Pool, Row, Session
from stateous_control.store.statements import statements
from stateous_control.store.writing import write_back

BATCH_MAX: Final = 500
BATCHES_MAX: Final = 20
OUTAGE_S_MIN: Final = 5.0
OUTAGE_SWEEPS: Final = 5
GRACE_HEARTBEATS: Final = 1.5
REQUESTS_KEPT_S_MIN: Final = 3_600.0
SKIPPED_FOR_S: Final = 60.0
ALARMS_MAX: Final = 10  # the statement looks for one more

log = logger()


@dataclass(slots=True)
class Seen:
    """What the last pass saw; `/health` answers from it."""

    at: datetime | None = None
    is_grace: bool = False
    others: int = 0
    unexplained: list[int] = field(default_factory=list)

    @property
    def now_text(self) -> str | None:
        """The database's time at that pass."""
        return None if self.at is None else stamp(self.at)

    @property
    def alarms(self) -> list[str]:
        """What a person should look at, one sentence each; the last one says where there is more (BH-056)."""
        told = [f"task {task} is parked without a reason" for task in self.unexplained[:ALARMS_MAX]]
        more = f"more tasks than these {ALARMS_MAX} are parked without a reason"
        return told + [more] * (len(self.unexplained) > ALARMS_MAX)

    @property
    def alarms_without_names(self) -> list[str]:
        """The same for those who show no key: that there are some, and not of whom."""
        return ["tasks are parked without a reason"] if self.unexplained else []


def live_s(heartbeat_s: float) -> float:
    """Return how long a supervisor is heard of at the latest; after that it counts as away."""
    return max(3 * heartbeat_s, 60.0)


Batch = Callable[[Session], Awaitable[tuple[int, OpenBook | None]]]


class _Fault(Exception):
    """Tasks or timers that broke the rules' code; the others of their batch are done without them."""

    def __init__(self, errors: dict[int, Exception]) -> None:
        super().__init__(f"{len(errors)} of a batch")
        self.errors = errors


class _Rules:
    """Runs one rule after the other on a batch's book, and gathers which of them break.

    All of a batch are found at once: else as many as there are batches in a pass would block all that come later.
    """

    def __init__(self) -> None:
        self._errors: dict[int, Exception] = {}

    def apply(self, culprit: int, rule: Callable[[], object]) -> None:
        """Run a rule for a task or timer."""
        try:
            rule()
        except Exception as error:  # the boundary between one task and the others of its batch
            self._errors[culprit] = error

    def settle(self, book: Book) -> None:
        """See to trees of tasks; raises `_Fault` where a rule broke, so that nothing of the batch is kept."""
        if self._errors:
            raise _Fault(self._errors)
        settle(book)


class Sweep:
    """The sweep of one control plane.

    Args:
        plane: this control plane's id. committed: is told each book after its commit.
        lease_s, heartbeat_s, sweep_s, windows: as the control plane's.

    """

    def __init__(
        self,
        pool: Pool,
        shelf: Shelf,
        plane: str,
        committed: Callable[[Book], None],
        *,
        lease_s: float,
        heartbeat_s: float,
        sweep_s: float,
        windows: Windows,
    ) -> None:
        self.seen = Seen()
        self.leases_ended = 0
        self.timers_fired = 0
        self.tasks_expired = 0
        self.waits_ended = 0
        self._pool = pool
        self._shelf = shelf
        self._plane = plane
        self._committed = committed
        self._lease_s = lease_s
        self._outage_s = max(OUTAGE_S_MIN, OUTAGE_SWEEPS * sweep_s)
        self._grace_s = GRACE_HEARTBEATS * heartbeat_s
        self.chores = Chores(
            pool,
            requests_kept_s=max(REQUESTS_KEPT_S_MIN, 10 * lease_s),
            live_s=live_s(heartbeat_s),
            windows=windows,
        )
        self._left_out: dict[int, float] = {}

    async def sweep(self) -> None:
        """Make one pass; raises `Unavailable` where the database does not answer."""
        due = await self.observe()
        if not self.seen.is_grace:
            self.leases_ended += await self._repeat(self._end_leases)
        if due["has_timers"]:
            self.timers_fired += await self._repeat(self._fire_timers)
        if due["has_waits"]:
            self.waits_ended += await self._repeat(self._wake)
        if due["has_questions"]:
            self.tasks_expired += await self._repeat(self._expire_questions)
        if due["has_tasks"]:
            self.tasks_expired += await self._repeat(self._expire_tasks)
        await self.chores.see_to()

    def statistics(self) -> dict[str, int]:
        """Counters since the start, for `/metrics`."""
        return {
            "leases_ended": self.leases_ended,
            "timers_fired": self.timers_fired,
            "tasks_expired": self.tasks_expired,
            "waits_ended": self.waits_ended,
        }

    async def observe(self) -> Row:
        """Say that this control plane lives, and learn whether an outage has just ended and which kinds are due."""
        rows = await self._pool.run(
            lambda session: session.fetch(statements.observe, self._plane, self._outage_s, self._grace_s),
            Mode.WRITE,
        )
        row = rows[0]
        for task in set(row["unexplained"] or ()) - set(self.seen.unexplained):
            log.error("task.unexplained", task=task)
        if row["is_grace"] and not self.seen.is_grace:
            log.warning("grace.begun", seconds=self._grace_s)
        self.seen = Seen(row["now"], row["is_grace"], row["others"], list(row["unexplained"] or ()))
        return row

    async def _repeat(self, batch: Batch) -> int:
        """Run batches until one is not full, and return how many rows they were about.

        What breaks is left out for a while, and said.
        """
        done = 0
        now = asyncio.get_running_loop().time()
        self._left_out = {culprit: until for culprit, until in self._left_out.items() if until > now}
        for _ in range(BATCHES_MAX):
            try:
                count, opened = await self._pool.run(batch, Mode.WRITE)
            except _Fault as fault:
                culprit, error = next(iter(fault.errors.items()))
                # One for all of a batch: they break for one reason as a rule, and a trace takes a while to print.
                log.exception("sweep.broken", culprit=culprit, broken=len(fault.errors), exc_info=error)
                self._left_out |= dict.fromkeys(fault.errors, now + SKIPPED_FOR_S)
                continue
            if opened is not None:
                self._committed(opened.book)
            done += count
            if count < BATCH_MAX:
                break
        return done

    async def _end_leases(self, session: Session) -> tuple[int, OpenBook | None]:
        rows = await session.fetch(statements.ended_leases, BATCH_MAX, self._outage_s, list(self._left_out))
        if not rows:
            return 0, None
        wanted = Wanted(
            tasks={row["task_id"] for row in rows},
            token_ids={row["lock_id"] for row in rows},
            moves=len(rows),
            needs_timers=True,
            needs_leases=True,
        )
        return await self._each(
            session, rows, wanted, lambda book, task: end_lease(book, task, self._lease_s)
        )

    async def _fire_timers(self, session: Session) -> tuple[int, OpenBook | None]:
        rows = await session.fetch(statements.due_timers, BATCH_MAX, list(self._left_out))
        if not rows:
            return 0, None
        opened = await self._shelf.open(
            session, Wanted(token_ids={row["lock_id"] for row in rows}, moves=len(rows), needs_timers=True)
        )
        timers = {timer.id: timer for timer in opened.book.timers}
        rules = _Rules()
        for row in rows:
            timer = timers.get(row["id"])
            # An earlier timer of the same pass may have moved the token, and with it taken this one away.
            if timer is not None and not timer.is_deleted:
                rules.apply(row["id"], partial(fire_timer, opened.book, timer))
        rules.settle(opened.book)
        await write_back(session, opened)
        return len(rows), opened

    async def _wake(self, session: Session) -> tuple[int, OpenBook | None]:
        rows = await session.fetch(statements.due_waits, BATCH_MAX, list(self._left_out))
        if not rows:
            return 0, None
        wanted = Wanted(
            tasks={row["task_id"] for row in rows}, token_ids={row["lock_id"] for row in rows} - {None}
        )
        return await self._each(session, rows, wanted, wake)

    async def _expire_questions(self, session: Session) -> tuple[int, OpenBook | None]:
        return await self._expire(session, statements.due_questions)

    async def _expire_tasks(self, session: Session) -> tuple[int, OpenBook | None]:
        return await self._expire(session, statements.due_tasks)

    async def _expire(self, session: Session, due: str) -> tuple[int, OpenBook | None]:
        rows = await session.fetch(due, BATCH_MAX, list(self._left_out))
        if not rows:
            return 0, None
        wanted = Wanted(
            tasks={row["task_id"] for row in rows},
            token_ids={row["lock_id"] for row in rows},
            moves=len(rows),
            needs_timers=True,
        )
        wanted.supervision.questions = {row["question_id"] for row in rows} - {None}
        return await self._each(session, rows, wanted, expire)

    async def _each(
        self, session: Session, rows: list[Row], wanted: Wanted, rule: Callable[[Book, Task], object]
    ) -> tuple[int, OpenBook]:
        """Apply one rule to the task of each row."""
        opened = await self._shelf.open(session, wanted)
        rules = _Rules()
        for row in rows:
            task = opened.book.tasks[row["task_id"]]
            rules.apply(task.id, partial(rule, opened.book, task))
        rules.settle(opened.book)
        await write_back(session, opened)
        return len(rows), opened
