"""Cursors of lists: the id that a page ended on, as a text that only its own list takes. Pure."""

from __future__ import annotations

import base64
import re

from stateous_contract.codes import Code, Refused


def write_cursor(mark: str, last_id: int) -> str:
    """Return the cursor of a page that ended on `last_id`; `mark` names the list."""
    return base64.urlsafe_b64encode(f"{mark}{last_id}".encode()).decode().rstrip("=")


def read_cursor(mark: str, cursor: str) -> int:
    """Return the id that a page of this list ended on. Raises `Refused` for what is no cursor of it."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (ValueError, UnicodeError):
        text = ""
    digits = text.removeprefix(mark)
    if text == digits or not re.fullmatch(r"[0-9]{1,18}", digits, re.ASCII):
        raise Refused(Code.INVALID_ARGUMENT, "'cursor' is none that this list has given")
    return int(digits)
