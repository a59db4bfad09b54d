"""Files that somebody names: read whole, or one sentence that says why not."""

from __future__ import annotations

import stat
from pathlib import Path

from stateous_control.cli.exits import Exit, Failure


def read_bytes(file: Path) -> bytes:
    """Read a file. Raises `Failure` (78) with one sentence."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise Failure(Exit.BAD_FILE, f"{file} cannot be read: {error.strerror}") from None


def read_secret(file: Path) -> tuple[str, bool]:
    """Read a file with a secret: its text, and whether others than its owner can read it. Raises `Failure` (78)."""
    try:
        mode = file.stat().st_mode
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Failure(Exit.BAD_FILE, f"{file} cannot be read: {why}") from None
    return text, stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))
