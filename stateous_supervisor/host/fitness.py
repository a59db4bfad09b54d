"""Whether this process can still do for the next routine what it did for the last one.

A routine shares the process with all others, and can take from it what each of them needs: functions of Python,
modules, descriptors, memory, threads. Nothing of that ends a process. So what routines need is tried, rather than
compared with what it was: what a library patches for good and still works is nobody's fault.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Final

from stateous_supervisor.host import fatal

_DESCRIPTORS: Final = 8
_MEMORY_BYTES: Final = 16 * 1_048_576
_SWITCH_S: Final = 1.0
# Where many short routines end, a look after each of them would cost a tenth of the rate.
_LOOKS_PER_S: Final = 100.0
_LOOKS_AT_ONCE: Final = 10.0
_now: Final = time.monotonic  # user code may replace it later
_MODULES: Final = ("asyncio", "json", "os", "socket", "sys", "threading", __name__)


class Fitness:
    """Made when the folder is loaded: what is not to be had from the beginning is not missed.

    Args:
        loop: where `async def` routines run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._modules = {name: sys.modules[name] for name in _MODULES if name in sys.modules}
        self._root = _root()
        self._trials = {what: trial for what, trial in _TRIALS.items() if _fault_of(trial) is None}
        self._thread: threading.Thread | None = None
        self._has_run = False
        self._task: asyncio.Task[None] | None = None
        self._fault: str | None = None
        self._looks_left = _LOOKS_AT_ONCE
        self._looked_at = _now()

    def look(self) -> str | None:
        """Return what is wrong, as far as that is to be had without waiting. In a thread that may run user code.

        In a rush most calls return what was found before: at most a hundred a second look anew.
        """
        if self._fault is None and self._may_look():
            self._fault = self._find()
        return self._fault

    def look_further(self, *, has_worked: bool) -> str | None:
        """Return what was found; if routines ran since the last time, look in a thread of its own and on the loop.

        It waits for neither: what they find is returned the next time.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            if not self._has_run:
                self._fault = self._fault or "threads that are started end before they run"
        if self._thread is None and has_worked and self._fault is None:
            self._begin()
        return self._fault

    def _may_look(self) -> bool:
        now = _now()
        self._looks_left += (now - self._looked_at) * _LOOKS_PER_S
        self._looks_left, self._looked_at = min(_LOOKS_AT_ONCE, self._looks_left), now
        if self._looks_left < 1:
            return False
        self._looks_left -= 1
        return True

    def _find(self) -> str | None:
        if fault := fatal.replaced():
            return fault
        if names := [name for name, module in self._modules.items() if sys.modules.get(name) is not module]:
            return f"a routine took {', '.join(names)} out of sys.modules"
        if self._root != _root():
            return "a routine changed the root of the file system (os.chroot)"
        faults = ((what, _fault_of(trial)) for what, trial in self._trials.items())
        return next((f"{what}: {fault}" for what, fault in faults if fault is not None), None)

    def _begin(self) -> None:
        self._has_run = False
        thread = threading.Thread(target=self._run, name="fitness", daemon=True)
        try:
            thread.start()
        except Exception as error:
            self._fault = f"no thread can be started: {_sentence(error)}"
        else:
            self._thread = thread
        self._loop.call_soon_threadsafe(self._begin_on_loop)

    def _run(self) -> None:
        self._has_run = True
        self.look()

    def _begin_on_loop(self) -> None:
        self._task = asyncio.Task(self._sleep(), loop=self._loop)

    async def _sleep(self) -> None:
        try:
            await asyncio.sleep(0.001)
        except Exception as error:  # A cancel is no fault: routines may cancel whatever runs.
            self._fault = self._fault or f"asyncio does not work: {_sentence(error)}"


def _import() -> None:
    import json  # noqa: F401 - it is the import that is tried.


def _open_descriptors() -> None:
    opened = [*os.pipe()]
    try:
        opened.extend(os.dup(opened[0]) for _ in range(_DESCRIPTORS - 2))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _take_memory() -> None:
    mmap(-1, _MEMORY_BYTES).close()


def _write_file() -> None:
    if sys.platform != "linux":
        return
    file = os.memfd_create("fitness")
    try:
        os.write(file, b"\0")
    finally:
        os.close(file)


def _switch() -> None:
    if sys.getswitchinterval() > _SWITCH_S:
        raise RuntimeError(f"threads take turns of {sys.getswitchinterval():g} s (sys.setswitchinterval)")


def _recurse(depth: int = 50) -> None:
    if depth:
        _recurse(depth - 1)


_TRIALS: Final = {
    "nothing can be imported": _import,
    "no descriptors can be opened": _open_descriptors,
    "no memory can be had": _take_memory,
    "no file can be written": _write_file,
    "threads do not take turns": _switch,
    "functions cannot call each other": _recurse,
}


def _root() -> tuple[int, int]:
    found = Path("/").stat()
    return found.st_dev, found.st_ino


def _fault_of(trial: Callable[[], None]) -> str | None:
    try:
        trial()
    except Exception as error:
        return _sentence(error)
    return None


def _sentence(error: BaseException) -> str:
    # The text of an exception that is not Python's own is user code.
    kind = type(error)
    return f"{kind.__name__}: {error}" if kind.__module__ == "builtins" else kind.__name__
