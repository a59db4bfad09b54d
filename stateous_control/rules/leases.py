"""Leases that end: a supervisor that stopped answering costs its task one failed attempt (S3-26).

Claims and renewals are single statements of the store, because they touch many rows and decide nothing.
"""

from __future__ import annotations

from typing import Final

from stateous_contract.states import Lost, TaskState

from stateous_control.rules.book import Book, Task
from stateous_control.rules.failing import fail_attempt

LEASE_ENDED: Final = "lease_ended"
_BY_A_MOVE: Final = "cancelled:token_left"


def end_lease(book: Book, task: Task, lease_s: float) -> bool:
    """End the lease if it is still over under the lock, and say whether it was (S3-27). `lease_s` is its length.

    The next attempt may start at once: nothing is known against the task (S3-74 … S3-76).
    """
    until = task.lease_until
    if task.current_state is not TaskState.RUNNING or until is None or until >= book.now:
        return False
    error = f"{task.supervisor} stopped answering: no heartbeat for {span(lease_s)}"
    fail_attempt(book, book.tokens[task.token_id], task, error, cause=LEASE_ENDED)
    return True


def span(seconds: float) -> str:
    """Write a length of time as people say it: ``2 minutes``, ``90 seconds``."""
    if seconds >= 60 and seconds % 60 == 0:
        return _counted(seconds / 60, "minute")
    return _counted(seconds, "second")


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}" if number == 1 else f"{number:g} {unit}s"


def lost_cause(
    current_state: TaskState | None, *, reason: str | None, attempt: int, named_attempt: int | None = None
) -> Lost:
    """Return why a heartbeat calls a task lost (S3-24).

    `current_state`, `reason` and `attempt` are the task's as they are now; no state means no such task. `named_attempt`
    is the attempt that the heartbeat told, if it told one.
    """
    if current_state is None:
        return Lost.NOT_FOUND
    if named_attempt is not None and named_attempt != attempt:
        return Lost.ATTEMPT_OVER
    if current_state is TaskState.CANCELLED and not (reason or "").startswith(_BY_A_MOVE):
        return Lost.CANCELLED
    return _LOST.get(
        current_state, Lost.ATTEMPT_OVER if reason != f"failed:{LEASE_ENDED}" else Lost.LEASE_ENDED
    )


_LOST: Final = {
    TaskState.CANCELLED: Lost.TOKEN_LEFT,
    TaskState.COMPLETED: Lost.TOKEN_LEFT,
    TaskState.EXPIRED: Lost.EXPIRED,
    TaskState.PENDING: Lost.LEASE_ENDED,
}
