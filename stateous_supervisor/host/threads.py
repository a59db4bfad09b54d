"""Daemon threads for `def` routines. A thread runs one routine at a time and is kept a while for the next one.

Making a thread costs four times what handing over to a waiting one does. A thread whose routine never returns is
simply never seen again; nothing waits for any of them at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import Final

IDLE_S: Final = 10.0
IDLE_MAX: Final = 128


class Threads:
    """Starts jobs in threads. `start` is called by one thread only."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle: list[_Worker] = []
        self._idle_s = idle_s

    def start(self, job: Callable[[], None]) -> threading.Thread | None:
        """Run `job` in a thread that runs nothing else meanwhile, in a `contextvars` context of its own.

        Returns the thread where it is a new one: user code can have it end before it runs anything.
        """
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self._idle, self._idle_s)
            worker.job = job
            thread = threading.Thread(target=worker.work, name="routine", daemon=True)
            thread.start()
            return thread
        worker.job = job
        worker.given.release()
        return None


class _Worker:
    def __init__(self, idle: list[_Worker], idle_s: float) -> None:
        self.job: Callable[[], None] | None = None
        self.given = threading.Lock()
        self.given.acquire()
        self._idle = idle
        self._idle_s = idle_s

    def work(self) -> None:
        while self.job is not None:
            Context().run(self.job)
            self.job = None
            if len(self._idle) >= IDLE_MAX:
                return
            self._idle.append(self)
            if not self.given.acquire(timeout=self._idle_s):
                self._leave()

    def _leave(self) -> None:
        """Go, unless a job is just being handed over."""
        try:
            self._idle.remove(self)
        except ValueError:
            self.given.acquire()
