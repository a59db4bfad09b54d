"""Who may speak for a task: the checks that reports, notes and memory writes have in common, in their order.

A grant belongs to the supervisor, instance and attempt that claimed it; these three are the lease. Changes nothing.
"""

from __future__ import annotations

from typing import Final

from stateous_contract.codes import Code, Refused
from stateous_contract.states import TaskState, TaskStatus

from stateous_control.rules.book import Task
from stateous_control.rules.views import task_status

_BEGUN: Final = frozenset({TaskStatus.CLAIMED, TaskStatus.WAITING})


def check_attempt(task: Task, attempt: int | None) -> None:
    """Refuse an attempt that is over, always (S3-43), and one that has not begun (S3-45). None is the current one."""
    if attempt is None or attempt == task.attempt:
        return
    code = Code.ATTEMPT_OVER if attempt < task.attempt else Code.TASK_NOT_HELD
    raise Refused(code, f"task {task.id} is at attempt {task.attempt}; attempt {attempt} was named")


def check_begun(task: Task) -> None:
    """Refuse what is about a task that nobody works on and that waits for nothing (S3-58)."""
    status = task_status(task)
    if status not in _BEGUN:
        raise Refused(Code.TASK_NOT_HELD, f"task {task.id} is {status.value}, so nobody works on it")


def holds(task: Task, supervisor: str, instance: str | None) -> bool:
    """Say whether the task is this supervisor's; one that tells no instance is judged by its name (baseline)."""
    return task.current_state is TaskState.RUNNING and is_of(task, supervisor, instance)


def is_of(task: Task, supervisor: str, instance: str | None) -> bool:
    """Say whether this supervisor holds the task's newest attempt, or held it to its end."""
    return task.supervisor == supervisor and (instance is None or task.instance == instance)


def check_holder(task: Task, supervisor: str, instance: str | None) -> None:
    """Refuse everyone but the supervisor that holds the task (S3-32)."""
    if not holds(task, supervisor, instance):
        named = repr(supervisor) if instance is None else f"{supervisor!r} (instance {instance})"
        raise Refused(Code.TASK_NOT_HELD, f"{named} does not hold task {task.id}")
