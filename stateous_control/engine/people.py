"""Tasks, questions and logs as people see them. Field names are wire names; every list tells what it withheld."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from stateous_contract.messages import Message
from stateous_contract.states import TaskState, status_of

from stateous_control.rules.book import Book, Task
from stateous_control.rules.pausing import PAUSING
from stateous_control.rules.policy import Policy, read_policy
from stateous_control.rules.queues import is_routine, kind_of, routine_of
from stateous_control.rules.routines import ANCHOR
from stateous_control.rules.views import stamp
from stateous_control.store.pool import Row
from stateous_control.store.reading import Counted


class TaskView(Message):
    """One task. A routine without a graph has `routine`, `input` and `result` in the place of a token and its state.

    `supervisor` and the lease are told while it runs only; `pausing` while a pause is requested. `unroutable`: it
    waits for a supervisor that serves its state or routine and version, and none was heard of late.
    """

    task: int
    current_state: str
    status: str
    watchdog_stop_reason: str | None
    generation: int
    attempt: int
    failures: int
    retries: int
    version: int
    log_count: int
    releases: int
    given_back: int
    token: str | None = None
    state: str | None = None
    visit: int = 0
    routine: str | None = None
    parent: int | None = None
    supervisor: str | None = None
    instance: str | None = None
    lease_until: str | None = None
    ready_at: str | None = None
    queued_at: str | None = None
    pause_requested_at: str | None = None
    pausing: str | None = None
    expires_at: str | None = None
    question: int | None = None
    retried_from: int | None = None
    retried_as: int | None = None
    owner: str | None = None
    locked_decisions: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: str | None = None
    ended_at: str | None = None
    unroutable: bool = False
    backoff_s: float | None = None
    max_backoff_s: float | None = None
    not_retryable: list[str] | None = None


class QuestionView(Message):
    """One question. `generation` is its task's: an answer names it."""

    question: int
    task: int
    key: str
    occurrence: int
    data: Raw
    status: str
    attempt: int
    asked_at: str
    expires_at: str
    generation: int
    token: str | None = None
    state: str | None = None
    routine: str | None = None
    asked_by: str | None = None
    schema: Raw | UnsetType = UNSET
    choices: Raw | UnsetType = UNSET
    answer: Raw | UnsetType = UNSET
    answered_by: str | None = None
    answered_at: str | None = None
    cause: str | None = None
    reminders: int = 0
    owner: str | None = None


class LogEntry(Message):
    """One line of a task's log."""

    sequence_num: int
    at: str
    kind: str
    data: Raw


class CheckpointView(Message):
    """One checkpoint."""

    step: str
    occurrence: int
    seq: int
    value: Raw
    stored_at: str


class Page(Message):
    """One page: `withheld_count` is exactly what is there and not here, `cursor` asks for more (S1-109 … S1-116)."""

    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    entries: list[Any]
    cursor: str | None = None


def page_of(entries: list[Any], page: Counted, cursor: str | None = None) -> Page:
    """Wrap a page in its counts."""
    returned = len(entries)
    return Page(
        returned_count=returned,
        total_count=page.total,
        withheld_count=page.total - returned,
        truncated=page.total > returned,
        entries=entries,
        cursor=cursor,
    )


def task_row_view(row: Row, *, is_owner_shown: bool = False) -> TaskView:
    """Return a task as clients see it, from its row."""
    current_state, reason = TaskState(row["current_state"]), row["watchdog_stop_reason"]
    is_requested = not current_state.is_final and (
        row["pause_requested_at"] is not None
        or (row["steered"] == "paused" and current_state is TaskState.RUNNING)
    )
    return TaskView(
        task=row["id"],
        **place_of(row["token"], row["state"]),
        visit=row["visit"],
        parent=row["parent_id"],
        current_state=current_state.value,
        status=status_of(current_state, reason).value,
        watchdog_stop_reason=reason,
        generation=row["generation"],
        attempt=row["attempt"],
        failures=row["failures"],
        retries=row["retries"],
        version=row["handler_version"],
        log_count=row["log_seq"],
        releases=row["releases"],
        given_back=row["given_back"],
        supervisor=row["supervisor"],
        instance=row["instance"],
        lease_until=_stamp(row["until"]),
        ready_at=_stamp(row["ready_at"]),
        queued_at=_stamp(row["queued_at"]),
        pause_requested_at=_stamp(row["pause_requested_at"]),
        pausing=PAUSING if is_requested else None,
        expires_at=_stamp(row["expires_at"]),
        question=row["question"],
        retried_from=row["retried_from"],
        retried_as=row["retried_as"],
        owner=row["owner"] if is_owner_shown else None,
        locked_decisions=_raw(row["locked_decisions"]),
        input=_raw(row["input"]),
        result=_raw(row["result"]),
        error=row["error"],
        ended_at=_stamp(row["ended_at"]),
        unroutable=row["is_unroutable"],
        **_policy(read_policy(row["policy"])),
    )


