"""Routines without a graph and children of tasks: starting, spawning, and what the end of one means for the others.

A task that people start has an anchor instead of a token: a row that no client sees and whose lock is that of its tree.
Children stand under their parent's token or anchor, so a whole tree is in one book. `settle` looks at how things are,
not at what happened: whatever ended a parent ends its descendants, and whatever ended a child wakes who waits for it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw
from stateous_contract.messages import Spawn, Start
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.durable import check_durable, pass_point
from stateous_control.rules.holding import check_attempt
from stateous_control.rules.moves import cancel_tasks, ready
from stateous_control.rules.policy import Policy
from stateous_control.rules.queues import queue_of, routine_of
from stateous_control.rules.waits import wake

ANCHOR: Final = "~"
"""What the name of an anchor begins with; no token's does."""

_CHILD: Final = msgspec.json.Decoder(dict[str, int])


def start(book: Book, owner: str, said: Start) -> Task:
    """Start a routine: a task with an anchor of its own, ready at once."""
    task_id = next(book.task_ids)
    anchor = Token(
        id=next(book.token_ids),
        owner=owner,
        name=f"{ANCHOR}{task_id}",
        graph="",
        workflow="",
        state="",
        status=TokenStatus.ACTIVE,
        visit=0,
        context={},
        entered_at=book.now,
        entered_by="",
        entered_payload=None,
        entered_error=None,
        seq=0,
        visits={},
        events={},
        is_new=True,
    )
    book.add_token(anchor)
    task = _task(task_id, anchor, said)
    book.add_task(task)
    ready(anchor, task, book.now)
    return task


def start_again(book: Book, old: Task) -> Task:
    """Start the routine of a task that has ended anew, linked by `retried_from`; the writer gives it the old input."""
    said = Start(
        routine=routine_of(old.state)[0],
        version=old.version,
        input=Raw(b"null"),
        retries=old.retries,
        backoff_s=old.policy.backoff_s,
        max_backoff_s=old.policy.max_backoff_s,
        not_retryable=list(old.policy.not_retryable),
    )
    fresh = start(book, book.tokens[old.token_id].owner, said)
    fresh.retried_from = old.id
    return fresh


def spawn(book: Book, parent: Task, said: Spawn) -> tuple[int, bool]:
    """Start a child, and checkpoint its id, in one change (S2-34); a replay is given the same child.

    Return its id and whether it is new. Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, TASK_CANCELLED, TASK_OVER.
    """
    check_attempt(parent, said.attempt)
    found = book.checkpoints.get((parent.id, parent.version, said.step, said.occurrence))
    if found is not None:
        return _CHILD.decode(found.value)["task"], False
    check_durable(parent, said.supervisor, said.instance)
    token = book.tokens[parent.token_id]
    child = _task(next(book.task_ids), token, said)
    child.parent_id = parent.id
    book.add_task(child)
    ready(token, child, book.now)
    pass_point(book, parent, said.step, said.occurrence, Raw(msgspec.json.encode({"task": child.id})))
    return child.id, True


def _task(task_id: int, token: Token, said: Start | Spawn) -> Task:
    return Task(
        id=task_id,
        token_id=token.id,
        state=queue_of(said.routine, said.version),
        visit=0,
        current_state=TaskState.PENDING,
        attempt=0,
        failures=0,
        retries=said.retries,
        generation=1,
        ready_at=None,
        version=said.version,
        policy=Policy(said.backoff_s, said.max_backoff_s, tuple(said.not_retryable or ())),
        new_input=said.input,
        is_new=True,
    )


def settle(book: Book) -> None:
    """Cancel the descendants of what has ended (S2-38, S2-39), then wake who waits for a result that is there."""
    if not any(task.parent_id is not None for task in book.tasks.values()):
        return
    while orphans := [task for task in book.tasks.values() if _is_orphan(book, task)]:
        for task in orphans:
            assert task.parent_id is not None
            ended = book.tasks[task.parent_id].current_state.value
            cancel_tasks(book, book.tokens[task.token_id], (task,), f"parent_{ended}")
    for task in list(book.tasks.values()):
        wait = task.wait
        if wait is not None and any(part.kind == "result" for part in wait.parts) and wake(book, task):
            settle(book)
            return


def _is_orphan(book: Book, task: Task) -> bool:
    if task.parent_id is None or task.current_state.is_final:
        return False
    parent = book.tasks.get(task.parent_id)
    return parent is not None and parent.current_state.is_final
