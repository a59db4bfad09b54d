"""The one life of a task, the life of a token, and the words that clients see for them.

`TASK_LIFE` is the whole truth about which move takes a task from which state to which. SQL predicates, documents and
tests are derived from it or checked against it. Nothing here does anything: these are tables.
"""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """``current_state`` of a task (S1-01). The last four are final."""

    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_TASK_STATES


FINAL_TASK_STATES = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELLED})
LIVE_TASK_STATES = frozenset(set(TaskState) - FINAL_TASK_STATES)


class TaskStatus(StrEnum):
    """The words of the baseline protocol (S3-46), a projection of `TaskState` and the park reason."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TokenStatus(StrEnum):
    """What a token is: the last three never change again."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (TokenStatus.ACTIVE, TokenStatus.PAUSED)


class Move(StrEnum):
    """What can happen to a task, named for what causes it."""

    CLAIM = "claim"
    REPORT_EVENT = "report_event"
    REPORT_WAITING = "report_waiting"
    FAIL_RETRY = "fail_retry"
    FAIL_FINAL = "fail_final"
    RELEASE = "release"
    EVENT_EMITTED = "event_emitted"
    TOKEN_LEFT = "token_left"
    EXPIRE = "expire"
    ASK = "ask"
    PARK_PAUSED = "park_paused"
    PARK_DIVERGED = "park_diverged"
    WAIT = "wait"
    WAIT_OVER = "wait_over"
    RESUME = "resume"


P, R, K = TaskState.PENDING, TaskState.RUNNING, TaskState.PARKED

TASK_LIFE: dict[tuple[TaskState, Move], TaskState] = {
    (P, Move.CLAIM): R,
    (K, Move.CLAIM): R,  # parked and ready: the wait is over
    (R, Move.REPORT_EVENT): TaskState.COMPLETED,
    (K, Move.REPORT_EVENT): TaskState.COMPLETED,  # from outside, of a task that waits for its event
    (R, Move.REPORT_WAITING): K,
    (R, Move.FAIL_RETRY): P,
    (K, Move.FAIL_RETRY): P,
    (R, Move.FAIL_FINAL): TaskState.FAILED,
    (K, Move.FAIL_FINAL): TaskState.FAILED,
    (R, Move.RELEASE): P,
    (R, Move.EVENT_EMITTED): TaskState.COMPLETED,
    (K, Move.EVENT_EMITTED): TaskState.COMPLETED,
    (P, Move.TOKEN_LEFT): TaskState.CANCELLED,
    (R, Move.TOKEN_LEFT): TaskState.CANCELLED,
    (K, Move.TOKEN_LEFT): TaskState.CANCELLED,
    (P, Move.EXPIRE): TaskState.EXPIRED,
    (R, Move.EXPIRE): TaskState.EXPIRED,
    (K, Move.EXPIRE): TaskState.EXPIRED,
    (R, Move.ASK): K,
    (R, Move.PARK_PAUSED): K,
    (
        R,
        Move.PARK_DIVERGED,
    ): K,  # its replay did not come by what it had passed, and it asked to be held to it
    (R, Move.WAIT): K,  # for a time, a signal, a result, or the first of several
    (K, Move.WAIT_OVER): K,  # what it waited for is there: ready, or held back by a pause
    (K, Move.RESUME): K,  # a person ends its pause
}


def after(state: TaskState, move: Move) -> TaskState | None:
    """Return where `move` takes a task that is in `state`, or None where the move is not drawn (S1-11)."""
    return TASK_LIFE.get((state, move))


RESUMING_PREFIX = "resuming:"
ANSWER_PREFIX = "awaiting_user_answer:"
USER_PAUSED = "user_paused"
NONDETERMINISM_PREFIX = "nondeterminism:"
WAIT_PREFIXES = ("sleeping:", "awaiting_signal:", "awaiting_result:", "awaiting_any:")


class QuestionStatus(StrEnum):
    """What a question is; only the first can change (S1-64)."""

    PENDING = "pending"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CLOSED = "closed"


def status_of(state: TaskState, reason: str | None) -> TaskStatus:
    """Return the baseline word for a task (S3-46), given its state and its stop reason."""
    if state is TaskState.PARKED:
        is_ready = reason is not None and reason.startswith(RESUMING_PREFIX)
        return TaskStatus.QUEUED if is_ready else TaskStatus.WAITING
    return _STATUS[state]


_STATUS = {
    TaskState.PENDING: TaskStatus.QUEUED,
    TaskState.RUNNING: TaskStatus.CLAIMED,
    TaskState.COMPLETED: TaskStatus.DONE,
    TaskState.FAILED: TaskStatus.FAILED,
    TaskState.EXPIRED: TaskStatus.FAILED,
    TaskState.CANCELLED: TaskStatus.CANCELLED,
}


class Lost(StrEnum):
    """Why a heartbeat calls a task lost (`causes` in the answer)."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    TOKEN_LEFT = "token_left"
    LEASE_ENDED = "lease_ended"
    ATTEMPT_OVER = "attempt_over"
    NOT_FOUND = "not_found"
