"""Pauses of a task: a request that a worker observes at its next durable point, and a person's resume (S1-68 … S1-82).

A task and its token have separate requests. While either stands, the task is not handed out. A task that parked for
its token alone keeps the time at which it is ready in `held_ready_at`; one that parked for its own request has none.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Park
from stateous_contract.states import RESUMING_PREFIX, USER_PAUSED, Move, TaskState, TokenStatus

from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.durable import (
    check_durable,
    check_generation,
    check_live,
    is_pausing,
    pass_point,
)
from stateous_control.rules.holding import check_attempt, is_of
from stateous_control.rules.moves import change, ready

PAUSING: Final = "pausing after the current step"
"""What a pause is called, always: it is a request until a worker observes it (S1-69)."""

_WAITS: Final = frozenset(
    {
        "awaiting_user_answer",
        "awaiting_event",
        "sleeping",
        "awaiting_signal",
        "awaiting_result",
        "awaiting_any",
    }
)
_NULL: Final = Raw(b"null")


def request_pause(book: Book, task: Task, *, generation: int, actor: str) -> None:
    """Ask for a pause; nothing else changes (S1-68, S1-75). Raises Refused: STALE_GENERATION, TASK_OVER."""
    check_generation(task, generation)
    check_live(task)
    task.pause_requested_at = task.pause_requested_at or book.now
    keep_back(task)
    task.generation += 1
    task.record("pause_requested", by=actor)
    book.log(book.tokens[task.token_id], "pause_requested", task=task.id)


def keep_back(task: Task) -> None:
    """Take a task that is ready out of the queue; its place is kept for the resume."""
    if task.ready_at is not None:
        task.held_ready_at, task.ready_at = task.ready_at, None
    task.is_changed = True


def resume_task(book: Book, task: Task, *, generation: int, actor: str) -> None:
    """End the pause of a task, or withdraw the request for one (S1-77, S1-79 … S1-82).

    The task is ready afterwards; a worker's claim runs it. Raises Refused: STALE_GENERATION, ALREADY_RESUMED,
    TASK_OVER, TOKEN_PAUSED, TASK_WAITS, NOT_PARKED.
    """
    reason = task.reason or ""
    is_resumed = task.current_state is TaskState.PARKED and reason.startswith(RESUMING_PREFIX)
    if generation != task.generation and is_resumed and task.pause_requested_at is None:
        raise Refused(Code.ALREADY_RESUMED, f"task {task.id} was resumed already ({reason})")
    check_generation(task, generation)
    check_live(task)
    token = book.tokens[task.token_id]
    if token.status is TokenStatus.PAUSED:
        raise Refused(Code.TOKEN_PAUSED, f"the token {token.name!r} of task {task.id} is paused; resume that")
    is_parked = task.current_state is TaskState.PARKED and not is_resumed and not _waits(reason)
    if not is_parked and task.pause_requested_at is None:
        _refuse_resume(task, reason)
    task.pause_requested_at = None
    if is_parked:
        change(task, Move.RESUME, reason=f"{RESUMING_PREFIX}{reason or 'unexplained'}", by=actor)
        ready(token, task, book.now)
        book.log(token, "task_resumed", task=task.id)
        return
    task.ready_at, task.held_ready_at = task.held_ready_at, None
    task.generation += 1
    task.record("pause_withdrawn", by=actor)
    book.log(token, "pause_withdrawn", task=task.id)


def _waits(reason: str) -> bool:
    return reason.partition(":")[0] in _WAITS


def _refuse_resume(task: Task, reason: str) -> None:
    if task.current_state is not TaskState.PARKED:
        raise Refused(
            Code.NOT_PARKED, f"task {task.id} is {task.current_state.value}; a parked task can be resumed"
        )
    if _waits(reason):
        raise Refused(Code.TASK_WAITS, f"task {task.id} waits ({reason}), and no pause of it is requested")
    raise Refused(Code.ALREADY_RESUMED, f"task {task.id} was resumed already ({reason})")


def park_paused(book: Book, task: Task, said: Park) -> bool:
    """Park where a pause is requested, and say whether it was (S1-05, S1-71, S1-74, S1-76).

    With a step that point counts as passed, parked or not. Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD,
    TASK_CANCELLED, TASK_OVER.
    """
    check_attempt(task, said.attempt)
    if task.current_state is TaskState.PARKED and is_of(task, said.supervisor, said.instance):
        return True
    check_durable(task, said.supervisor, said.instance)
    if said.step is not None and said.occurrence is not None:
        place = (task.id, task.version, said.step, said.occurrence)
        if place not in book.checkpoints:
            pass_point(book, task, said.step, said.occurrence, _NULL)
    if not is_pausing(book, task):
        return False
    token = book.tokens[task.token_id]
    is_own = task.pause_requested_at is not None
    task.pause_requested_at = None
    task.new_decisions = said.locked_decisions
    change(task, Move.PARK_PAUSED, reason=USER_PAUSED, attempt=task.attempt)
    if not is_own:
        task.held_ready_at = book.now
    book.log(token, "task_parked", task=task.id, reason=USER_PAUSED)
    return True


def end_wait(book: Book, token: Token, task: Task, kind: str, **data: object) -> None:
    """Let a parked task go on, because what it waited for is there (T10); a pause that is requested takes effect.

    `kind` and `data` are the line of the log.
    """
    resuming = f"{RESUMING_PREFIX}{task.reason}"
    if task.pause_requested_at is not None:
        task.pause_requested_at = None
        change(task, Move.WAIT_OVER, reason=USER_PAUSED, kind=kind, **data)
    elif token.status is TokenStatus.PAUSED:
        change(task, Move.WAIT_OVER, reason=USER_PAUSED, kind=kind, **data)
        task.held_ready_at = book.now
    else:
        change(task, Move.WAIT_OVER, reason=resuming, kind=kind, **data)
        ready(token, task, book.now)
    book.log(token, "task_wait_over", task=task.id, reason=task.reason)


def let_go(book: Book, token: Token, task: Task) -> None:
    """Give a task back its place when its token is resumed; its own request goes on standing."""
    is_parked_for_token = task.reason == USER_PAUSED and task.held_ready_at is not None
    if is_parked_for_token and task.pause_requested_at is None:
        change(task, Move.RESUME, reason=f"{RESUMING_PREFIX}{USER_PAUSED}", by="token")
        ready(token, task, book.now)
        return
    if is_parked_for_token:
        task.held_ready_at = task.pause_requested_at = None
    elif task.pause_requested_at is None:
        task.ready_at, task.held_ready_at = task.held_ready_at, None
    task.generation += 1
    task.record("pause_withdrawn", by="token")
