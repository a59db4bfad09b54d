"""Users' JSON values on their way from text to something a guard or a schema can look at.

Text stays text until somebody has to look inside; the standard json module reads it, so that integers
of any length and the difference between 1 and 1.0 survive. The door checked depth, finiteness and Unicode before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Raw

_decode = json.JSONDecoder().decode


def decode(value: Any) -> Any:
    """Return the value that a `Raw` text stands for; anything else is a value already."""
    return _decode(str(value, "utf-8")) if isinstance(value, Raw) else value


def decode_keys(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Decode those of `keys` that `values` has."""
    return {key: decode(values[key]) for key in keys if key in values}


def decode_all(values: Mapping[str, Any]) -> dict[str, Any]:
    """Decode every value of an object."""
    return {key: decode(value) for key, value in values.items()}


def encode(value: Any) -> Raw:
    """Write a decoded value as compact JSON text."""
    return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())
