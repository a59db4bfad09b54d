"""Pipes that somebody prints into, read without waiting, as log lines of an attempt (A-21, A-63)."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Final

from stateous_supervisor.host.failures import clean
from stateous_supervisor.host.streams import LINE_BYTES_MAX
from stateous_supervisor.link.frames import Logged

READ_BYTES: Final = 65_536
DRAIN_READS_MAX: Final = 64


def line_of(owner: tuple[int, int], level: str, line: bytes) -> Logged:
    """Return what an attempt's process wrote as a line of its log."""
    text = clean(line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r"), LINE_BYTES_MAX)
    return Logged(level=level, text=text, task=owner[0], attempt=owner[1])


class OutputPipe:
    """The reading end of a pipe that a routine or its programs write to: bytes in, whole lines out."""

    def __init__(self, descriptor: int, level: str, say: Callable[[str, bytes], None]) -> None:
        self._descriptor = descriptor
        self._level = level
        self._say = say
        self._pending = b""

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool:
        """Read once. False: nobody has the writing end any more."""
        try:
            received = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._pending = (self._pending + received).split(b"\n")
        if len(self._pending) > LINE_BYTES_MAX:
            lines, self._pending = [*lines, self._pending], b""
        for line in lines:
            self._say(self._level, line)
        return bool(received)

    def drain(self) -> None:
        """Read what is there, and say the last line even if it did not end."""
        for _ in range(DRAIN_READS_MAX):
            if not self._has_more() or not self.read():
                break
        if self._pending:
            self._say(self._level, self._pending)
            self._pending = b""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _has_more(self) -> bool:
        with selectors.DefaultSelector() as once:
            once.register(self._descriptor, selectors.EVENT_READ)
            return bool(once.select(0))
