"""Retries by people: a task that ended without success stays ended; a new one begins where it was (C14).

A token that has ended stays ended too. So the retry is a new token of the same graph, in the state of the old task,
with the context that the old token had, and its task is linked by `retried_from`. A routine without a graph begins
anew with the input that it had.
"""

from __future__ import annotations

from stateous_contract.codes import Code, Refused
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.durable import check_generation
from stateous_control.rules.moves import begin_at
from stateous_control.rules.queues import kind_of
from stateous_control.rules.routines import start_again


def retry(book: Book, task: Task, name: str, *, is_copying: bool, actor: str) -> tuple[Token, Task]:
    """Begin a new token called `name` where the task ended; `is_copying` hands on its checkpoints and answers.

    The name is free, and `check` has let it through.
    """
    old = book.tokens[task.token_id]
    token = Token(
        id=next(book.token_ids),
        owner=old.owner,
        name=name,
        graph=old.graph,
        workflow=old.workflow,
        state=old.state,
        status=TokenStatus.ACTIVE,
        visit=0,
        context=dict(old.context),
        entered_at=book.now,
        entered_by=old.entered_by,
        entered_payload=old.entered_payload,
        entered_error=old.entered_error,
        seq=0,
        visits={},
        events=dict(old.events),
        is_new=True,
    )
    begin_at(book, token, old.state, retried_from=task.id, by=actor)
    (fresh,) = book.live_tasks(token)
    fresh.retried_from, fresh.version, fresh.state = task.id, task.version, task.state
    _link(book, task, fresh, is_copying=is_copying, actor=actor)
    return token, fresh


def retry_routine(book: Book, task: Task, *, is_copying: bool, actor: str) -> Task:
    """Begin a routine without a graph anew; `check` has let it through."""
    fresh = start_again(book, task)
    _link(book, task, fresh, is_copying=is_copying, actor=actor)
    return fresh


def _link(book: Book, task: Task, fresh: Task, *, is_copying: bool, actor: str) -> None:
    fresh.saved_bytes = task.saved_bytes if is_copying else 0
    fresh.entries[0].data |= {"retried_from": task.id, "by": actor}
    book.retries[task.id] = fresh.id


def check(book: Book, task: Task, generation: int) -> None:
    """Raise Refused unless the task can be retried: STALE_GENERATION, NOT_RETRYABLE, ALREADY_RETRIED, CHILD_TOKEN."""
    check_generation(task, generation)
    old = book.tokens[task.token_id]
    if not task.current_state.is_final or task.current_state is TaskState.COMPLETED:
        raise Refused(
            Code.NOT_RETRYABLE,
            f"task {task.id} is {task.current_state.value}; one that failed, expired or was cancelled can be retried",
        )
    if task.id in book.retries:
        raise Refused(
            Code.ALREADY_RETRIED,
            f"task {task.id} was retried as task {book.retries[task.id]}; retry that one",
        )
    if task.parent_id is not None:
        raise Refused(
            Code.NOT_RETRYABLE,
            f"task {task.id} is a child of task {task.parent_id}, and is begun again by the retry of that",
        )
    if task.is_routine:
        return
    if old.parent is not None:
        raise Refused(Code.CHILD_TOKEN, f"{old.name!r} is part of {old.parent!r} and is retried with it")
    if not old.status.is_final or (task.visit, _plain(task.state)) != (old.visit, old.state):
        raise Refused(
            Code.NOT_RETRYABLE,
            f"the token {old.name!r} has gone on without task {task.id}; it is {old.status.value}",
        )


def _plain(state: str) -> str:
    return kind_of(state).rpartition("/")[2]
