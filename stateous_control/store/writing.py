"""Carries a book's changes back: one statement for each kind of row, however many rows changed. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.rules.book import Book, Held, Task, Timer, Token
from stateous_control.rules.policy import write_policy
from stateous_control.store.books import OpenBook
from stateous_control.store.columns import text_of
from stateous_control.store.pool import Session
from stateous_control.store.statements import statements
from stateous_control.store.supervised import write_supervised


async def write_back(session: Session, opened: OpenBook) -> None:
    """Write everything that changed in the book; a book without changes costs no statement."""
    book = opened.book
    await _write_tokens(session, opened)
    await _write_tasks(session, book)
    await _write_timers(session, opened)
    await _write_held(session, book)
    await _write_lines(session, book)
    await write_supervised(session, book)
    await _write_memory(session, book)
    if book.keys_new:
        await _insert(session, statements.insert_keys, book.keys_new)


async def _write_lines(session: Session, book: Book) -> None:
    lines = [(task.id, entry) for task in book.tasks.values() for entry in task.entries]
    if book.entries or lines:
        await session.fetch(
            statements.insert_history,
            [entry.token_id for entry in book.entries],
            [entry.seq for entry in book.entries],
            [entry.kind for entry in book.entries],
            [_json(entry.data) for entry in book.entries],
            book.now,
            [task for task, _ in lines],
            [entry.seq for _, entry in lines],
            [entry.kind for _, entry in lines],
            [_json(entry.data) if entry.data else "{}" for _, entry in lines],
        )


async def _insert(session: Session, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run `statement` with one array for each column.

    A column without any value goes as an empty array: `unnest` fills it up with NULL, and asyncpg looks at each element
    of an array several times over.
    """
    if rows:
        columns = zip(*rows, strict=True)
        await session.fetch(statement, *([] if _is_void(column) else column for column in columns))


def _is_void(column: Sequence[Any]) -> bool:
    return column[0] is None and column.count(None) == len(column)


async def _write_tokens(session: Session, opened: OpenBook) -> None:
    tokens = opened.book.tokens.values()
    fresh = sorted(
        (token for token in tokens if token.is_new), key=lambda token: (token.owner, token.name.lower())
    )
    await _insert(session, statements.insert_tokens, [_whole_token(token) for token in fresh])
    changed = [token for token in tokens if token.is_changed and not token.is_new]
    await _insert(session, statements.update_tokens, [_changed_token(token, opened) for token in changed])
    kin = [
        (token.id, token.has_children, _current_root(token))
        for token in tokens
        if token.is_kin_changed and not token.is_new
    ]
    await _insert(session, statements.update_kin, kin)


def _whole_token(token: Token) -> tuple[Any, ...]:
    return (
        token.id,
        token.owner,
        token.name,
        token.graph or None,
        token.workflow,
        token.state,
        token.status.value,
        token.visit,
        _json(token.context),
        token.entered_at,
        token.entered_by,
        text_of(token.entered_payload),
        token.entered_error,
        token.seq,
        _json(token.visits),
        _json(token.events),
        token.parent,
        token.paused_at,
        token.parent_id,
        token.root_id,
        _current_root(token),
        token.has_children,
    )


def _current_root(token: Token) -> int | None:
    return token.root_id if token.is_current else None


def _changed_token(token: Token, opened: OpenBook) -> tuple[Any, ...]:
    context = _json(token.context)
    return (
        token.id,
        token.state,
        token.status.value,
        token.visit,
        None if context == opened.contexts[token.id] else context,
        token.entered_at,
        token.entered_by,
        text_of(token.entered_payload),
        token.entered_error,
        token.seq,
        _json(token.visits),
        _json(token.events),
        token.paused_at,
        token.late_events or None,
    )


async def _write_tasks(session: Session, book: Book) -> None:
    fresh = [task for task in book.tasks.values() if task.is_new]
    await _insert(session, statements.insert_tasks, [_new_task(task, book) for task in fresh])
    # A task that something happened to before its transaction ended is rare: it is written twice.
    changed = [
        task for task in book.tasks.values() if (task.is_changed and not task.is_new) or _is_used(task)
    ]
    await _insert(session, statements.update_tasks, [_changed_task(task) for task in changed])


