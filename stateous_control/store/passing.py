"""Writes checkpoints in one statement, where nothing speaks against them: a step costs no book (ADR 37).

The statement judges attempt and holder itself, under the token's lock; what it leaves alone is for the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Again, Pool, Rejected
from stateous_control.store.statements import statements


class Passed(NamedTuple):
    """One checkpoint that is to be written; `value` is JSON, `line` the data of its line in the task's log."""

    task: int
    attempt: int
    version: int
    step: str
    occurrence: int
    value: str
    line: str


async def pass_points(
    pool: Pool, points: Sequence[Passed], supervisor: str, instance: str, owners: list[str] | None
) -> dict[int, bool]:
    """Write what can be written at once; all that belongs to one task, or none of it.

    Args:
        pool: the database.
        points: what is to be written, in order.
        supervisor: who holds the tasks.
        instance: which process of it.
        owners: whose rows exist for the caller; None is all.

    Returns:
        By position, what was written, and whether a pause is requested.
    """
    columns: list[list[Any]] = [list(column) for column in zip(*points, strict=True)]
    try:
        rows = await pool.once(statements.pass_points, *columns, supervisor, instance, owners)
    except (
        Again,
        Rejected,
        Unavailable,
    ):  # the same point a moment ago, for one: the rules find out what it was
        return {}
    return {row["place"] - 1: row["is_pausing"] for row in rows}
