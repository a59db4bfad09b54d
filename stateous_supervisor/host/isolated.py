"""The process of one isolated routine: the same runner as the host's, for one attempt, over a link of its own.

`def` routines run in the main thread, `async def` on a loop in it. The link's thread sends what they say, and ends
the process when the host is gone. Called in a fresh fork by the keeper; it never returns.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import io
import os
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Final, NoReturn

from stateous_supervisor.host import fatal, shelter
from stateous_supervisor.host.discovery import Routine, Served
from stateous_supervisor.host.link import Link
from stateous_supervisor.host.own_loop import OwnLoop
from stateous_supervisor.host.runner import Runner
from stateous_supervisor.link.frames import FAULT_CODE, Run, ToHost

# How long handlers of `atexit` may take after the routine's end.
LEAVE_S: Final = 2.0

_NEVER: Final = float("inf")


def run(link: int, routines: Mapping[Served, Routine]) -> NoReturn:
    """Serve one attempt over the descriptor `link` and end the process."""
    sock = socket.socket(fileno=link)
    sock.set_inheritable(False)
    _forget_import()
    _open_streams()
    faulthandler.enable(file=2, all_threads=True)
    alone = _Alone(sock, routines)
    shelter.at_fork(alone.let_go)
    alone.serve()


class _Alone:
    """One attempt: the owner of its link, and the main thread as the runner's only thread."""

    def __init__(self, sock: socket.socket, routines: Mapping[Served, Routine]) -> None:
        self._loop = OwnLoop()
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.link = Link(sock, None, self)
        self._runner = Runner(self._loop, self.link, main=self, on_fault=self.on_fault)
        self._runner.routines = dict(routines)
        self._has_begun = False
        self._leave_by = _NEVER

    def serve(self) -> NoReturn:
        with fatal.Guard(self.on_fault):
            self._serve()
        os._exit(FAULT_CODE)

    def _serve(self) -> NoReturn:
        self.link.start()
        with contextlib.suppress(BaseException):  # A signal handler of user code may raise anywhere in here.
            self._jobs.get()()
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - a normal exit would also wait for threads that may never end.
        _flush()
        self.link.close()
        while True:
            with contextlib.suppress(BaseException):
                self._jobs.get()

    def start(self, job: Callable[[], None]) -> None:
        """Run a `def` routine in the main thread."""
        self._jobs.put(job)

    def let_go(self) -> None:
        """In a child that user code forked: say nothing, and take SIGTERM as any process does."""
        self.link.let_go()
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _run_loop(self) -> None:
        # An `async def` routine is cancelled by the signal that ends a `def` one, so that it can clean up.
        signal.signal(signal.SIGTERM, self._on_sigterm)
        while not self._runner.is_idle:
            try:
                self._loop.run_forever()
            except BaseException:  # User code's callbacks and handlers may raise anything into the loop.
                asyncio._set_running_loop(None)  # noqa: SLF001 - there is no other way.
                vars(self._loop)["_thread_id"] = None
                sys.excepthook(*sys.exc_info())

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        self._runner.cancel_all("SIGTERM")

    # In the link's thread.

    def on_messages(self, messages: list[ToHost]) -> None:
        for message in messages:
            if isinstance(message, Run):
                self._runner.run([message])
                self._has_begun = True
                running = list(self._runner.running.values())
                if not running:
                    self._jobs.put(_nothing)
                elif running[0].routine.is_async:
                    self._jobs.put(self._run_loop)
            else:
                self._runner.take(message)

    def on_pulse(self) -> None:
        self._runner.look_after()

    def on_tick(self, now: float) -> float:
        due_at = self._runner.tick(now)
        if self._has_begun and self._runner.is_idle and self._leave_by == _NEVER:
            self._leave_by = now + LEAVE_S
            self._loop.call_soon_threadsafe(self._loop.stop)
        if now >= self._leave_by:
            self.link.close()
        return min(due_at, self._leave_by)

    def on_end(self) -> None:
        with fatal.Guard(self.on_fault):
            _flush()
            os._exit(0)

    def on_fault(self, error: BaseException) -> None:
        fatal.end(error)


def _forget_import() -> None:
    """Forget what importing the folder left for the nursery's own end: it is not this process's to do."""
    atexit._clear()  # noqa: SLF001 - the same as after a fork of multiprocessing.
    finalize: Any = weakref.finalize
    finalize._registry.clear()  # noqa: SLF001
    finalize._registered_with_atexit = False  # noqa: SLF001


def _open_streams() -> None:
    """Have `print` write whole lines to this process's own pipes at once, so that a crash loses none."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(descriptor, "w", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _nothing() -> None:
    """Stand in for a routine that was refused."""


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
