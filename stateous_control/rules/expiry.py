"""What expires: a task, or the question that it waits for. Terminal, by the database's clock, and nothing is guessed.

The token gets the event ``expired`` where its workflow leads somewhere on it, else it fails; it never gets ``error``,
and a question never gets a default answer (S1-85 … S1-94).
"""

from __future__ import annotations

from typing import Any, Final

from stateous_contract.states import Move, QuestionStatus, TokenStatus

from stateous_control.graph.routing import Unrouted
from stateous_control.rules.book import Book, Task
from stateous_control.rules.children import choose
from stateous_control.rules.deferring import hold
from stateous_control.rules.moves import change, close, end_anchor, fail_token, move
from stateous_control.rules.views import stamp

EXPIRED: Final = "expired"


def expire(book: Book, task: Task) -> bool:
    """End the task if its time, or its open question's, is over under the lock; say whether it was (S1-87, S1-94)."""
    question = task.question
    if question is not None and task.current_state.is_final:
        close(question, task.current_state, task.reason)
        task.question = None
        return False
    is_unanswered = question is not None and question.expires_at < book.now
    is_over = task.expires_at is not None and task.expires_at < book.now
    if task.current_state.is_final or not (is_unanswered or is_over):
        return False
    prior = task.reason or task.current_state.value
    line: dict[str, Any] = {}
    if question is not None:
        line["question"] = question.id
        question.end(QuestionStatus.EXPIRED, "question_expired" if is_unanswered else "task_expired")
        task.question = None
    change(task, Move.EXPIRE, reason=f"expired:{prior}", **line)
    token = book.tokens[task.token_id]
    book.log(token, "task_expired", task=task.id, reason=task.reason)
    if task.is_routine:
        end_anchor(book, token, task, TokenStatus.FAILED)
        return True
    why = f"task {task.id} of {token.state!r} expired at {stamp(book.now)} ({prior})"
    if token.status is TokenStatus.PAUSED:
        hold(book, token, EXPIRED, None, task=task, error=why)
        return True
    found = choose(book, token, EXPIRED)
    if isinstance(found, Unrouted):
        fail_token(book, token, f"{why}, and {found.sentence}")
    else:
        move(book, token, found, None, error=why)
    return True
