"""Timers that are due: a state's own timeout, or what a routine asked for (B.4). Each fires once."""

from __future__ import annotations

from stateous_contract.states import TokenStatus

from stateous_control.graph.document import TIMEOUT
from stateous_control.graph.routing import Unrouted
from stateous_control.rules.book import Book, Timer, Token
from stateous_control.rules.children import choose
from stateous_control.rules.moves import fail_token, move, raise_own_event
from stateous_control.rules.rejections import log_rejected


def fire_timer(book: Book, timer: Timer) -> bool:
    """Fire the timer if it is due and its token is active, and say whether it was. A paused token's timers stand still.

    A timeout that leads nowhere fails the token; a routine's timer that leads nowhere only leaves a line.
    """
    token = book.tokens[timer.token_id]
    if timer.is_deleted or timer.due_at > book.now or token.status is not TokenStatus.ACTIVE:
        return False
    timer.is_deleted = True
    book.log(token, "timer_fired", event=timer.event)
    if timer.kind == "timeout":
        raise_own_event(book, token, TIMEOUT)
    else:
        _fire_routine_timer(book, token, timer)
    return True


def _fire_routine_timer(book: Book, token: Token, timer: Timer) -> None:
    found = choose(book, token, timer.event, timer.payload)
    if not isinstance(found, Unrouted):
        move(book, token, found, timer.payload)
    elif found.is_ambiguous:
        fail_token(book, token, found.sentence)
    else:
        log_rejected(book, token, timer.event, found.sentence)
