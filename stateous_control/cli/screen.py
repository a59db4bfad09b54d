"""What people and scripts read: data on stdout, everything else on stderr.

Nothing that came from elsewhere reaches a terminal with its control characters: a note must not move a cursor.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from stateous_control.cli.digits import written
from stateous_control.colours import has_colours

# C0, DEL, C1, and the marks that reorder text.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "faint": "2", "bold": "1"}


def clean(text: object) -> str:
    """Return text that is safe to show in one line."""
    return _UNSAFE.sub(" ", str(text)).strip()


def say(line: str) -> None:
    """Print a line of data."""
    print(line, flush=sys.stdout.isatty())


def remark(line: str) -> None:
    """Tell a person something beside the data."""
    print(line, file=sys.stderr, flush=True)


def document(value: Any) -> None:
    """Print one JSON document."""
    import msgspec

    print(value if isinstance(value, str) else msgspec.json.format(written(value)), flush=True)


def line(value: Any) -> None:
    """Print one JSON document in one line."""
    print(written(value), flush=True)


def open_what_is_closed() -> None:
    """Let a standard stream that a shell closed (``>&-``) lead nowhere, and its descriptor be no file of ours."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    # Without them a remark would be printed among the data.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def buffer_stdout() -> None:
    """Have stdout keep what it could not write, for whoever flushes it; with PYTHONUNBUFFERED it would forget it."""
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        encoding = sys.stdout.encoding
        sys.stdout = open(1, "w", buffering=1, encoding=encoding, closefd=False)  # noqa: SIM115


def leave_stdout() -> None:
    """Let stdout lead nowhere: it takes nothing, and the interpreter would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_colourful() -> bool:
    """Say whether stdout is a terminal that shows colours, and nobody asked for none."""
    return has_colours(os.environ, is_terminal=sys.stdout.isatty())


def coloured(text: str, colour: str | None) -> str:
    """Return `text` in a colour where stdout shows colours."""
    if colour is None or not is_colourful():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with columns as wide as they need to be. The last one is never padded."""
    cells = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for number, row in enumerate(cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(padded).rstrip()
        say(coloured(line, "bold") if number == 0 else line)
