"""Watches the host's event loop from outside it: how late it is, and where it hangs (A-22)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

from stateous_supervisor.host.attempt import Attempt
from stateous_supervisor.host.streams import current

# A loop that is later than this is shown with the line where it hangs.
LATE_S: Final = 0.9


class LoopWatch:
    """`look` is called twice a second by the link's thread; `loop_thread` is the thread that the loop runs in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, loop_thread: int, folder: Path) -> None:
        self._loop = loop
        self._loop_thread = loop_thread
        self._folder = str(folder) + "/"
        self._asked_at: float | None = None
        self._lag_s = 0.0
        self.is_late = False

    def look(self) -> float:
        """Return how late the loop is, in seconds, and ask it again. `is_late` says that it hangs right now."""
        now = monotonic()
        self.is_late = self._asked_at is not None and now - self._asked_at > LATE_S
        if self._asked_at is not None:
            return now - self._asked_at
        self._asked_at = now
        self._loop.call_soon_threadsafe(self._answer, now)
        return self._lag_s

    def place(self) -> str | None:
        """Return file, line and function of the innermost frame in the folder, else of the innermost one."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to see another thread.
        found = frame
        while frame is not None and not frame.f_code.co_filename.startswith(self._folder):
            frame = frame.f_back
        found = frame or found
        return None if found is None else _shown(found, self._folder)

    def holder(self, running: Iterable[Attempt]) -> tuple[int, int] | None:
        """Return task and attempt of the routine that the loop is in, one of `running` if it can be seen."""
        task = asyncio.current_task(self._loop)
        context = getattr(task, "get_context", None)  # From Python 3.12 on; also sees a routine's own tasks.
        if context is not None:
            owner: tuple[int, int] | None = context().get(current)
            return owner
        found = (attempt for attempt in running if task is not None and attempt.future is task)
        return next(((attempt.task, attempt.attempt) for attempt in found), None)

    def _answer(self, asked_at: float) -> None:
        self._lag_s = monotonic() - asked_at
        self._asked_at = None


def _shown(frame: FrameType, folder: str) -> str:
    file = frame.f_code.co_filename.removeprefix(folder)
    return f"{file}:{frame.f_lineno} ({frame.f_code.co_name})"
