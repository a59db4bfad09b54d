"""Replays that do not come by what they had passed: a strict routine is parked until a person resumes it (C12)."""

from __future__ import annotations

from stateous_contract.messages import Park
from stateous_contract.states import NONDETERMINISM_PREFIX, Move, TaskState

from stateous_control.rules.book import Book, Task
from stateous_control.rules.durable import check_durable
from stateous_control.rules.holding import check_attempt, is_of
from stateous_control.rules.moves import change


def park(book: Book, task: Task, said: Park) -> None:
    """Park. `said` names the step that stands and was not come by; the log says what came in its place.

    The same again changes nothing. Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, TASK_CANCELLED, TASK_OVER.
    """
    check_attempt(task, said.attempt)
    if task.current_state is TaskState.PARKED and is_of(task, said.supervisor, said.instance):
        return
    check_durable(task, said.supervisor, said.instance)
    task.new_decisions = said.locked_decisions
    change(
        task,
        Move.PARK_DIVERGED,
        reason=f"{NONDETERMINISM_PREFIX}{said.step}",
        attempt=task.attempt,
        step=said.step,
        occurrence=said.occurrence,
        found=said.wait.found,
    )
    book.log(book.tokens[task.token_id], "task_parked", task=task.id, reason=task.reason)
