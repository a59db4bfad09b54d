"""What routines print, as log lines of their task (A-21).

`sys.stdout` and `sys.stderr` are replaced; descriptors 1 and 2 stay the pipes that the agent gave, so that what
subprocesses and C code write never comes near the link.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from stateous_supervisor.host.failures import clean
from stateous_supervisor.link.frames import Logged

LINE_BYTES_MAX: Final = 16_384
OPEN_LINES_MAX: Final = 4_096

# The task and attempt that the running code belongs to. Tasks of a routine and `asyncio.to_thread` inherit it; threads
# that it starts by itself do not.
current: Final[ContextVar[tuple[int, int] | None]] = ContextVar("stateous_attempt", default=None)

Say = Callable[[Logged], None]

Ended = Callable[[tuple[int, int]], None]

_ended: Final[list[Ended]] = []


def install(say: Say) -> None:
    """Replace the streams of this process: what is printed is said."""
    sys.stdout = LineStream(say, "info", 1)
    sys.stderr = LineStream(say, "warning", 2)
    _ended[:] = [sys.stdout.end_line, sys.stderr.end_line]
    logging.lastResort = LogLines(say)


def uninstall() -> None:
    """Give the process its own streams back: a forked child has nobody to say anything to.

    They write line by line, also where Python runs unbuffered: lines of several children do not run into each other.
    """
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    _ended.clear()


def at_end(ended: Ended) -> None:
    """Call `ended` too when an attempt ends, before its outcome is said."""
    _ended.append(ended)


def end_lines(owner: tuple[int, int]) -> None:
    """Say the last lines of an attempt that did not end them."""
    for ended in _ended:
        ended(owner)


class LineStream(io.TextIOBase):
    """A text stream that turns each line into a `Logged` frame. It cannot be closed."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, say: Say, level: str, descriptor: int) -> None:
        self._say = say
        self._level = level
        self._descriptor = descriptor
        self._open: dict[tuple[int, int] | None, str] = {}
        self.buffer = _Bytes(self)

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        owner = current.get()
        pending = self._open.pop(owner, "") + text
        if "\n" not in pending and len(pending) < LINE_BYTES_MAX and len(self._open) < OPEN_LINES_MAX:
            self._open[owner] = pending
            return len(text)
        *lines, rest = pending.split("\n")
        if len(rest) >= LINE_BYTES_MAX or len(self._open) >= OPEN_LINES_MAX:
            lines, rest = [*lines, rest], ""
        for line in lines:
            self._say_line(owner, line)
        if rest:
            self._open[owner] = rest
        return len(text)

    def flush(self) -> None:
        """Say nothing yet: a line is whole when it ends."""

    def end_line(self, owner: tuple[int, int]) -> None:
        """Say the last line of an attempt that did not end it."""
        if self._open:
            rest = self._open.pop(owner, "")
            if rest:
                self._say_line(owner, rest)

    def close(self) -> None:
        """Stay open: another routine prints too (A-47)."""

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def reconfigure(self, **_options: Any) -> None:
        """Take what `io.TextIOWrapper` takes, and change nothing."""

    def _say_line(self, owner: tuple[int, int] | None, line: str) -> None:
        text = clean(line.rstrip("\r"), LINE_BYTES_MAX)
        task, attempt = owner or (None, None)
        self._say(Logged(level=self._level, text=text, task=task, attempt=attempt))


class _Bytes(io.RawIOBase):
    """``sys.stdout.buffer``."""

    def __init__(self, text: LineStream) -> None:
        self._text = text

    def write(self, given: Any, /) -> int:
        encoded = bytes(given)
        self._text.write(encoded.decode("utf-8", "backslashreplace"))
        return len(encoded)

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Stay open, as the text stream does."""


class LogLines(logging.Handler):
    """Takes what is logged where nobody configured logging. Python would write it to stderr without its level."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        task, attempt = current.get() or (None, None)
        level = record.levelname.lower()
        self._say(Logged(level=level, text=clean(text, LINE_BYTES_MAX), task=task, attempt=attempt))
