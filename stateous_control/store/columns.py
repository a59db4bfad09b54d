"""Values as statements take them and as rows hold them: rows turned into arrays, users' JSON as text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Raw


def columns(rows: Collection[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Return rows as `width` arrays, which a statement unnests."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def raw_of(text: str | None) -> Raw | None:
    """Return JSON text of a row as rules hold it; None is NULL."""
    return None if text is None else Raw(text.encode())


def text_of(value: Raw | None) -> str | None:
    """Return JSON as a row keeps it; None is NULL."""
    return None if value is None else bytes(value).decode()
