"""Notes and memory: what a routine says and keeps while it works (A.7, A.8). Neither renews a lease nor moves anything.

In the baseline anybody may write them. A supervisor that names itself must hold the attempt; what it sends again
after its outcome was accepted is answered as before and changes nothing.
"""

from __future__ import annotations

from msgspec import Raw

from stateous_control.rules.book import Book, Task
from stateous_control.rules.holding import check_attempt, check_begun, check_holder, is_of
from stateous_control.rules.lines import MemoryWrite
from stateous_control.rules.queues import kind_of


def note(
    book: Book,
    task: Task,
    text: str,
    *,
    attempt: int | None,
    supervisor: str | None = None,
    instance: str | None = None,
) -> None:
    """Write one line of progress; `text` is stripped and of the right length already (S3-77).

    Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD.
    """
    if _may_write(task, attempt, supervisor, instance):
        task.record("note", text=text)
        book.log(book.tokens[task.token_id], "note", task=task.id, text=text)


def remember(
    book: Book,
    task: Task,
    key: str,
    value: Raw | None,
    *,
    attempt: int | None,
    supervisor: str | None = None,
    instance: str | None = None,
) -> None:
    """Set one key of the state's memory; None or a JSON null deletes it. The history never sees the value (S3-77).

    Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD.
    """
    if not _may_write(task, attempt, supervisor, instance):
        return
    if value is not None and bytes(value) == b"null":
        value = None
    place = (task.token_id, kind_of(task.state), key)
    if value is None and place not in book.memory_present:
        return
    token = book.tokens[task.token_id]
    book.memory.append(MemoryWrite(*place, value))
    if value is None:
        book.memory_present.discard(place)
        book.log(token, "memory_deleted", state=token.state, memory_key=key)
    else:
        book.memory_present.add(place)
        book.log(token, "memory_set", state=token.state, memory_key=key)


def _may_write(task: Task, attempt: int | None, supervisor: str | None, instance: str | None) -> bool:
    """Check as for a report; False says that the attempt's outcome is in, so that this can only be a repeat."""
    check_attempt(task, attempt)
    is_reported = attempt is not None and attempt == task.report_attempt
    if supervisor is not None and is_reported and is_of(task, supervisor, instance):
        return False
    check_begun(task)
    if supervisor is not None:
        check_holder(task, supervisor, instance)
    return True
