"""Events that arrive while their token is paused: held in order of arrival, applied or dropped at the resume (B.5)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.codes import Refused
from stateous_contract.messages import Schedule
from stateous_contract.states import TokenStatus

from stateous_control.graph.document import OWN_EVENTS
from stateous_control.graph.routing import Unrouted
from stateous_control.rules.book import Book, Held, Task, Token
from stateous_control.rules.children import choose
from stateous_control.rules.moves import fail_token, move
from stateous_control.rules.writes import Writes, apply_writes, check_writes

_SCHEDULES: Final = msgspec.json.Decoder(list[Schedule])


def hold(
    book: Book,
    token: Token,
    event: str,
    payload: Raw | None,
    *,
    task: Task | None = None,
    writes: Writes | None = None,
    error: str | None = None,
) -> None:
    """Keep an event for the resume.

    `task` is the one whose outcome it is; without one the event came from outside and may apply to any visit. `writes`
    is what that outcome saves, unsaved until then; `error` the text of a failed attempt, for ``error`` only.
    """
    held = Held(
        id=None,
        token_id=token.id,
        arrival=1 + max((other.arrival for other in _of_family(book, book.root(token))), default=0),
        event=event,
        payload=payload,
        error=error,
        is_new=True,
    )
    data: dict[str, Any] = {"event": event, "payload": payload}
    if task is not None:
        held.task_id, held.state, held.visit = task.id, token.state, token.visit
        data |= {"state": token.state, "visit": token.visit, "task": task.id}
    data["arrival"] = held.arrival
    if writes is not None and writes.values:
        held.context = data["context"] = Raw(msgspec.json.encode(writes.values))
    if writes is not None and writes.schedules:
        held.schedules = data["schedules"] = Raw(msgspec.json.encode(writes.schedules))
    book.add_held(held)
    book.log(token, "event_deferred", **data)


def apply_held(book: Book, token: Token) -> None:
    """Let everything that was held for the family have its effect, in order of arrival.

    Each event meets its token as it is when its turn comes; one that was dropped meanwhile has none.
    """
    for held in sorted(_of_family(book, token), key=lambda held: held.arrival):
        if not held.is_deleted:
            held.is_deleted = True
            _replay(book, book.tokens[held.token_id], held)


def _of_family(book: Book, token: Token) -> list[Held]:
    return [held for member in book.family(token) for held in book.held_of(member)]


def _replay(book: Book, token: Token, held: Held) -> None:
    try:
        writes = _still_fits(book, token, held)
        found = choose(book, token, held.event, held.payload, context=writes.merged)
    except _Dropped as dropped:
        book.log(token, "event_dropped", event=held.event, reason=dropped.reason)
        return
    if isinstance(found, Unrouted):
        book.log(token, "event_dropped", event=held.event, reason=found.sentence)
        # What says why an attempt or a task ended must not be lost: the token has no other task.
        if found.is_ambiguous or held.event in OWN_EVENTS or held.error is not None:
            fail_token(book, token, found.sentence)
        return
    book.log(token, "event_replayed", event=held.event)
    apply_writes(book, token, writes)
    move(book, token, found, held.payload, error=held.error)


class _Dropped(Exception):
    """A held event fits no more."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _still_fits(book: Book, token: Token, held: Held) -> Writes:
    if token.status is not TokenStatus.ACTIVE:
        raise _Dropped(f"the token is {token.status.value} by now")
    if held.task_id is not None and (held.state, held.visit) != (token.state, token.visit):
        raise _Dropped(f"the token has left visit {held.visit} of {held.state!r}")
    schedules = _SCHEDULES.decode(held.schedules) if held.schedules is not None else ()
    try:
        return check_writes(book.machine(token), token, held.context, schedules)
    except Refused as refused:
        raise _Dropped(refused.sentence) from None
