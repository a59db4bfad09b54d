"""Reads for people about tasks, logs, checkpoints and questions. Each page and its counts are of one snapshot (S1-115).

Nothing here locks or changes anything. Pages are bounded by rows and by bytes, whatever is asked for (S1-114).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from stateous_contract.limits import BATCH_BYTES_MAX

from stateous_control.store.pool import Mode, Pool, Row, Session
from stateous_control.store.reading import Counted
from stateous_control.store.statements import statements

Bounds = tuple[list[str] | None, list[str] | None]
"""Owners and states whose tasks exist for the caller; None is all."""

PAGE_BYTES_MAX: Final = BATCH_BYTES_MAX // 2


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a list has; None is any. `kind` is that of the stop reason, `owners` are the caller's."""

    current_state: str | None = None
    token: str | None = None
    state: str | None = None
    kind: str | None = None
    owners: list[str] | None = None


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Which questions a list has; None is any. `owners` are the caller's."""

    status: str | None = None
    task: int | None = None
    token: str | None = None
    owners: list[str] | None = None


async def find_task(pool: Pool, task: int, bounds: Bounds, live_s: float) -> Row | None:
    """Return one task. A supervisor not heard for `live_s` counts as away."""
    return await _one(pool, statements.find_task, task, *bounds, live_s)


async def place_of_task(pool: Pool, task: int, bounds: Bounds) -> Row | None:
    """Return a task's owner and its token's name."""
    return await _one(pool, statements.place_of_task, task, *bounds)


async def task_of_question(pool: Pool, question: int, bounds: Bounds) -> int | None:
    """Return the id of a question's task."""
    row = await _one(pool, statements.task_of_question, question, *bounds)
    return None if row is None else int(row["task_id"])


async def find_question(pool: Pool, question: int, bounds: Bounds) -> Row | None:
    """Return one question."""
    return await _one(pool, statements.find_question, question, *bounds)


async def page_tasks(pool: Pool, wanted: TaskFilter, most: int, before: int | None, live_s: float) -> Counted:
    """Return the tasks made before task `before`, newest first, and how many the whole list has."""
    asked = (wanted.current_state, wanted.token, wanted.state, wanted.kind, wanted.owners)

    async def read(session: Session) -> Counted:
        rows = await session.fetch(statements.page_tasks, *asked, before, most, live_s)
        return Counted(rows, await _total(session, statements.count_tasks, *asked))

    return await pool.run(read, Mode.SNAPSHOT)


async def page_questions(pool: Pool, wanted: QuestionFilter, most: int, before: int | None) -> Counted:
    """Return the questions asked before question `before`, newest first, and how many the whole list has."""
    asked = (wanted.status, wanted.task, wanted.token, wanted.owners)

    async def read(session: Session) -> Counted:
        rows = await session.fetch(statements.page_questions, *asked, before, most, PAGE_BYTES_MAX)
        return Counted(rows, await _total(session, statements.count_questions, *asked))

    return await pool.run(read, Mode.SNAPSHOT)


async def page_log(pool: Pool, task: int, bounds: Bounds, most: int, before: int | None) -> Counted | None:
    """Return the newest lines before line `before`, in order, and how many the log has; None: no such task."""

    async def read(session: Session) -> Counted | None:
        if not await session.fetch(statements.place_of_log, task, *bounds):
            return None
        rows = await session.fetch(statements.page_log, task, before, most, PAGE_BYTES_MAX)
        return Counted(rows[::-1], await _total(session, statements.count_log, task))

    return await pool.run(read, Mode.SNAPSHOT)


async def page_checkpoints(
    pool: Pool, task: int, bounds: Bounds, *, version: int, after: int, most: int
) -> Counted | None:
    """Return the checkpoints of one version after `after`, in order, and how many there are; None: no such task."""

    async def read(session: Session) -> Counted | None:
        if not await session.fetch(statements.place_of_task, task, *bounds):
            return None
        rows = await session.fetch(statements.page_checkpoints, task, version, after, most, PAGE_BYTES_MAX)
        return Counted(rows, await _total(session, statements.count_checkpoints, task, version))

    return await pool.run(read, Mode.SNAPSHOT)


async def _one(pool: Pool, statement: str, *values: Any) -> Row | None:
    rows = await pool.run(lambda session: session.fetch(statement, *values), Mode.PLAIN)
    return rows[0] if rows else None


async def _total(session: Session, statement: str, *values: Any) -> int:
    return int((await session.fetch(statement, *values))[0]["total"])
