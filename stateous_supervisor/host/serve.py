"""One routine host: link, loop, runner and watch put together. `__main__` runs it as a process, `inline` in a thread.

The order matters: the loop and the link stand before the first line of user code runs, so that nothing which that
code sets (policies, default timeouts, handlers) reaches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

import stateous_supervisor
from stateous_supervisor.host.alias import install_alias, keep_out
from stateous_supervisor.host.discovery import discover
from stateous_supervisor.host.fatal import Fault
from stateous_supervisor.host.fitness import Fitness
from stateous_supervisor.host.isolation import Isolation
from stateous_supervisor.host.link import Link
from stateous_supervisor.host.own_loop import OwnLoop
from stateous_supervisor.host.runner import CANCEL_AGAIN_S, Runner
from stateous_supervisor.host.watch import LoopWatch
from stateous_supervisor.link.frames import (
    LINK_PROTOCOL,
    Drain,
    Hello,
    Loading,
    Logged,
    Pulse,
    Quit,
    Run,
    ToHost,
    Unfit,
)

# How long routines may clean up after `Quit`, and the main thread may take to end after the last routine.
QUIT_S: Final = 2.0

# A loop that ends so often in a row before its first turn will not turn any more.
STUMBLES_MAX: Final = 20

_NEVER: Final = float("inf")

_log = logging.getLogger(__name__)


class Host:
    """Serves one folder over one link.

    Args:
        sock: the host's end of the socket pair.
        folder: the routine folder.
        skip: names of files to leave out.
        on_gone: called in the link's thread when the link ended; it ends the process (or lets the thread end).
        on_fault: called in any thread that cannot go on with the host's own work; it ends the process. None: there is
            nobody to end, the error goes to the log.
        environment: of isolated routines' processes, where the host has its process to itself; None: it is a thread
            of somebody else's, and isolated routines run in it like all others.
        cancel_again_s: how long a cancelled routine may clean up before it is cancelled again.
    """

    def __init__(
        self,
        sock: socket.socket,
        folder: Path,
        *,
        skip: Collection[str] = (),
        on_gone: Callable[[], None],
        on_fault: Fault | None = None,
        environment: Mapping[str, str] | None = None,
        cancel_again_s: float = CANCEL_AGAIN_S,
    ) -> None:
        self.loop = OwnLoop()
        self._folder = folder
        self._skip = skip
        self._on_gone = on_gone
        self.on_fault: Fault = on_fault or _log_fault
        self.link = Link(sock, self.loop, self)
        self._isolation = (
            None
            if environment is None
            else Isolation(folder, skip=skip, environment=environment, speaker=self.link)
        )
        self._runner = Runner(
            self.loop, self.link, cancel_again_s=cancel_again_s, apart=self._isolation, on_fault=self.on_fault
        )
        if self._isolation is not None:
            self._isolation.settle = self._runner.settle
        self._watch = LoopWatch(self.loop, threading.get_ident(), Path(folder).resolve())
        self._fitness: Fitness | None = None
        self._stumbles = 0
        self._is_loaded = False
        self._is_ending = False
        self._is_over = False
        self._end_by = _NEVER
        self._leave_by = _NEVER

    def serve(self) -> None:
        """Load the folder and run what is given, until the agent says that it is enough. In the loop's thread."""
        self.link.start()
        if self._isolation is not None:
            self._isolation.begin()
        self.link.post_now(_hello())
        self._load()
        while not self._is_over:
            # Signal handlers of user code can raise a second time, while the first exception is told.
            with contextlib.suppress(BaseException):
                self._run_loop()

    def end_isolated(self, wait_s: float) -> None:
        """End the processes of isolated routines, and wait for that, at most `wait_s`."""
        if self._isolation is not None:
            self._isolation.close(wait_s)

    def let_go(self) -> None:
        """In a child that user code forked: close what leads to other processes."""
        self.link.let_go()
        if self._isolation is not None:
            self._isolation.let_go()

    def _run_loop(self) -> None:
        self._stumbles += 1
        try:
            self.loop.call_soon(self._turn)
            self.loop.run_forever()
        except (
            BaseException
        ) as error:  # User code's own callbacks and signal handlers may raise anything here.
            if self._stumbles > STUMBLES_MAX:
                self.on_fault(error)
            # A loop that was interrupted while it tidied up believes that it still runs.
            asyncio._set_running_loop(None)  # noqa: SLF001 - there is no other way.
            vars(self.loop)["_thread_id"] = None
            _log.exception("user code raised into the event loop; the host goes on")

    def _turn(self) -> None:
        self._stumbles = 0

    def _load(self) -> None:
        install_alias()
        keep_out([Path(name).stem for name in self._skip])
        found = discover(
            self._folder, skip=self._skip, loading=lambda name: self.link.post_now(Loading(file=name))
        )
        self._runner.routines = found.routines
        if self._isolation is not None:
            gc.collect()
            gc.freeze()
            self._fitness = Fitness(self.loop)
            self._runner.look = self._look_at_end
        self._is_loaded = True
        self.link.post_now(found.loaded())

    # In the link's thread.

    def on_messages(self, messages: list[ToHost]) -> None:
        runs: list[Run] = []
        for message in messages:
            if isinstance(message, Run):
                runs.append(message)
                continue
            if runs:
                self._runner.run(runs)
                runs = []
            self._take(message)
        if runs:
            self._runner.run(runs)

    def on_pulse(self) -> None:
        if not self._is_loaded:
            return  # While a file is imported, silence is what tells the agent that it hangs.
        pulse = Pulse(
            loop_lag_s=round(self._watch.look(), 4),
            running=len(self._runner.running),
            abandoned=len(self._runner.abandoned),
        )
        if self._watch.is_late:
            pulse.stack = self._watch.place()
            pulse.task, pulse.attempt = self._watch.holder(list(self._runner.running.values())) or (
                None,
                None,
            )
        self.link.post(pulse)
        self._look()
        self._runner.look_after()

    def _look(self) -> None:
        """Say it where this host is not fit for more work."""
        if self._fitness is None:
            return
        has_worked, self._runner.has_worked = self._runner.has_worked or bool(self._runner.running), False
        if reason := self._fitness.look_further(has_worked=has_worked):
            self.link.post(Unfit(reason=reason))

    def _look_at_end(self) -> None:
        """In any thread, when a routine ended and before its outcome is said: new work would come right after it."""
        if self._fitness is not None and (reason := self._fitness.look()):
            self.link.post(Unfit(reason=reason))

    def on_tick(self, now: float) -> float:
        due_at = self._runner.tick(now)
        if self._is_ending and not self._is_over and (self._runner.is_idle or now >= self._end_by):
            self._is_over = True
            self._leave_by = now + QUIT_S
            self.loop.call_soon_threadsafe(self.loop.stop)
        if now >= self._leave_by:
            self.link.close()
        return min(due_at, self._leave_by if self._is_over else self._end_by)

    def on_end(self) -> None:
        self._is_over = True
        self._on_gone()

    def _take(self, message: ToHost) -> None:
        if isinstance(message, Drain):
            self._is_ending = True
        elif isinstance(message, Quit):
            self._is_ending = True
            self._end_by = monotonic() + QUIT_S
            self._runner.cancel_all("quit")
        elif isinstance(message, Hello) and message.protocol != LINK_PROTOCOL:
            text = f"the agent speaks link protocol {message.protocol}, this host {LINK_PROTOCOL}"
            self.link.post(Logged(level="error", text=text))
            self.link.close()
        else:
            self._runner.take(message)


def _log_fault(error: BaseException) -> None:
    _log.error("the host cannot go on with its work", exc_info=error)


def _hello() -> Hello:
    return Hello(
        protocol=LINK_PROTOCOL,
        sdk=stateous_supervisor.__version__,
        python=platform.python_version(),
        pid=os.getpid(),
    )
