"""Waits of a routine: for a time, a signal, a child's result, or the first of several (S2-23 … S2-37).

A wait is named by its step and occurrence, and what ended it is the checkpoint of that step, written by the transaction
that ends it: replay finds it like any other value. Times are fixed when the task first parks there (DX-11). Of several
things the one that happened first counts, so a signal that came before a timeout is never lost to it (DX-09). Parking,
sending and the sweep all hold the token's lock, so none of them misses another (DX-02).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Park
from stateous_contract.messages import Wait as Said
from stateous_contract.states import Move, TaskState

from stateous_control.rules.awaited import Part, Signal, Wait
from stateous_control.rules.book import Book, Task, Token
from stateous_control.rules.durable import check_durable, check_live, pass_point
from stateous_control.rules.holding import check_attempt, is_of
from stateous_control.rules.moves import cancel_tasks, change
from stateous_control.rules.pausing import end_wait
from stateous_control.rules.views import stamp

_NULL: Final = Raw(b"null")


@dataclass(frozen=True, slots=True)
class _End:
    """What ends a wait, and when it did."""

    at: datetime
    index: int
    part: Part
    signal: Signal | None = None


def park(book: Book, task: Task, said: Park) -> Raw | None:
    """Park, and return None; or return the value of a wait that is over already: then the attempt goes on.

    The same again answers the same. Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, TASK_CANCELLED, TASK_OVER.
    """
    assert said.step is not None
    assert said.occurrence is not None
    check_attempt(task, said.attempt)
    if task.current_state is TaskState.PARKED and is_of(task, said.supervisor, said.instance):
        return None
    check_durable(task, said.supervisor, said.instance)
    found = book.checkpoints.get((task.id, task.version, said.step, said.occurrence))
    if found is not None:
        return found.value
    _check_children(book, task, said.wait)
    wait = _begun(book, task, said.step, said.occurrence, said.wait)
    end = _end(book, task, wait)
    if end is not None:
        return _pass(book, task, wait, end)
    _stay(book, task, wait, said.locked_decisions)
    return None


def _check_children(book: Book, task: Task, said: Said) -> None:
    """Refuse to wait for the result of anything but a direct child (S2-36); so no wait is a circle (S2-37)."""
    for part in said.of or [said]:
        child = None if part.task is None else book.tasks.get(part.task)
        if part.task is not None and (child is None or child.parent_id != task.id):
            raise Refused(Code.NOT_A_CHILD, f"task {part.task} is no child of task {task.id}")


def _begun(book: Book, task: Task, step: str, occurrence: int, said: Said) -> Wait:
    """Return the wait as it stands: its times are those of the first park, what else it is for is what is said now."""
    parts = _parts(book.now, said)
    wait = book.waits.get((task.id, step, occurrence))
    if wait is None:
        return Wait(task.id, step, occurrence, parts, book.now, is_new=True)
    for part, first in zip(parts, wait.parts, strict=False):
        if part.kind == first.kind and part.at is not None:
            part.at = first.at
    wait.parts, wait.is_changed = parts, True
    return wait


def _parts(now: datetime, said: Said) -> list[Part]:
    """Return what ends a wait, the timeout first: it stays in its place when the others change."""
    timeout = [] if said.timeout_s is None else [Part("timeout", now + timedelta(seconds=said.timeout_s))]
    return [*timeout, *(_part(now, each) for each in (said.of if said.of is not None else [said]))]


def _part(now: datetime, said: Said) -> Part:
    if said.kind == "sleep":
        until = said.until if said.for_s is None else now + timedelta(seconds=said.for_s)
        if until is None or until > now + timedelta(seconds=limits.DURATION_S_MAX):
            raise Refused(
                Code.INVALID_ARGUMENT,
                f"'until' is more than {limits.DURATION_S_MAX} seconds (ten years) away",
            )
        return Part("sleep", until.astimezone(UTC))
    if said.kind == "result":
        return Part("result", task=said.task)
    return Part("signal", name=said.name)


def _end(book: Book, task: Task, wait: Wait) -> _End | None:
    """Return what ended the wait first, if anything has by now; at the same moment the first in order."""
    ends = (_end_of(book, task, index, part) for index, part in enumerate(wait.parts))
    past = [end for end in ends if end is not None and end.at <= book.now]
    return min(past, key=lambda end: (end.at, end.index), default=None)


def _end_of(book: Book, task: Task, index: int, part: Part) -> _End | None:
    if part.at is not None:
        return _End(part.at, index, part)
    if part.task is not None:
        child = book.tasks.get(part.task)
        if child is None or not child.current_state.is_final:
            return None
        return _End(child.ended_at or book.now, index, part)
    for signal in book.signals:
        if signal.name == part.name and signal.is_for(task.id, task.token_id):
            return _End(signal.sent_at, index, part, signal)
    return None


def _pass(book: Book, task: Task, wait: Wait, end: _End) -> Raw:
    """Write what ended the wait as the checkpoint of its step, and return it."""
    if end.signal is not None:
        end.signal.taken_by, end.signal.is_changed = task.id, True
    if end.part.kind == "timeout" and _is_for_result(wait):
        _give_up(book, task, wait)
    value = Raw(msgspec.json.encode(_told(book, wait, end)))
    pass_point(book, task, wait.step, wait.occurrence, value)
    return value


def _is_for_result(wait: Wait) -> bool:
    return [part.kind for part in wait.parts] == ["timeout", "result"]


def _give_up(book: Book, task: Task, wait: Wait) -> None:
    """Cancel the child that took too long (S2-40); its own descendants end with it."""
    child = book.tasks.get(wait.parts[1].task or 0)
    if child is not None and not child.current_state.is_final:
        cancel_tasks(book, book.tokens[task.token_id], (child,), "result_wait_timeout")


def _told(book: Book, wait: Wait, end: _End) -> dict[str, Any]:
    """Say what ended a wait; of several, which by its place in the order that was asked."""
    if end.part.kind == "timeout":
        return {"outcome": "timeout"}
    told: dict[str, Any] = {"outcome": "slept"}
    if end.signal is not None:
        told = {"outcome": "signal", "name": end.signal.name, "payload": end.signal.payload or _NULL}
    elif end.part.task is not None:
        told = _result(book.tasks[end.part.task])
    first = int(wait.parts[0].kind == "timeout")
    return told if len(wait.parts) - first == 1 else told | {"index": end.index - first}


def _result(child: Task) -> dict[str, Any]:
    """Say how a child ended: with its result, or with why there is none."""
    told: dict[str, Any] = {"outcome": "result", "task": child.id, "state": child.current_state.value}
    if child.current_state is TaskState.COMPLETED:
        return told | {"result": child.result or _NULL}
    return told | {"reason": child.reason, "error": child.error}


def _stay(book: Book, task: Task, wait: Wait, decisions: Raw) -> None:
    task.new_decisions = decisions
    due = {} if wait.due_at is None else {"until": stamp(wait.due_at)}
    change(
        task,
        Move.WAIT,
        reason=_reason(wait),
        attempt=task.attempt,
        step=wait.step,
        occurrence=wait.occurrence,
        **due,
    )
    wait.is_open = True
    task.wait = book.waits[task.id, wait.step, wait.occurrence] = wait
    book.log(book.tokens[task.token_id], "task_parked", task=task.id, reason=task.reason)


def _reason(wait: Wait) -> str:
    """Say why a task is parked; what stands before the colon is the kind."""
    parts = [part for part in wait.parts if part.kind != "timeout"]
    if len(parts) > 1:
        return f"awaiting_any:{wait.step}#{wait.occurrence}"
    if parts[0].kind == "sleep":
        return f"sleeping:{wait.step}#{wait.occurrence}"
    if parts[0].kind == "result":
        return f"awaiting_result:{parts[0].task}"
    return f"awaiting_signal:{parts[0].name}#{wait.occurrence}"


def wake(book: Book, task: Task) -> bool:
    """End the wait that the task is parked on if something has ended it under the lock; say whether it had (T10)."""
    wait = task.wait
    end = None if wait is None or not wait.is_open else _end(book, task, wait)
    if wait is None or end is None:
        return False
    _pass(book, task, wait, end)
    line = {"step": wait.step, "occurrence": wait.occurrence, "outcome": _told(book, wait, end)["outcome"]}
    end_wait(book, book.tokens[task.token_id], task, "wait_over", **line)
    return True


def signal_task(
    book: Book, task: Task, name: str, payload: Raw | None, *, key: str | None, actor: str
) -> Signal:
    """Send a signal to a task; it ends a wait at once, or is kept (S2-32). Raises Refused: TASK_OVER, TOO_MANY_SIGNALS.

    A key that was used before changes nothing; the signal that it sent is returned, which is not `is_new`.
    """
    known = _known(book, key, task_id=task.id, token_id=None)
    if known is not None:
        return known
    check_live(task)
    _check_room(book.signals_kept.get((task.id, None), 0), f"task {task.id}")
    signal = Signal(None, task.id, None, name, payload, book.now, actor, key, is_new=True)
    book.signals.append(signal)
    task.record("signal_sent", name=name, by=actor)
    wake(book, task)
    return signal


def signal_token(
    book: Book, token: Token, name: str, payload: Raw | None, *, key: str | None, actor: str
) -> Signal:
    """Send a signal to whichever task of a token waits for it first.

    Raises Refused: TOKEN_NOT_ACTIVE, TOO_MANY_SIGNALS.
    """
    known = _known(book, key, task_id=None, token_id=token.id)
    if known is not None:
        return known
    if token.status.is_final:
        raise Refused(
            Code.TOKEN_NOT_ACTIVE, f"{token.name!r} is {token.status.value}; nobody waits for a signal"
        )
    _check_room(book.signals_kept.get((None, token.id), 0), f"the token {token.name!r}")
    signal = Signal(None, None, token.id, name, payload, book.now, actor, key, is_new=True)
    book.signals.append(signal)
    book.log(token, "signal_sent", name=name, by=actor)
    for task in book.tree(token):
        wake(book, task)
    return signal


def _known(book: Book, key: str | None, *, task_id: int | None, token_id: int | None) -> Signal | None:
    """Return the signal that was sent to the same address with the same key."""
    if key is None:
        return None
    sent = (signal for signal in book.signals if signal.key == key)
    return next((each for each in sent if (each.task_id, each.token_id) == (task_id, token_id)), None)


def _check_room(kept: int, where: str) -> None:
    if kept >= limits.SIGNALS_KEPT_MAX:
        raise Refused(
            Code.TOO_MANY_SIGNALS, f"{kept} signals are kept for {where} that nobody waits for; no more are"
        )
