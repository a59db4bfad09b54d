"""``python -P -m stateous_supervisor.host.nursery``: the process in which isolated routines are forked.

``--control FD [--skip FILE]… FOLDER``. The host starts it on first need. It imports the folder, starts no loop and no
thread, and forks a keeper for each routine (BH-025). Where a module started threads, or off Linux, forking is not
safe: then each routine gets a fresh interpreter that imports the folder itself (``--hatch``), and that is said once.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

import msgspec

from stateous_supervisor.host import cgroups, isolated, prctl, processes, shelter
from stateous_supervisor.host.alias import install_alias, keep_out
from stateous_supervisor.host.discovery import Found, discover
from stateous_supervisor.host.failures import describe
from stateous_supervisor.host.keeper import Routine, keep
from stateous_supervisor.host.orders import Ends, Hatch, Ready
from stateous_supervisor.link.stream import Unpacker, pack

FDS_MAX: Final = 64
LINGER_S: Final = 10.0
_MODULE: Final = "stateous_supervisor.host.nursery"


class Nursery:
    """Serves one host over the socket `control`, until the host is gone."""

    def __init__(self, control: socket.socket, folder: str, skip: Sequence[str]) -> None:
        self._control = control
        self._folder = folder
        self._skip = skip
        self._unpacker: Unpacker[Hatch] = Unpacker(Hatch | Ready)
        self._fds: deque[int] = deque()
        self._keepers: set[int] = set()
        self._fresh: dict[int, subprocess.Popen[bytes]] = {}
        self._groups: Path | None = None
        self._routine: Routine | None = None
        self._signals, self._signals_write = os.pipe()

    def serve(self) -> None:
        prctl.die_with_parent()  # an import that hangs would never see the host's end
        if not _is_open(self._control):
            return
        found = load(Path(self._folder), self._skip)
        prctl.outlive_parent()
        fault = threads_fault()
        if fault is None:
            self._routine = lambda _, link: isolated.run(link, found.routines)
        self._groups = cgroups.find()
        for end in (self._signals, self._signals_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signals_write, warn_on_full_buffer=False)
        with contextlib.suppress(OSError):
            self._control.sendall(pack([Ready(fault=fault)]))
            self._serve()
        self._linger()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._signals, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._signals in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signals, 4_096)
                self._reap()
            if self._control.fileno() in ready and not self._take():
                return

    def _take(self) -> bool:
        """Hatch what the host asks for. False: the host is gone."""
        received, fds, _, _ = socket.recv_fds(self._control, 65_536, FDS_MAX)
        self._fds.extend(fds)
        if not received:
            return False
        for order in self._unpacker.feed(received):
            ends = Ends(*(self._fds.popleft() for _ in Ends._fields))
            try:
                self._hatch(order, ends)
            except OSError as error:
                # Closing its ends tells the host; why, it reads here.
                os.write(2, f"no process for task {order.task}: {error.strerror}\n".encode())
            finally:
                for end in ends:
                    os.close(end)
        return True

    def _hatch(self, order: Hatch, ends: Ends) -> None:
        if self._routine is None:
            started = subprocess.Popen(self._command(order, ends), pass_fds=ends, stdin=subprocess.DEVNULL)
            self._fresh[started.pid] = started
            self._keepers.add(started.pid)
            return
        pid = os.fork()
        if pid:
            self._keepers.add(pid)
            return
        try:
            for end in (self._control.detach(), self._signals, self._signals_write):
                os.close(end)
            keep(order, ends, self._groups, self._routine)
        except BaseException as error:  # Whatever happens, a fork must not go on as the nursery.
            os.write(2, describe(error).traceback.encode())
        finally:
            os._exit(70)

    def _command(self, order: Hatch, ends: Ends) -> list[str]:
        skips = [word for name in self._skip for word in ("--skip", name)]
        given = msgspec.json.encode([order, ends, str(self._groups or "")]).decode()
        return [sys.executable, "-P", "-m", _MODULE, "--hatch", given, *skips, self._folder]

    def _reap(self) -> bool:
        """Collect whatever ended; False where nothing is left.

        What a keeper that was killed left behind was adopted here, and is killed.
        """
        has_lost = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                fresh = self._fresh.pop(pid, None)
                if fresh is not None:
                    fresh.returncode = os.waitstatus_to_exitcode(status)
                has_lost |= status != 0
                self._keepers.discard(pid)
            if has_lost:
                for pid in set(processes.children(os.getpid())) - self._keepers:
                    with contextlib.suppress(ProcessLookupError):
                        processes.signal_tree(pid, pid, signal.SIGKILL)
                        os.kill(pid, signal.SIGKILL)
            return True
        return False

    def _linger(self) -> None:
        """The host is gone, and every keeper ends its routine: be there for what they leave."""
        self._control.close()
        until = monotonic() + LINGER_S
        while self._reap() and monotonic() < until:
            select.select([self._signals], [], [], 0.5)
            with contextlib.suppress(BlockingIOError):
                os.read(self._signals, 4_096)


def load(folder: Path, skip: Sequence[str]) -> Found:
    """Import the folder as the host does, ready to be shared by forks."""
    install_alias()
    keep_out([Path(name).stem for name in skip])
    found = discover(folder, skip=skip, loading=lambda _: None)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # User code may have put anything there.
            stream.flush()
    gc.collect()
    gc.freeze()
    return found


def _is_open(control: socket.socket) -> bool:
    """Return whether the host is still there; it has said nothing yet."""
    ended, _, _ = select.select([control], [], [], 0)
    return not ended


def threads_fault() -> str | None:
    """Return why this process must not fork, if so: a lock that another thread holds would stay locked for ever."""
    if sys.platform != "linux":
        return f"routines are not forked on {sys.platform}; each isolated one starts a fresh interpreter"
    count = len(list(Path("/proc/self/task").iterdir()))
    if count == 1:
        return None
    names = ", ".join(sorted(t.name for t in threading.enumerate() if t is not threading.main_thread()))
    which = f" ({names})" if names else ""
    return (
        f"importing the folder started {count - 1} thread(s){which}, so routines cannot be forked; "
        "each isolated one starts a fresh interpreter"
    )


def main(arguments: list[str]) -> NoReturn:
    """Be the nursery, or, with ``--hatch``, one keeper and its routine in a fresh interpreter."""
    shelter.ignore_signals()
    prctl.adopt_orphans()
    skip = [value for name, value in itertools.pairwise(arguments) if name == "--skip"]
    folder = arguments[-1]
    if arguments[0] == "--hatch":
        order, ends, groups = msgspec.json.decode(arguments[1], type=tuple[Hatch, Ends, str])
        for end in ends:
            os.set_inheritable(end, False)

        def routine(_: Hatch, link: int) -> NoReturn:
            isolated.run(link, load(Path(folder), skip).routines)

        keep(order, ends, Path(groups) if groups else None, routine)
    control = socket.socket(fileno=int(arguments[1]))
    control.set_inheritable(False)
    Nursery(control, folder, skip).serve()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
