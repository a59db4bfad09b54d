"""Durable calls of a routine: who may make one, what replay needs of it, and the checkpoint store (S2-05, S2-30).

A checkpoint is written once. Whoever comes second, with whatever value, is told the value that stands; so is the same
message again. Asking and pausing, which park, are in `questions.py` and `pausing.py`.
"""

from __future__ import annotations

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Book, Checkpoint, Task
from stateous_control.rules.holding import check_attempt, check_holder


def store(
    book: Book,
    task: Task,
    step: str,
    occurrence: int,
    value: Raw,
    *,
    version: int,
    attempt: int,
    supervisor: str,
    instance: str,
) -> Raw:
    """Keep the value of a step, and return the one that stands (S2-05, S2-20, S2-30).

    Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, TASK_CANCELLED, TASK_OVER, INVALID_ARGUMENT.
    """
    check_attempt(task, attempt)
    found = book.checkpoints.get((task.id, version, step, occurrence))
    if found is not None:
        return found.value
    check_durable(task, supervisor, instance)
    if version != task.version:
        raise Refused(
            Code.INVALID_ARGUMENT, f"task {task.id} is of version {task.version}; version {version} was named"
        )
    pass_point(book, task, step, occurrence, value)
    return value


def pass_point(book: Book, task: Task, step: str, occurrence: int, value: Raw) -> None:
    """Write a checkpoint that does not stand yet, with its line in the log."""
    task.record("checkpoint_written", step=step, occurrence=occurrence, attempt=task.attempt)
    task.saved_bytes += len(bytes(value)) + len(step.encode()) + 40
    book.checkpoints[task.id, task.version, step, occurrence] = Checkpoint(task.log_seq, value, is_new=True)


def check_durable(task: Task, supervisor: str, instance: str) -> None:
    """Refuse a durable call about a task that has ended, or by anybody but its holder (S1-10, S1-49, S2-58)."""
    if task.current_state is TaskState.CANCELLED:
        raise Refused(Code.TASK_CANCELLED, f"task {task.id} was cancelled ({task.reason})")
    check_live(task)
    check_holder(task, supervisor, instance)


def check_live(task: Task) -> None:
    """Refuse what is about a task that has ended (S1-10)."""
    if task.current_state.is_final:
        why = f" ({task.reason})" if task.reason else ""
        raise Refused(Code.TASK_OVER, f"task {task.id} is {task.current_state.value}{why}, for ever")


def check_generation(task: Task, expected: int) -> None:
    """Refuse a person who looked at another picture of the task (S1-96, S1-98, S1-100)."""
    if expected != task.generation:
        raise Refused(
            Code.STALE_GENERATION,
            f"task {task.id} is at generation {task.generation} by now; {expected} was expected",
        )


def is_pausing(book: Book, task: Task) -> bool:
    """Say whether a pause is requested, for the task or its token."""
    return task.pause_requested_at is not None or book.tokens[task.token_id].status is TokenStatus.PAUSED
