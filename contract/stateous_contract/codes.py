"""Every code that a refusal can carry, with its HTTP status.

Programs read the code, people read the sentence beside it. Codes are added, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Code(StrEnum):
    """Why a request was refused. The value is what stands in ``code`` on the wire."""

    BAD_REQUEST = "bad_request"
    BODY_TOO_LARGE = "bad_request_too_large"
    INVALID_BODY = "invalid_body"
    INVALID_ARGUMENT = "invalid_argument"
    INVALID_TOKEN_ID = "invalid_token_id"
    INVALID_CONTEXT = "invalid_context"
    INVALID_PAYLOAD = "invalid_payload"
    TOKEN_NOT_FOUND = "token_not_found"
    TASK_NOT_FOUND = "task_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    EVENT_NOT_ALLOWED = "event_not_allowed"
    TOKEN_NOT_ACTIVE = "token_not_active"
    TASK_NOT_HELD = "task_not_held"
    ATTEMPT_OVER = "attempt_over"
    CHILD_TOKEN = "child_token"
    GENERATION_REQUIRED = "generation_required"
    STALE_GENERATION = "stale_generation"
    TASK_OVER = "task_over"
    TASK_CANCELLED = "task_cancelled"
    TASK_WAITS = "task_waits"
    NOT_PARKED = "not_parked"
    ALREADY_RESUMED = "already_resumed"
    TOKEN_PAUSED = "token_paused"
    QUESTION_NOT_FOUND = "question_not_found"
    ALREADY_ANSWERED = "already_answered"
    QUESTION_CLOSED = "question_closed"
    INVALID_QUESTION = "invalid_question"
    INVALID_ANSWER = "invalid_answer"
    TOO_MANY_SIGNALS = "too_many_signals"
    NOT_A_CHILD = "not_a_child"
    KEY_REUSED = "key_reused"
    ALREADY_RETRIED = "already_retried"
    NOT_RETRYABLE = "not_retryable"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    STATE_NOT_ALLOWED = "state_not_allowed"
    TOO_MANY_FAILURES = "too_many_failures"
    DATABASE_BUSY = "database_busy"
    NOT_SERVING = "not_serving"
    UNEXPECTED = "unexpected"

    @property
    def status(self) -> int:
        """The HTTP status that goes with this code."""
        return HTTP_STATUS[self]

    @property
    def wire(self) -> str:
        """The code as it stands on the wire (a body that is too large is a ``bad_request`` with status 413)."""
        return "bad_request" if self is Code.BODY_TOO_LARGE else self.value


HTTP_STATUS: dict[Code, int] = {
    Code.BAD_REQUEST: 400,
    Code.BODY_TOO_LARGE: 413,
    Code.INVALID_BODY: 422,
    Code.INVALID_ARGUMENT: 422,
    Code.INVALID_TOKEN_ID: 422,
    Code.INVALID_CONTEXT: 422,
    Code.INVALID_PAYLOAD: 422,
    Code.TOKEN_NOT_FOUND: 404,
    Code.TASK_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.EVENT_NOT_ALLOWED: 409,
    Code.TOKEN_NOT_ACTIVE: 409,
    Code.TASK_NOT_HELD: 409,
    Code.ATTEMPT_OVER: 409,
    Code.CHILD_TOKEN: 409,
    Code.GENERATION_REQUIRED: 428,
    Code.STALE_GENERATION: 409,
    Code.TASK_OVER: 409,
    Code.TASK_CANCELLED: 409,
    Code.TASK_WAITS: 409,
    Code.NOT_PARKED: 409,
    Code.ALREADY_RESUMED: 409,
    Code.TOKEN_PAUSED: 409,
    Code.QUESTION_NOT_FOUND: 404,
    Code.ALREADY_ANSWERED: 409,
    Code.QUESTION_CLOSED: 409,
    Code.INVALID_QUESTION: 422,
    Code.INVALID_ANSWER: 422,
    Code.TOO_MANY_SIGNALS: 409,
    Code.NOT_A_CHILD: 409,
    Code.KEY_REUSED: 409,
    Code.ALREADY_RETRIED: 409,
    Code.NOT_RETRYABLE: 409,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.STATE_NOT_ALLOWED: 403,
    Code.TOO_MANY_FAILURES: 429,
    Code.DATABASE_BUSY: 503,
    Code.NOT_SERVING: 503,
    Code.UNEXPECTED: 500,
}


class Refused(Exception):
    """A request was understood and refused. Ordinary: callers act on ``code`` and show ``sentence``.

    Args:
        code: why, for programs.
        sentence: why, for people: the thing, what was found, what is allowed.
        told: more fields of the answer, of those that `Refusal` has: who was first, and when.
    """

    def __init__(self, code: Code, sentence: str, told: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.told = told or {}
