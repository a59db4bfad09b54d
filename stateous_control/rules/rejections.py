"""Events that are refused: the history keeps a line, though nothing else changes."""

from __future__ import annotations

from typing import Final, NoReturn

from stateous_contract.codes import Code, Refused

from stateous_control.rules.book import Book, Token

EVENT_CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 1_000


def reject(
    book: Book, token: Token, event: str, reason: str, *, code: Code = Code.EVENT_NOT_ALLOWED
) -> NoReturn:
    """Leave a line ``event_rejected`` and raise Refused with `code`."""
    log_rejected(book, token, event, reason)
    raise Refused(code, reason[:REASON_CHARS_MAX])


def log_rejected(book: Book, token: Token, event: str, reason: str) -> None:
    """Leave a line ``event_rejected``; a client's text is cut, so that nobody fills a history with one name."""
    book.log(token, "event_rejected", event=event[:EVENT_CHARS_MAX], reason=reason[:REASON_CHARS_MAX])
