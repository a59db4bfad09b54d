"""Events that are refused: the history keeps a line, though nothing else changes.

A token that has ended moves no more, but a client may fire at it for ever: its history keeps the first lines only.
"""

from __future__ import annotations

from typing import Final, NoReturn

from stateous_contract.codes import Code, Refused

from stateous_control.rules.book import Book, Token

EVENT_CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 1_000
LATE_LINES_MAX: Final = 100


def reject(
    book: Book, token: Token, event: str, reason: str, *, code: Code = Code.EVENT_NOT_ALLOWED
) -> NoReturn:
    """Leave a line ``event_rejected`` and raise Refused with `code`; of an ended token only the first ones do."""
    if not token.status.is_final:
        log_rejected(book, token, event, reason)
    elif token.late_events < LATE_LINES_MAX:
        token.late_events += 1
        is_last = token.late_events == LATE_LINES_MAX
        log_rejected(
            book, token, event, f"{reason}; what is refused from now on leaves no line" if is_last else reason
        )
    raise Refused(code, reason[:REASON_CHARS_MAX])


def log_rejected(book: Book, token: Token, event: str, reason: str) -> None:
    """Leave a line ``event_rejected``; a client's text is cut, so that nobody fills a history with one name."""
    book.log(token, "event_rejected", event=event[:EVENT_CHARS_MAX], reason=reason[:REASON_CHARS_MAX])
