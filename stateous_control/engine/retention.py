"""Forgetting what has ended: tokens with their families, trees of routines, and later the logs of their tasks.

Leaves go before their parents, in bounded batches, and nothing that lives, or that something living hangs on, ever goes
(S2-43 … S2-45). Each batch is one transaction; any number of control planes may do it beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stateous_control.store.pool import Mode, Pool, Session
from stateous_control.store.statements import statements

BATCH_MAX: Final = 200
"""At most so many tokens, or tasks whose logs go, are in a batch."""

ROWS_MAX: Final = 5_000
"""And so many lines, checkpoints and tasks of each: a life may have left any number of them."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long what has ended is kept, in seconds; None is for ever.

    `logs_s` counts from the end of a task, and logs never go before their task.
    """

    tokens_s: float | None = None
    routines_s: float | None = None
    logs_s: float | None = None


@dataclass(slots=True)
class Forgotten:
    """What was forgotten: tokens, routines that people started, tasks of both, and lines of logs."""

    tokens: int = 0
    routines: int = 0
    tasks: int = 0
    log_lines: int = 0


@dataclass(slots=True)
class _Gone:
    """What one batch has forgotten."""

    tokens: int = 0
    tasks: int = 0
    rows: int = 0


async def forget(pool: Pool, windows: Windows, *, batches_max: int) -> Forgotten:
    """Forget what is over, in at most `batches_max` batches of each kind. Raises `Unavailable`."""
    done = Forgotten()
    if windows.tokens_s is not None:
        done.tokens = await _forget_tokens(pool, done, windows.tokens_s, batches_max, is_routine=False)
    if windows.routines_s is not None:
        done.routines = await _forget_tokens(pool, done, windows.routines_s, batches_max, is_routine=True)
    if windows.logs_s is not None:
        await _forget_logs(pool, done, windows.logs_s, batches_max)
    return done


async def _forget_tokens(
    pool: Pool, done: Forgotten, kept_s: float, batches_max: int, *, is_routine: bool
) -> int:
    tokens = 0
    for _ in range(batches_max):
        gone = await pool.run(
            lambda session: _forget_leaves(session, kept_s, is_routine=is_routine), Mode.WRITE
        )
        tokens += gone.tokens
        done.tasks += gone.tasks
        if gone == _Gone():
            break
    return tokens


async def _forget_leaves(session: Session, kept_s: float, *, is_routine: bool) -> _Gone:
    """Forget what a batch may of some leaves: of long lives their history and steps first, and the rest later."""
    leaves = [row["id"] for row in await session.fetch(statements.find_leaves, kept_s, is_routine, BATCH_MAX)]
    if not leaves:
        return _Gone()
    (lines,) = await session.fetch(statements.forget_lines, leaves, ROWS_MAX)
    gone = _Gone(rows=lines["rows"])
    while gone.tasks < ROWS_MAX:
        (tasks,) = await session.fetch(statements.forget_tasks, leaves, ROWS_MAX - gone.tasks)
        if tasks["tasks"] == 0:
            break
        gone.tasks += tasks["tasks"]
    (tokens,) = await session.fetch(statements.forget_tokens, leaves)
    gone.tokens = tokens["tokens"]
    return gone


async def _forget_logs(pool: Pool, done: Forgotten, kept_s: float, batches_max: int) -> None:
    await pool.run(lambda session: session.fetch(statements.keep_logs, kept_s), Mode.WRITE)
    for _ in range(batches_max):
        count, lines = await pool.run(_forget_batch, Mode.WRITE)
        done.log_lines += lines
        if count == 0:
            break


async def _forget_batch(session: Session) -> tuple[int, int]:
    rows = await session.fetch(statements.forget_logs, BATCH_MAX, ROWS_MAX)
    if not rows:
        return 0, 0
    await session.fetch(statements.forget_gone, [row["task_id"] for row in rows])
    return len(rows), rows[0]["lines"]
