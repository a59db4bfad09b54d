"""Renews leases, and says of each task that could not be renewed why it is lost. Writes nothing else."""

from __future__ import annotations

from stateous_contract.messages import HeartbeatAnswer, HeartbeatRequest
from stateous_contract.states import Lost, TaskState

from stateous_control.rules.access import OPEN, Access
from stateous_control.rules.leases import lost_cause
from stateous_control.rules.views import stamp
from stateous_control.store.pool import Mode, Pool, Row, Session
from stateous_control.store.statements import statements


async def renew(
    pool: Pool, request: HeartbeatRequest, lease_s: float, access: Access = OPEN
) -> HeartbeatAnswer:
    """Renew what this supervisor holds, by name alone where it tells no instance (baseline).

    A lease that has ended but was not swept yet, of an attempt still held, is renewed (S3-23). One statement, and a
    second one only where something is lost.
    """
    if not request.tasks:
        return HeartbeatAnswer(lost=[])
    return await pool.run(lambda session: _renew(session, request, lease_s, access), Mode.BEAT)


async def _renew(
    session: Session, request: HeartbeatRequest, lease_s: float, access: Access
) -> HeartbeatAnswer:
    tasks = sorted(set(request.tasks))
    attempts = {task: (request.attempts or {}).get(str(task), 0) for task in tasks}
    renewed = await session.fetch(
        statements.renew,
        tasks,
        list(attempts.values()),
        request.supervisor,
        request.instance,
        lease_s,
        *access.bounds,
    )
    kept = {row["task_id"] for row in renewed}
    lost = [task for task in tasks if task not in kept]
    # A statement of its own, so that it sees what was committed while the first waited for a row.
    rows = await session.fetch(statements.fates, lost, *access.bounds) if lost else renewed
    fates: dict[int, Row] = {row["id"]: row for row in rows} if lost else {}
    is_extended = request.instance is not None or request.attempts is not None
    return HeartbeatAnswer(
        lost=lost,
        causes={str(task): cause_of(fates.get(task), attempts[task]).value for task in lost}
        if is_extended
        else None,
        pause=sorted(row["task_id"] for row in renewed if row["is_paused"]) if is_extended else None,
        now=stamp(rows[0]["now"]) if is_extended else None,
    )


def cause_of(fate: Row | None, attempt: int) -> Lost:
    """Return why a task is lost, from its row as it is now; `attempt` 0 was not told."""
    if fate is None:
        return lost_cause(None, reason=None, attempt=0)
    return lost_cause(
        TaskState(fate["current_state"]),
        reason=fate["watchdog_stop_reason"],
        attempt=fate["attempt"],
        named_attempt=attempt or None,
    )
