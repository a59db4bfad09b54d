"""Users' values as JSON text: what is JSON, and a sentence about what is not. Pure.

A control plane refuses what JSON cannot say or PostgreSQL cannot keep, and it would do so after the work is done.
So values are checked here, where they are made (A-17, A-18).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from stateous_contract.limits import BODY_BYTES_MAX, DEPTH_MAX, INTEGER_DIGITS_MAX

# The body, its list of messages and the message around a value count too.
VALUE_DEPTH_MAX: Final = DEPTH_MAX - 4
# The rest is for ids, names and braces of the message around it.
VALUE_BYTES_MAX: Final = BODY_BYTES_MAX - 4_096

_KINDS: Final = "objects with text keys, lists, text, finite numbers, true, false and null"
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_text(value: Any, what: str) -> str:
    """Return `value` as compact JSON. `what` names it in the error, e.g. ``context['title']``.

    Tuples become lists and number keys become text, as everywhere in Python. Raises TypeError for a value that is
    not JSON or that no control plane takes (NaN, infinity, lone surrogates, NUL, nested too deeply).
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} is not JSON: {_why(error)}; JSON has {_KINDS}") from None
    if not text.isascii():
        _check_unicode(text, what)
    if "\\u0000" in text and _NUL.search(text):
        raise TypeError(f"{what} has a NUL character in its text; a control plane keeps any other")
    if text.count("[") + text.count("{") > VALUE_DEPTH_MAX and _depth(text) > VALUE_DEPTH_MAX:
        raise TypeError(f"{what} is nested more than {VALUE_DEPTH_MAX} levels deep, which is the limit")
    return text


def json_size_checked(text: str, what: str) -> bytes:
    """Return `text` as UTF-8. Raises ValueError where it is larger than a control plane takes in one body (A-39)."""
    encoded = text.encode()
    if len(encoded) > VALUE_BYTES_MAX:
        raise ValueError(f"{what} is {len(encoded):,} bytes of JSON; at most {VALUE_BYTES_MAX:,} are allowed")
    return encoded


def read(text: str | bytes) -> Any:
    """Return a fresh Python value of JSON text, so that no caller can change another's copy."""
    return json.loads(text)


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start : error.start + 1]
        raise TypeError(
            f"{what} has the lone surrogate {found!r} in its text, which UTF-8 cannot hold"
        ) from None


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)
    if "Circular" in text:
        return "it contains itself"
    if "Out of range" in text:
        return "it holds NaN or infinity"
    if "digits" in text:
        return f"it holds an integer of more than {INTEGER_DIGITS_MAX} digits"
    return text[:200]


def _depth(text: str) -> int:
    """How deeply objects and lists are nested in valid JSON text."""
    depth = deepest = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest
