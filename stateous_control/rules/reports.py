"""Reports: the outcome of one attempt, from the supervisor that holds it or from outside (A.6, wire-extensions).

The checks come in the baseline's order; a refused report saves nothing, except a line ``event_rejected`` where the
event itself was refused. A report that comes again because its answer was lost is answered as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Report
from stateous_contract.states import Move, TokenStatus

from stateous_control.graph.routing import Unrouted
from stateous_control.graph.schema import check_payload
from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.children import choose
from stateous_control.rules.deferring import hold
from stateous_control.rules.digests import digest_of
from stateous_control.rules.failing import fail_attempt, requeue, retry_delay_s
from stateous_control.rules.holding import check_attempt, check_begun, check_holder
from stateous_control.rules.moves import change, end_anchor, fail_token, move
from stateous_control.rules.rejections import reject
from stateous_control.rules.writes import apply_writes, check_writes

NO_ERROR_TEXT: Final = "the attempt failed and did not say why"
HOST_DIED: Final = "host_died"
_COUNTED: Final = frozenset({HOST_DIED, "agent_died"})
_UNCOUNTED: Final = frozenset({"drain", "not_started"})


def report(book: Book, task: Task, outcome: Report) -> Token:
    """Take an outcome and return the token as it is afterwards.

    The shape of `outcome` was checked at the door. Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, INVALID_CONTEXT,
    INVALID_PAYLOAD, EVENT_NOT_ALLOWED (S3-28 … S3-45).
    """
    token = book.tokens[task.token_id]
    apply = _APPLY.get(outcome.kind)
    if apply is None:
        raise Refused(Code.INVALID_BODY, f"the kind of an outcome is {outcome.kind!r}; no such kind exists")
    check_attempt(task, outcome.attempt)
    if _is_repeat(task, outcome):
        return token
    check_begun(task)
    if outcome.supervisor is not None:
        check_holder(task, outcome.supervisor, outcome.instance)
    elif outcome.kind not in _FROM_OUTSIDE:
        raise Refused(
            Code.TASK_NOT_HELD,
            f"an outcome {outcome.kind!r} comes from the supervisor that holds the task only",
        )
    _check_kind(task, outcome.kind)
    attempt = task.attempt
    apply(book, token, task, outcome)
    task.report_attempt, task.report_digest = attempt, digest_of(outcome)
    return token


def _is_repeat(task: Task, outcome: Report) -> bool:
    """Whether this very report was accepted before: same attempt, same content. Without an attempt it never is."""
    if outcome.attempt is None or outcome.attempt != task.report_attempt:
        return False
    return digest_of(outcome) == task.report_digest


def _apply_returned(book: Book, token: Token, task: Task, outcome: Report) -> None:
    if not task.is_routine:
        raise Refused(
            Code.INVALID_BODY, f"task {task.id} moves a token: it ends with an event, never 'returned'"
        )
    change(task, Move.REPORT_EVENT)
    task.result = outcome.result or Raw(b"null")
    end_anchor(book, token, task, TokenStatus.COMPLETED)


def _check_kind(task: Task, kind: str) -> None:
    if task.is_routine and kind in ("event", "waiting"):
        raise Refused(
            Code.INVALID_BODY, f"task {task.id} moves no token: it ends with 'returned' or 'failed'"
        )


def _apply_event(book: Book, token: Token, task: Task, outcome: Report) -> None:
    machine, event, payload = book.machine(token), outcome.event, outcome.payload
    if event is None:
        raise Refused(Code.INVALID_BODY, "an outcome of kind 'event' names no event")
    writes = check_writes(machine, token, outcome.context, outcome.schedules)
    emits = machine.states[token.state].emits
    if event not in emits:
        reject(book, token, event, f"{token.state!r} emits {', '.join(emits) or 'nothing'}; not {event!r}")
    check_payload(machine, event, payload)
    found = choose(book, token, event, payload, context=writes.merged)
    if isinstance(found, Unrouted) and not found.is_ambiguous:
        reject(book, token, event, found.sentence)
    if token.status is TokenStatus.PAUSED:
        hold(book, token, event, payload, task=task, writes=writes)
        change(task, Move.REPORT_EVENT)
        book.log(token, "task_done", task=task.id)
        return
    apply_writes(book, token, writes)
    if isinstance(found, Unrouted):
        fail_token(book, token, found.sentence)
    else:
        move(book, token, found, payload, reporter=task)


def _apply_waiting(book: Book, token: Token, task: Task, outcome: Report) -> None:
    writes = check_writes(book.machine(token), token, outcome.context, outcome.schedules)
    apply_writes(book, token, writes)
    change(task, Move.REPORT_WAITING, reason=f"awaiting_event:{token.state}")
    book.log(token, "task_waiting", task=task.id)


def _apply_failed(book: Book, token: Token, task: Task, outcome: Report) -> None:
    fail_attempt(
        book,
        token,
        task,
        outcome.error or NO_ERROR_TEXT,
        cause="exception",
        delay_s=retry_delay_s(book, task),
        is_retryable=outcome.retryable and not task.policy.forbids(outcome.error or ""),
    )


def _apply_released(book: Book, token: Token, task: Task, outcome: Report) -> None:
    """Give the task back. A dead host or agent has a limit: a task that kills its host must not go round for ever."""
    reason = outcome.reason or ""
    kind = reason.partition(":")[0]
    if kind not in _COUNTED | _UNCOUNTED:
        raise Refused(Code.INVALID_BODY, f"a task is released for {reason!r}; no such reason exists")
    if kind in _COUNTED:
        task.releases += 1
        # Who ran beside others when a host died stays suspect to the end: nothing ever proves that it was not it.
        task.is_suspect = task.is_suspect or kind == HOST_DIED
        if task.releases > book.releases_max:
            error = f"{reason} (given back {task.releases} times, at most {book.releases_max} cost nothing)"
            fail_attempt(book, token, task, error, cause=kind)
            return
    else:
        task.given_back += 1
    change(task, Move.RELEASE)
    requeue(book, token, task)
    book.log(token, "task_released", task=task.id, attempt=task.attempt, reason=reason)


_Apply = Callable[[Book, Token, Task, Report], None]
_APPLY: Final[dict[str, _Apply]] = {
    "event": _apply_event,
    "returned": _apply_returned,
    "waiting": _apply_waiting,
    "failed": _apply_failed,
    "released": _apply_released,
}
_FROM_OUTSIDE: Final = frozenset({"event", "failed"})
