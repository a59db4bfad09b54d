"""The host's side of isolated routines: one thread that has the nursery hatch them and carries what they say.

It starts the nursery on first need and again after its death. Everything else about a routine is in its `Cell`. The
runner calls `start`, `stop` and `pass_on` from the link's thread; none of them waits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from stateous_supervisor.host import fatal
from stateous_supervisor.host.attempt import Attempt, Speaker
from stateous_supervisor.host.cell import Cell
from stateous_supervisor.host.orders import Hatch, Ready
from stateous_supervisor.host.outcomes import failed
from stateous_supervisor.link.frames import Cancel, Logged, Outcome, Run, ToHost, Unfit
from stateous_supervisor.link.stream import LinkBroken, Unpacker, pack

# A folder that its host could import is given this long in the nursery too.
IMPORT_S: Final = 120.0
CLOSE_GRACE_S: Final = 1.0

_NEVER: Final = float("inf")

Settle = Callable[[Attempt, Outcome], None]
Command = Callable[[], None]


class Isolation:
    """Runs attempts in processes of their own. `settle` gets the outcome of each, once, in this object's thread.

    Args:
        folder: what the nursery imports.
        skip: names of files that it leaves out.
        environment: of the nursery and so of all routines, from before any user code ran.
        speaker: brings frames to the agent.
    """

    def __init__(
        self, folder: Path, *, skip: Collection[str], environment: Mapping[str, str], speaker: Speaker
    ) -> None:
        self.settle: Settle = _unset
        self._folder = folder.absolute()
        self._skip = skip
        self._environment = environment
        self._python = sys.executable
        self._cwd = _working_folder()
        self._speaker = speaker
        self._selector = selectors.DefaultSelector()
        self._commands: deque[Command] = deque()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._cells: dict[Attempt, Cell] = {}
        self._leaving: set[Cell] = set()
        self._waiting: deque[Cell] = deque()
        self._nursery: _Nursery | None = None
        self._is_started = False
        self._is_closing = False
        self._is_closed = threading.Event()

    def begin(self) -> None:
        """Start the thread: before any user code runs, which can have threads end before they begin."""
        self._is_started = True
        threading.Thread(target=self._live, name="isolation", daemon=True).start()

    # From any thread.

    def start(self, attempt: Attempt, frame: Run) -> None:
        """Run `attempt` in a process of its own."""
        self._do(lambda: self._start(attempt, frame))

    def stop(self, attempt: Attempt, cause: str) -> None:
        """End the process of `attempt` and all that it started: SIGTERM, and SIGKILL after its grace."""
        self._do(lambda: self._stop(attempt, cause))

    def pass_on(self, attempt: Attempt, frame: ToHost) -> None:
        """Bring the routine a frame that is for it."""
        self._do(lambda: self._pass_on(attempt, frame))

    def close(self, wait_s: float) -> None:
        """End everything, and wait for that, at most `wait_s`. Nothing is settled any more."""
        if self._is_started:
            self._do(self._close)
            self._is_closed.wait(wait_s)

    def let_go(self) -> None:
        """In a child that user code forked: close what is ours, or the routines would not see our end."""
        for cell in [*self._cells.values(), *self._leaving]:
            cell.let_go()
        if self._nursery is not None:
            self._nursery.control.close()

    def _do(self, command: Command) -> None:
        self._commands.append(command)
        with contextlib.suppress(BlockingIOError):  # It is full of wakes.
            os.write(self._wake_write, b"\0")

    # In the thread.

    def _live(self) -> None:
        with fatal.Guard(
            fatal.end
        ):  # A host that starts no isolated routine any more would be kept for ever.
            self._serve()

    def _serve(self) -> None:
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._clear_wake)
        while not self._is_closed.is_set():
            while self._commands:
                self._commands.popleft()()
            due_at = self._look(monotonic())
            timeout_s = None if due_at == _NEVER else max(0.0, due_at - monotonic())
            for key, _ in self._selector.select(timeout_s):
                key.data()

    def _clear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4_096)

    def _look(self, now: float) -> float:
        """Settle what is over or overdue; return when something is due next."""
        due_at = _NEVER
        for cell in list(self._cells.values()):
            if cell.is_over or now >= cell.due_at:
                self._finish(cell, cell.outcome())
            else:
                due_at = min(due_at, cell.due_at)
        for cell in [cell for cell in self._leaving if cell.is_gone]:
            self._leaving.discard(cell)
            cell.close(self._selector)
        nursery = self._nursery
        if nursery is not None and not nursery.is_ready:
            due_at = min(due_at, nursery.ready_by)
            if now >= nursery.ready_by:
                nursery.process.kill()
                self._lose_nursery(f"it did not import the folder within {IMPORT_S:g} s")
        if self._is_closing and not self._cells and not self._leaving:
            self._is_closed.set()
        return due_at

    def _finish(self, cell: Cell, outcome: Outcome) -> None:
        del self._cells[cell.attempt]
        cell.finish(self._selector)
        self._leaving.add(cell)
        if not self._is_closing:
            self.settle(cell.attempt, outcome)

    def _start(self, attempt: Attempt, frame: Run) -> None:
        cell = Cell(attempt, frame, self._speaker)
        self._cells[attempt] = cell
        if self._nursery is None:
            try:
                self._nursery = self._open_nursery()
            except OSError as error:
                self._cannot(cell, f"no process for the routine: {error.strerror}")
                return
        if self._nursery.is_ready:
            self._hatch(cell)
        else:
            self._waiting.append(cell)

    def _hatch(self, cell: Cell) -> None:
        nursery = self._nursery
        if nursery is None or cell.attempt not in self._cells:
            return
        frame, attempt = cell.frame, cell.attempt
        order = Hatch(
            task=attempt.task,
            attempt=attempt.attempt,
            memory_bytes=frame.confinement.memory_bytes,
            grace_s=frame.confinement.grace_s,
            timeout_s=attempt.timeout_s or None,
        )
        try:
            with cell.opened(self._selector) as ends:
                socket.send_fds(nursery.control, [pack([order])], [*ends])
        except OSError as error:
            self._cannot(cell, f"no process for the routine: {error.strerror}")
            return
        lease_s = max(0.0, attempt.held_until - monotonic())
        cell.say(Run(grant=frame.grant, lease_s=lease_s))

    def _cannot(self, cell: Cell, error: str) -> None:
        """Fail what this host has no process for: nor will it have one for the next."""
        self._speaker.post(Unfit(reason=error))
        self._refuse(cell, error)

    def _refuse(self, cell: Cell, error: str) -> None:
        self._finish(cell, failed(cell.attempt.key, error))

    def _stop(self, attempt: Attempt, cause: str) -> None:
        cell = self._cells.get(attempt)
        if cell is None:
            return
        if not cell.is_hatched:
            self._refuse(cell, cause)
            return
        cell.say(Cancel(task=attempt.task, attempt=attempt.attempt, cause=cause))
        cell.end(cell.frame.confinement.grace_s)

    def _pass_on(self, attempt: Attempt, frame: ToHost) -> None:
        cell = self._cells.get(attempt)
        if cell is not None:
            cell.say(frame)

    def _close(self) -> None:
        self._is_closing = True
        for cell in [*self._cells.values(), *self._leaving]:
            cell.end(min(CLOSE_GRACE_S, cell.frame.confinement.grace_s))
        for cell in list(self._cells.values()):
            if not cell.is_hatched:
                self._finish(cell, cell.outcome())

    # The nursery.

    def _open_nursery(self) -> _Nursery:
        ours, theirs = socket.socketpair()
        skips = [word for name in self._skip for word in ("--skip", name)]
        command = [self._python, "-P", "-m", "stateous_supervisor.host.nursery"]
        try:
            process = subprocess.Popen(
                [*command, "--control", str(theirs.fileno()), *skips, str(self._folder)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=dict(self._environment),
                cwd=self._cwd if self._cwd.is_dir() else None,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        nursery = _Nursery(process, ours, monotonic() + IMPORT_S)
        self._selector.register(ours, selectors.EVENT_READ, self._hear_nursery)
        return nursery

    def _hear_nursery(self) -> None:
        nursery = self._nursery
        if nursery is None:
            return
        try:
            received = nursery.control.recv(65_536)
            messages = nursery.unpacker.feed(received) if received else None
        except (OSError, LinkBroken):
            messages = None
        if messages is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                nursery.process.wait(1.0)
            code = nursery.process.returncode
            if (
                not nursery.is_ready and code is not None and code < 0
            ):  # It inherits the limits of this process.
                self._speaker.post(
                    Unfit(reason=f"a process for isolated routines was killed by signal {-code}")
                )
            self._lose_nursery(f"it ended with code {code}")
            return
        for ready in messages:
            nursery.is_ready = True
            if ready.fault is not None:
                self._speaker.post(Logged(level="warning", text=ready.fault))
        while self._waiting and nursery.is_ready:
            self._hatch(self._waiting.popleft())

    def _lose_nursery(self, reason: str) -> None:
        """The nursery is gone. What it hatched goes on; what waits for it fails, and the next one starts anew."""
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            self._selector.unregister(nursery.control)
            nursery.control.close()
        while self._waiting:
            cell = self._waiting.popleft()
            if cell.attempt in self._cells:
                self._refuse(cell, f"no process for the routine: the nursery did not get ready: {reason}")


class _Nursery:
    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, ready_by: float) -> None:
        self.process = process
        self.control = control
        self.unpacker: Unpacker[Ready] = Unpacker(Ready | Hatch)
        self.is_ready = False
        self.ready_by = ready_by


def _working_folder() -> Path:
    """Return where this process stands; the root where somebody deleted that (BH-033)."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _unset(_attempt: Attempt, _outcome: Outcome) -> None:
    raise RuntimeError("nobody has said who settles isolated attempts")
