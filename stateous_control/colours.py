"""Whether escape codes are wanted: by the log and by the commands."""

from __future__ import annotations

from collections.abc import Mapping


def has_colours(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Say whether to colour: on a terminal that can, where ``NO_COLOR`` is not set, or empty (no-color.org)."""
    return is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