def task_view(book: Book, task: Task, *, is_pausing: bool = False) -> TaskView:
    """Return a task as it is after a change; the answer to a pause says so, whatever the worker does (S1-69)."""
    is_requested = task.pause_requested_at is not None and not task.current_state.is_final
    is_running = task.current_state is TaskState.RUNNING
    return TaskView(
        task=task.id,
        **place_of(book.tokens[task.token_id].name, task.state),
        visit=task.visit,
        parent=task.parent_id,
        current_state=task.current_state.value,
        status=status_of(task.current_state, task.reason).value,
        watchdog_stop_reason=task.reason,
        generation=task.generation,
        attempt=task.attempt,
        failures=task.failures,
        retries=task.retries,
        version=task.version,
        log_count=task.log_seq,
        releases=task.releases,
        given_back=task.given_back,
        supervisor=task.supervisor if is_running else None,
        instance=task.instance if is_running else None,
        ready_at=_stamp(task.ready_at),
        pause_requested_at=_stamp(task.pause_requested_at),
        pausing=PAUSING if is_requested or is_pausing else None,
        expires_at=_stamp(task.expires_at),
        question=None if task.question is None else task.question.id,
        retried_from=task.retried_from,
        **_policy(task.policy),
    )


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "backoff_s": policy.backoff_s,
        "max_backoff_s": policy.max_backoff_s,
        "not_retryable": list(policy.not_retryable) or None,
    }


def place_of(token: str, state: str) -> dict[str, Any]:
    """Return where a task stands: its token and state, or its routine; an anchor is nobody's token."""
    named = {} if token.startswith(ANCHOR) else {"token": token}
    return named | ({"routine": routine_of(state)[0]} if is_routine(state) else {"state": kind_of(state)})


def question_row_view(row: Row, *, is_owner_shown: bool = False) -> QuestionView:
    """Return a question as clients see it, from its row."""
    return QuestionView(
        question=row["id"],
        task=row["task_id"],
        **place_of(row["token"], row["state"]),
        key=row["key"],
        occurrence=row["occurrence"],
        data=Raw(row["data"].encode()),
        status=row["status"],
        attempt=row["attempt"],
        asked_at=stamp(row["asked_at"]),
        expires_at=stamp(row["expires_at"]),
        generation=row["generation"],
        asked_by=row["asked_by"],
        schema=_raw(row["schema"]),
        choices=_raw(row["choices"]),
        answer=_raw(row["answer"]),
        answered_by=row["answered_by"],
        answered_at=_stamp(row["answered_at"]),
        cause=row["cause"],
        reminders=max(0, row["tellings"] - 1),
        owner=row["owner"] if is_owner_shown else None,
    )


def log_view(row: Row) -> LogEntry:
    """Return a line of a task's log as clients see it."""
    return LogEntry(
        sequence_num=row["sequence_num"],
        at=stamp(row["at"]),
        kind=row["kind"],
        data=Raw(row["data"].encode()),
    )


def checkpoint_view(row: Row) -> CheckpointView:
    """Return a checkpoint as clients see it."""
    return CheckpointView(
        step=row["step"],
        occurrence=row["occurrence"],
        seq=row["seq"],
        value=Raw(row["value"].encode()),
        stored_at=stamp(row["stored_at"]),
    )


def notice_of(row: Row) -> bytes:
    """Return what people outside are told of a question: the question as a client reads it, and the kind of notice."""
    kind = "question_asked" if row["tellings"] == 0 else "question_reminder"
    view = msgspec.json.encode(question_row_view(row, is_owner_shown=True))
    return b'{"kind":"' + kind.encode() + b'","question":' + view + b"}"


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else stamp(at)


def _raw(text: str | None) -> Raw | UnsetType:
    return UNSET if text is None else Raw(text.encode())
