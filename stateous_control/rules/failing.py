"""What becomes of an attempt that did not succeed: tried again while the budget lasts, else the event ``error`` (B.2).

`failures` spends the budget, never `attempt`: attempts that were given back or waited cost nobody a retry. Reports
from supervisors and from outside, releases beyond measure and ended leases all come here.
"""

from __future__ import annotations

from datetime import timedelta

from stateous_contract.limits import ERROR_TEXT_CHARS_MAX
from stateous_contract.states import Move, TokenStatus

from stateous_control.graph.document import ERROR
from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.deferring import hold
from stateous_control.rules.moves import change, end_anchor, raise_own_event, ready


def fail_attempt(
    book: Book,
    token: Token,
    task: Task,
    error: str,
    *,
    cause: str,
    delay_s: float = 0.0,
    is_retryable: bool = True,
) -> None:
    """Count one failed attempt, and queue the task again or let the token have ``error`` (S3-33 … S3-40).

    `error` says to people what went wrong; `cause` is its kind (``exception``, ``lease_ended``, …), for the reason.
    The next attempt waits `delay_s`; without `is_retryable` there is none, whatever budget is left.
    """
    task.failures += 1
    if task.is_routine:
        task.error = error[:ERROR_TEXT_CHARS_MAX]
    book.log(token, "task_failed", task=task.id, error=error)
    if is_retryable and task.failures <= task.retries:
        change(task, Move.FAIL_RETRY)
        requeue(book, token, task, delay_s=delay_s)
        book.log(token, "task_retrying", task=task.id, attempt=task.attempt + 1)
        return
    change(task, Move.FAIL_FINAL, reason=f"failed:{cause if is_retryable else 'not_retryable'}")
    if task.is_routine:
        end_anchor(book, token, task, TokenStatus.FAILED)
    elif token.status is TokenStatus.PAUSED:
        hold(book, token, ERROR, None, task=task, error=error)
    else:
        raise_own_event(book, token, ERROR, error=error)


def requeue(book: Book, token: Token, task: Task, *, delay_s: float = 0.0) -> None:
    """Let the task be claimed again; timers that the last attempt asked for go, the state's timeout stays."""
    ready(token, task, book.now + timedelta(seconds=delay_s))
    for timer in () if task.parent_id is not None else book.timers_of(token):
        timer.is_deleted = timer.kind == "timer"


def retry_delay_s(book: Book, task: Task) -> float:
    """How long the attempt after the failure that is about to be counted waits: by its policy, or as everybody's."""
    own = task.policy.delay_s(task.failures, next(book.chance))
    if own is not None:
        return own
    delays = book.retry_delay_s
    return delays[min(task.failures, len(delays) - 1)] if delays else 0.0
