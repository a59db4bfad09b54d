"""Where programs write that a routine in the shared host starts: into pipes of its attempt (A-63).

Descriptors 1 and 2 belong to all routines of the host together, so what comes out there names nobody. A program that
is started with `subprocess` or `asyncio`, and a child that user code forks, gets the pipes of the attempt that starts
it instead, unless it was told where to write. `os.system`, `multiprocessing` with "spawn" and C code use the
descriptors as they are: their lines belong to no task.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from stateous_supervisor.host import fatal
from stateous_supervisor.host.pipes import OutputPipe, line_of
from stateous_supervisor.host.streams import LineStream, Say, current

Owner = tuple[int, int]

# Where `Popen` takes them by position.
_STDOUT_AT: Final = 4
_STDERR_AT: Final = 5


class Children:
    """The pipes of all attempts that started something. One thread reads them; `say` must not wait."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._writing: dict[Owner, tuple[int, int]] = {}
        self._reading: dict[OutputPipe, Owner] = {}
        self._selector: selectors.BaseSelector | None = None
        self._wake = -1
        self._is_gone = False

    def install(self) -> None:
        """Have programs and forked children of this process write to the pipes of their attempt."""
        begin = subprocess.Popen.__init__

        @wraps(begin)
        def begin_with_pipes(process: Any, *args: Any, **kwargs: Any) -> None:
            begin(process, *args, **self._directed(args, kwargs))

        popen: Any = subprocess.Popen
        popen.__init__ = begin_with_pipes
        os.register_at_fork(before=self.ends, after_in_child=self._on_forked)

    def ends(self) -> tuple[int, int] | None:
        """Return where the running attempt's children write, stdout and stderr; None outside of an attempt."""
        owner = current.get()
        if owner is None or self._is_gone:
            return None
        with self._lock:
            try:
                return self._writing.get(owner) or self._open(owner)
            except OSError:  # No more descriptors: they write where the host does.
                return None

    def end(self, owner: Owner) -> None:
        """Say what the children of an attempt have written so far. What still runs is read until it ends."""
        if owner not in self._writing:
            return
        with self._lock:
            for end in self._writing.pop(owner):
                os.close(end)
            for pipe in [pipe for pipe, of in self._reading.items() if of == owner]:
                pipe.drain()

    def _directed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of `Popen` with a pipe for each stream that would be inherited."""
        given = dict(kwargs)
        for name, at, inherited in (("stdout", _STDOUT_AT, 1), ("stderr", _STDERR_AT, 2)):
            number = _shared(kwargs.get(name), inherited) if len(args) <= at else None
            if number is not None and (ends := self.ends()) is not None:
                given[name] = ends[number - 1]
        return given

    def _open(self, owner: Owner) -> tuple[int, int]:
        selector = self._selector or self._start()
        with contextlib.ExitStack() as undo:
            far: list[int] = []
            pipes: list[OutputPipe] = []
            for level in ("info", "warning"):
                read, write = os.pipe()
                undo.callback(os.close, read)
                undo.callback(os.close, write)
                os.set_blocking(read, False)
                far.append(write)
                pipes.append(OutputPipe(read, level, partial(self._print, owner)))
            undo.pop_all()
        for pipe in pipes:
            self._reading[pipe] = owner
            selector.register(pipe, selectors.EVENT_READ)
        os.write(self._wake, b"\0")
        ends = self._writing[owner] = (far[0], far[1])
        return ends

    def _start(self) -> selectors.BaseSelector:
        selector = selectors.DefaultSelector()
        read, self._wake = os.pipe()
        selector.register(read, selectors.EVENT_READ)
        self._selector = selector
        threading.Thread(target=self._live, args=(selector, read), name="output", daemon=True).start()
        return selector

    def _live(self, selector: selectors.BaseSelector, wake: int) -> None:
        with fatal.Guard(fatal.end):  # Programs would wait for ever for somebody to read what they write.
            while True:
                for key, _ in selector.select():
                    if key.fd == wake:
                        os.read(wake, 4_096)
                    else:
                        self._read(selector, key.fileobj)

    def _read(self, selector: selectors.BaseSelector, pipe: Any) -> None:
        with self._lock:
            if pipe in self._reading and not pipe.read():
                del self._reading[pipe]
                selector.unregister(pipe)
                pipe.drain()
                pipe.close()

    def _print(self, owner: Owner, level: str, line: bytes) -> None:
        self._say(line_of(owner, level, line))

    def _on_forked(self) -> None:
        """In a child that user code forked: nobody reads here, and descriptors 1 and 2 become its attempt's pipes."""
        self._is_gone = True
        ends = self._writing.pop(current.get() or (0, 0), None)
        with contextlib.suppress(OSError):
            for number, end in enumerate(ends or (), start=1):
                os.dup2(end, number)
            for others in self._writing.values():
                for end in others:
                    os.close(end)
        for pipe in self._reading:
            pipe.close()


def _shared(wanted: Any, inherited: int) -> int | None:
    """Return which of the host's own descriptors a child would write to, 1 or 2; None for anything else."""
    if wanted is None:
        return inherited
    number = wanted.fileno() if isinstance(wanted, LineStream) else wanted
    return number if number in (1, 2) else None


def installed(say: Say) -> Callable[[Owner], None]:
    """Give every attempt of this process pipes for its children; return what to call at an attempt's end."""
    children = Children(say)
    children.install()
    return children.end
