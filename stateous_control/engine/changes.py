"""Each change that a client can ask for, as an operation: what the book must hold, and which rule decides.

Nothing is decided here. A name or task that is not in the book is the 404 of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw, UnsetType
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import (
    Checkpoint,
    ClaimRequest,
    MessageResult,
    MessageResults,
    Report,
    TaskMessage,
    TaskMessages,
    TokenView,
)
from stateous_contract.states import TaskState, TokenStatus

from stateous_control.engine.gathering import Operation
from stateous_control.engine.people import TaskView, task_view
from stateous_control.engine.supervising import stored
from stateous_control.rules import notes, reports, steering
from stateous_control.rules.book import Book, Token
from stateous_control.rules.views import token_view
from stateous_control.store.books import OpenBook, Wanted


def fire(
    owner: str, name: str, event: str, payload: Raw | None, key: str | None
) -> Operation[tuple[TokenView, bool]]:
    """Fire an event; a key that was used before does nothing again."""

    def apply(opened: OpenBook) -> tuple[TokenView, bool]:
        token = opened.token(owner, name)
        is_duplicate = steering.fire(opened.book, token, event, payload, key=key)
        return token_view(token), is_duplicate

    keys = set() if key is None else {(owner, name, key)}
    wanted = Wanted(names={(owner, name)}, keys=keys, moves=1, needs_timers=True)
    return Operation(wanted, apply, frozenset({(owner, name.lower())}), 1)


def pause(owner: str, name: str) -> Operation[TokenView]:
    """Pause a token."""
    return _steer(owner, name, steering.pause)


def resume(owner: str, name: str) -> Operation[TokenView]:
    """Resume a token; what was held gets its turn."""
    return _steer(owner, name, steering.resume)


def cancel(owner: str, name: str) -> Operation[TokenView]:
    """Cancel a token."""
    return _steer(owner, name, steering.cancel)


def _steer(owner: str, name: str, rule: Callable[[Book, Token], None]) -> Operation[TokenView]:
    def apply(opened: OpenBook) -> TokenView:
        token = opened.token(owner, name)
        rule(opened.book, token)
        return token_view(token, is_pausing=_is_pausing(opened.book, token))

    wanted = Wanted(names={(owner, name)}, moves=1, needs_timers=True)
    return Operation(wanted, apply, frozenset({(owner, name.lower())}), 1)


def _is_pausing(book: Book, token: Token) -> bool:
    if token.status is not TokenStatus.PAUSED:
        return False
    return any(
        task.current_state is TaskState.RUNNING for member in book.family(token) for task in book.tree(member)
    )


def report(task_id: int, outcome: Report) -> Operation[TokenView | TaskView]:
    """Take an outcome."""

    def apply(opened: OpenBook) -> TokenView | TaskView:
        return _report(opened, task_id, outcome)

    return Operation(Wanted(tasks={task_id}, moves=1, needs_timers=True), apply, frozenset({task_id}), 1)


def _report(opened: OpenBook, task_id: int, outcome: Report) -> TokenView | TaskView:
    """Take an outcome; the answer is the token, or for a task that moves none the task."""
    task = opened.task(task_id)
    token = reports.report(opened.book, task, outcome)
    return task_view(opened.book, task) if task.is_routine else token_view(token)


def note(task_id: int, text: str, attempt: int | None) -> Operation[None]:
    """Write a line of progress."""

    def apply(opened: OpenBook) -> None:
        notes.note(opened.book, opened.task(task_id), text, attempt=attempt)

    return Operation(Wanted(tasks={task_id}), apply, frozenset({task_id}), 1)


def remember(task_id: int, key: str, value: Raw | None, attempt: int | None) -> Operation[None]:
    """Set or delete a key of memory."""

    def apply(opened: OpenBook) -> None:
        notes.remember(opened.book, opened.task(task_id), key, value, attempt=attempt)

    return Operation(Wanted(tasks={task_id}, memory={(task_id, key)}), apply, frozenset({task_id}), 1)


def give_back(claim: ClaimRequest, attempts: Mapping[int, int]) -> Operation[None]:
    """Release what a withdrawn claim brought; what has moved on meanwhile is left alone."""

    def apply(opened: OpenBook) -> None:
        for task, attempt in attempts.items():
            outcome = Report(
                kind="released",
                reason="not_started",
                attempt=attempt,
                supervisor=claim.supervisor,
                instance=claim.instance,
            )
            try:
                _report(opened, task, outcome)
            except Refused:
                continue

    wanted = Wanted(tasks=set(attempts), moves=len(attempts), needs_timers=True)
    return Operation(wanted, apply, frozenset(attempts), len(attempts))


def messages(bundle: TaskMessages) -> Operation[MessageResults]:
    """Take many messages in order; a refused one stops only the later ones of its attempt."""

    def apply(opened: OpenBook) -> MessageResults:
        refusals: dict[tuple[int, int], Refused] = {}
        results = []
        for message in bundle.messages:
            place = (message.task, message.attempt)
            try:
                if place in refusals:
                    raise refusals[place]
                results.append(_take(opened, bundle, message))
            except Refused as refusal:
                refusals[place] = refusal
                results.append(
                    MessageResult(
                        task=message.task,
                        status=refusal.code.status,
                        code=refusal.code.wire,
                        error=refusal.sentence,
                    )
                )
        return MessageResults(results=results)

    tasks = {message.task for message in bundle.messages}
    memory = {(message.task, message.key) for message in bundle.messages if message.key is not None}
    reported = sum(message.kind == "report" for message in bundle.messages)
    wanted = Wanted(tasks=tasks, memory=memory, moves=reported, needs_timers=reported > 0)
    wanted.supervision.checkpoints = {
        (each.task, each.version or 1, each.step, each.occurrence or 1)
        for each in bundle.messages
        if each.step is not None
    }
    return Operation(wanted, apply, frozenset(tasks), len(bundle.messages))


def _take(opened: OpenBook, bundle: TaskMessages, message: TaskMessage) -> MessageResult:
    if message.kind == "checkpoint":
        standing = stored(opened, message.task, _checkpoint(bundle, message))
        return MessageResult(task=message.task, status=200, value=standing.value, pause=standing.pause)
    view = _take_plain(opened, bundle, message)
    token = view if isinstance(view, TokenView) else None
    return MessageResult(task=message.task, status=204 if view is None else 200, token=token)


def _checkpoint(bundle: TaskMessages, message: TaskMessage) -> Checkpoint:
    assert not isinstance(message.value, UnsetType)
    return Checkpoint(
        supervisor=bundle.supervisor,
        instance=bundle.instance,
        attempt=message.attempt,
        step=message.step or "",
        occurrence=message.occurrence or 1,
        value=message.value,
        version=message.version or 1,
    )


def _take_plain(opened: OpenBook, bundle: TaskMessages, message: TaskMessage) -> TokenView | TaskView | None:
    if message.kind == "report":
        outcome = Report(
            kind=message.outcome or "",
            event=message.event,
            error=message.error,
            payload=message.payload,
            context=message.context,
            schedules=message.schedules,
            attempt=message.attempt,
            supervisor=bundle.supervisor,
            instance=bundle.instance,
            reason=message.reason,
            retryable=message.retryable,
            result=message.result,
        )
        return _report(opened, message.task, outcome)
    task = opened.task(message.task)
    said: dict[str, Any] = {
        "attempt": message.attempt,
        "supervisor": bundle.supervisor,
        "instance": bundle.instance,
    }
    if message.kind == "note":
        notes.note(opened.book, task, message.text or "", **said)
        return None
    if message.kind == "memory":
        value = None if isinstance(message.value, UnsetType) else message.value
        notes.remember(opened.book, task, message.key or "", value, **said)
        return None
    raise Refused(
        Code.INVALID_BODY,
        f"a message's 'kind' is {message.kind!r}; it must be note, memory, checkpoint or report",
    )
