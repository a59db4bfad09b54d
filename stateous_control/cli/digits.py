"""JSON whose numbers are written with the digits that they came with: nobody's 1e21 becomes 1e+21 (BH-041)."""

from __future__ import annotations

import json
from typing import Any, Self


class Digits(float):
    """A number with a point or an exponent, and the text that it came as."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def read(content: bytes) -> Any:
    """Read JSON. Raises ValueError for what is none."""
    return json.loads(content, parse_float=Digits)


def written(value: Any) -> str:
    """Return a value as JSON in one line."""
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
