"""Puts into grants what replay reads: the answers that a task was given and the steps that it has passed.

Two statements for all grants of a claim, and none where no task has saved anything, which is what plain tasks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw
from stateous_contract.limits import SAVED_BYTES_MAX
from stateous_contract.messages import GivenAnswer, Grant, PassedStep

from stateous_control.store.pool import Row, Session
from stateous_control.store.statements import statements

GRANT_SAVED_BYTES_MAX: Final = 2 * SAVED_BYTES_MAX
"""The most that a grant holds of both together; the statement `pick` weighs with the same number."""


async def add_saved(session: Session, granted: Sequence[tuple[Row, Grant]]) -> None:
    """Add answers and checkpoints, each up to `SAVED_BYTES_MAX`; `checkpoints_more` says that there are others."""
    if not granted:
        return
    grants = {grant.task: grant for _, grant in granted}
    for grant in grants.values():
        grant.answers, grant.checkpoints = [], []
    tasks = sorted(grants)
    versions = {row["id"]: row["handler_version"] for row, _ in granted}
    passed = await session.fetch(
        statements.saved_checkpoints, tasks, [versions[task] for task in tasks], SAVED_BYTES_MAX
    )
    for row in passed:
        grant = grants[row["task_id"]]
        assert grant.checkpoints is not None
        if row["is_more"]:
            grant.checkpoints_more = True
            continue
        value = Raw(row["value"].encode())
        grant.checkpoints.append(
            PassedStep(step=row["step"], occurrence=row["occurrence"], seq=row["seq"], value=value)
        )
    for row in await session.fetch(statements.saved_answers, tasks, SAVED_BYTES_MAX):
        grant = grants[row["task_id"]]
        assert grant.answers is not None
        answer = Raw(row["answer"].encode())
        grant.answers.append(GivenAnswer(key=row["key"], occurrence=row["occurrence"], answer=answer))


def saved_bytes(row: Row) -> int:
    """Return how much of a claim's answer the saved part of a grant may take."""
    return int(min(row["saved_bytes"], GRANT_SAVED_BYTES_MAX))