def _is_used(task: Task) -> bool:
    return task.is_new and (task.current_state is not TaskState.PENDING or task.generation > 1)


def _new_task(task: Task, book: Book) -> tuple[Any, ...]:
    return (
        task.id,
        task.token_id,
        task.state,
        task.visit,
        task.retries,
        task.ready_at,
        task.held_ready_at,
        book.tokens[task.token_id].owner,
        task.log_seq,
        task.expires_at,
        task.retried_from,
        task.saved_bytes,
        book.tokens[task.token_id].root_id,
        task.version,
        task.parent_id,
        text_of(task.new_input),
        write_policy(task.policy),
    )


def _changed_task(task: Task) -> tuple[Any, ...]:
    return (
        task.id,
        task.current_state.value,
        task.attempt,
        task.failures,
        task.generation,
        task.ready_at,
        task.reason,
        task.held_ready_at,
        task.supervisor,
        task.instance,
        task.releases,
        task.is_suspect,
        task.report_attempt,
        task.report_digest,
        task.log_seq,
        task.pause_requested_at,
        task.saved_bytes,
        text_of(task.new_decisions),
        task.given_back or None,
        text_of(task.result),
        task.error,
    )


async def _write_timers(session: Session, opened: OpenBook) -> None:
    book = opened.book
    kept = [timer for timer in book.timers if not timer.is_deleted]
    stopped = {token.id for token in book.tokens.values() if token.status is TokenStatus.PAUSED}
    turned = {token.id for token in book.tokens.values() if _is_turned(token, opened)}
    fresh = [
        (*_new_timer(timer, is_stopped=timer.token_id in stopped), book.tokens[timer.token_id].root_id)
        for timer in kept
        if timer.is_new
    ]
    await _insert(session, statements.insert_timers, fresh)
    moved = [
        (timer.id, timer.due_at, timer.token_id in stopped)
        for timer in kept
        if not timer.is_new and (timer.is_changed or timer.token_id in turned)
    ]
    await _insert(session, statements.update_timers, moved)
    await _delete(session, statements.delete_timers, book.timers)


def _is_turned(token: Token, opened: OpenBook) -> bool:
    """Whether the token was paused or resumed: that stops its timers or sets them going."""
    before = opened.statuses.get(token.id)
    return before is not None and (before is TokenStatus.PAUSED) != (token.status is TokenStatus.PAUSED)


def _new_timer(timer: Timer, *, is_stopped: bool) -> tuple[Any, ...]:
    return (
        timer.token_id,
        timer.kind,
        timer.event,
        text_of(timer.payload),
        timer.due_at,
        timer.set_at,
        is_stopped,
    )


async def _delete(session: Session, statement: str, rows: Iterable[Timer | Held]) -> None:
    ids = [row.id for row in rows if row.is_deleted and not row.is_new]
    if ids:
        await session.fetch(statement, ids)


async def _write_held(session: Session, book: Book) -> None:
    fresh = [_new_held(held) for held in book.held if held.is_new and not held.is_deleted]
    await _insert(session, statements.insert_held, fresh)
    await _delete(session, statements.delete_held, book.held)


def _new_held(held: Held) -> tuple[Any, ...]:
    return (
        held.token_id,
        held.arrival,
        held.event,
        text_of(held.payload),
        held.task_id,
        held.state,
        held.visit,
        text_of(held.context),
        text_of(held.schedules),
        held.error,
    )


async def _write_memory(session: Session, book: Book) -> None:
    latest = {(write.token_id, write.state, write.key): write.value for write in book.memory}
    kept = {place: value for place, value in latest.items() if place[0] not in book.memory_cleared}
    await _insert(
        session,
        statements.set_memory,
        sorted((*place, text_of(value)) for place, value in kept.items() if value is not None),
    )
    await _insert(
        session, statements.delete_memory, [place for place, value in kept.items() if value is None]
    )
    if book.memory_cleared:
        await session.fetch(statements.clear_memory, sorted(book.memory_cleared))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
