"""Taking back what a withdrawn claim brought, here or at another control plane."""

from __future__ import annotations

from stateous_contract.messages import ClaimRequest

from stateous_control.engine import changes
from stateous_control.engine.supervision import Run
from stateous_control.store.pool import Mode, Pool
from stateous_control.store.statements import statements


async def give_back(pool: Pool, run: Run, request: ClaimRequest, scope: str) -> None:
    """Release what the id of a claim brought and is still held (`not_started`); the claim waits nowhere any more."""
    claimed = (request.supervisor, request.instance or "", request.request or "", scope)
    rows = await pool.run(lambda session: session.fetch(statements.still_given, *claimed), Mode.WRITE)
    if rows:
        await run(changes.give_back(request, {row["task_id"]: row["attempt"] for row in rows}))
