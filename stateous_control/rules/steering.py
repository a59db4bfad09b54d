"""What people do to a token: fire an event, pause, resume, cancel (A.2, B.5). Every refusal changes nothing."""

from __future__ import annotations

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.states import TokenStatus

from stateous_control.graph.document import OWN_EVENTS
from stateous_control.graph.routing import Unrouted
from stateous_control.graph.schema import check_payload
from stateous_control.rules.book import Book, Token
from stateous_control.rules.children import choose
from stateous_control.rules.deferring import apply_held, hold
from stateous_control.rules.moves import cancel_token, drop_held, fail_token, move
from stateous_control.rules.pausing import keep_back, let_go
from stateous_control.rules.rejections import reject


def fire(book: Book, token: Token, event: str, payload: Raw | None, *, key: str | None = None) -> bool:
    """Fire an event from outside, and say whether `key` was used before: then nothing at all is done.

    `payload` is an object, None for none. A key is used up by an event that is accepted or held. Raises Refused:
    TOKEN_NOT_ACTIVE and EVENT_NOT_ALLOWED, which leave a line, and INVALID_PAYLOAD, which does not.
    """
    if key is not None and (token.id, key) in book.keys_used:
        return True
    _check_event(book, token, event, payload)
    if token.status is TokenStatus.PAUSED:
        hold(book, token, event, payload)
    else:
        _route(book, token, event, payload)
    if key is not None:
        book.keys_used.add((token.id, key))
        book.keys_new.append((token.id, key))
    return False


def _check_event(book: Book, token: Token, event: str, payload: Raw | None) -> None:
    machine = book.machine(token)
    if token.status.is_final:
        reason = f"{token.name!r} is {token.status.value}, so no event can move it"
        reject(book, token, event, reason, code=Code.TOKEN_NOT_ACTIVE)
    if event in OWN_EVENTS:
        reject(book, token, event, f"{event!r} is an event that only the control plane itself makes")
    if event not in machine.events:
        reject(book, token, event, f"{machine.name!r} declares no event {event!r}")
    check_payload(machine, event, payload)


def _route(book: Book, token: Token, event: str, payload: Raw | None) -> None:
    found = choose(book, token, event, payload)
    if not isinstance(found, Unrouted):
        move(book, token, found, payload)
    elif found.is_ambiguous:
        fail_token(book, token, found.sentence)
    else:
        reject(book, token, event, found.sentence)


def pause(book: Book, token: Token) -> None:
    """Hold the token and its children where they are: no event moves them, no timer fires, no task is handed out.

    S3-08, S3-78. Claimed work goes on. Raises Refused: CHILD_TOKEN, TOKEN_NOT_ACTIVE.
    """
    check_steerable(token, "paused")
    if token.status is not TokenStatus.ACTIVE:
        _refuse(token, "paused", "an active")
    for member in book.family(token):
        if member.status is TokenStatus.ACTIVE:
            _pause(book, member)


def _pause(book: Book, token: Token) -> None:
    token.status, token.paused_at = TokenStatus.PAUSED, book.now
    book.log(token, "paused")
    for task in book.tree(token):
        keep_back(task)
        task.generation += 1
        task.record("pause_requested", by="token")


def resume(book: Book, token: Token) -> None:
    """Let the token and its children go on: timers get the pause back, tasks their place, held events their turn.

    Raises Refused: CHILD_TOKEN, TOKEN_NOT_ACTIVE.
    """
    check_steerable(token, "resumed")
    if token.status is not TokenStatus.PAUSED:
        _refuse(token, "resumed", "a paused")
    for member in book.family(token):
        if member.status is TokenStatus.PAUSED:
            _resume(book, member)
    apply_held(book, token)


def _resume(book: Book, token: Token) -> None:
    paused_at = token.paused_at
    assert paused_at is not None
    for timer in book.timers_of(token):
        timer.due_at += book.now - max(paused_at, timer.set_at)
        timer.is_changed = True
    token.status, token.paused_at = TokenStatus.ACTIVE, None
    book.log(token, "resumed")
    for task in book.tree(token):
        let_go(book, token, task)


def cancel(book: Book, token: Token) -> None:
    """End the token for good, with its children, task, timers, memory and everything that was held.

    Raises Refused: CHILD_TOKEN, TOKEN_NOT_ACTIVE.
    """
    check_steerable(token, "cancelled")
    if token.status.is_final:
        _refuse(token, "cancelled", "an active or a paused")
    drop_held(book, token, "the token is cancelled")
    cancel_token(book, token)


def check_steerable(token: Token, what: str) -> None:
    """Raise Refused(CHILD_TOKEN) for a token that is a part of another; `what` would be done to it."""
    if token.parent is not None:
        sentence = f"{token.name!r} is part of {token.parent!r} and is {what} with it, never alone"
        raise Refused(Code.CHILD_TOKEN, sentence)


def _refuse(token: Token, what: str, which: str) -> None:
    sentence = f"{token.name!r} is {token.status.value}; {which} token can be {what}"
    raise Refused(Code.TOKEN_NOT_ACTIVE, sentence)
