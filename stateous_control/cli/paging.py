"""What the commands over lists have in common: the query, who acts, and plain words for what a page withheld."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Any

from stateous_control.cli.screen import clean, remark


def asked(**wanted: object) -> dict[str, str]:
    """Return a query without what was not asked for."""
    return {name: str(value) for name, value in wanted.items() if value is not None}


def withheld(page: Mapping[str, Any]) -> None:
    """Say how much of a list was shown, and how to get the rest. Nothing where it was all."""
    if not page["truncated"]:
        return
    remark(f"showing {page['returned_count']:,} of {page['total_count']:,}")
    if page.get("cursor"):
        remark(f"the next ones: --cursor {clean(page['cursor'])}")


def actor() -> str | None:
    """Return who sits here, for the record; where keys are asked for the key's name stands in its place."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
    return name[:128] if name.isprintable() and name else None
