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
        rows = await pool.run(
            lambda session: session.fetch(statements.forget_tokens, kept_s, is_routine, BATCH_MAX), Mode.WRITE
        )
        tokens += rows[0]["tokens"]
        done.tasks += rows[0]["tasks"]
        if rows[0]["tokens"] == 0:
            break
    return tokens


async def _forget_logs(pool: Pool, done: Forgotten, kept_s: float, batches_max: int) -> None:
    await pool.run(lambda session: session.fetch(statements.keep_logs, kept_s), Mode.WRITE)
    for _ in range(batches_max):
        count, lines = await pool.run(_forget_batch, Mode.WRITE)
        done.log_lines += lines
        if count == 0:
            break


async def _forget_batch(session: Session) -> tuple[int, int]:
    rows = await session.fetch(statements.forget_logs, BATCH_MAX)
    if not rows:
        return 0, 0
    await session.fetch(statements.forget_gone, [row["task_id"] for row in rows])
    return len(rows), rows[0]["lines"]
