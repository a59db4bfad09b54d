"""The strict door for JSON from outside: everything is checked here before anything stores or decodes it.

What passes is UTF-8, at most `DEPTH_MAX` deep, and holds no NaN, NUL, lone surrogate or integer that
takes minutes to read; so it can be kept as text, stored in PostgreSQL and read by any JSON parser. Both rooms
use it. It never changes a value: numbers, key order and spelling stay. Of duplicate keys the last one wins.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from stateous_contract.limits import DEPTH_MAX, INTEGER_DIGITS_MAX

_decode = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode

_STRING_OR_OTHER = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"\[\]{}]+', re.DOTALL)
_NEITHER = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
# An even number of backslashes before it are pairs that stand for themselves.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SPACE: Final = b" \t\n\r"


class Malformed(ValueError):
    """Text that this wire does not take as JSON. The text of the exception is one plain sentence."""


class NotAnObject(Malformed):
    """JSON, but not an object where one is needed."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The top-level fields of an object, each as the text it came as.

    `is_finite` is False when a number in it is too large for a float (``1e999``): `is_finite` finds it.
    """

    values: dict[str, Raw]
    is_finite: bool = True


def read_object(body: bytes) -> Fields:
    """Check `body` and return its top-level fields; an empty body stands for ``{}``.

    Raises:
        Malformed: it is not JSON that the wire takes.
        NotAnObject: it is, but no object.
    """
    text, is_finite = read(body)
    try:
        return Fields(_decode_fields(text), is_finite)
    except msgspec.ValidationError:
        raise NotAnObject("the body must be a JSON object") from None


def read(body: bytes) -> tuple[bytes, bool]:
    """Check JSON text and return it in UTF-8, and whether all its numbers are finite.

    UTF-8, UTF-16 and UTF-32 are taken, with or without a byte order mark. Empty text stands for ``{}``.

    Raises:
        Malformed: it is not JSON that the wire takes.
    """
    text = body if body[:1] == b"{" and b"\0" not in body else _to_utf8(body)
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX:
        _check_depth(text)
    if b"\\u0000" in text and _NUL.search(text):
        raise Malformed("the text has a NUL character, which cannot be stored")
    try:
        _decode(text)
    except msgspec.ValidationError:
        return text, _check_numbers(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"this is not JSON: {_plain(error)}") from None
    return text, True


def is_finite(text: bytes | Raw) -> bool:
    """Say whether every number of a checked JSON text fits a float."""
    try:
        _decode(text)
    except msgspec.ValidationError:
        return False
    return True


def _to_utf8(body: bytes) -> bytes:
    encoding = json.detect_encoding(body)
    try:
        text = body.decode(encoding).encode()
    except UnicodeDecodeError:
        raise Malformed(f"this is not {encoding.upper()} text") from None
    return text if text.strip(_SPACE) else b"{}"


def _check_depth(text: bytes) -> None:
    if (
        b"\\" not in text
    ):  # then a quote is a quote, and what is neither that nor a bracket can go first, faster
        text = text.translate(None, _NEITHER)
    brackets = _STRING_OR_OTHER.sub(b"", text).translate(_STEPS)
    steps = memoryview(brackets).cast("b")
    if any(depth > DEPTH_MAX for depth in itertools.accumulate(steps)):
        raise Malformed(f"it is nested more than {DEPTH_MAX} levels deep")


def _check_numbers(text: bytes) -> bool:
    """Look at every number, because one of them is out of range; return whether all floats are finite."""
    overflows: list[str] = []

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > INTEGER_DIGITS_MAX:
            raise Malformed(f"it has an integer of more than {INTEGER_DIGITS_MAX} digits")
        return 0

    def fraction(digits: str) -> float:
        if float(digits) in (float("inf"), float("-inf")):
            overflows.append(digits)
        return 0.0

    json.loads(text, parse_int=integer, parse_float=fraction)
    return not overflows


def _plain(error: Exception) -> str:
    said = str(error).removeprefix("JSON is malformed: ")
    return "it is nested too deeply" if isinstance(error, RecursionError) else said[0].lower() + said[1:]
