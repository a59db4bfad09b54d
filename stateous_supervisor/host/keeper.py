"""The process above one isolated routine: it starts it, waits for it, and ends it with everything that it started.

Forked by the nursery, one for each routine, so that whatever the routine forks or moves to another session stays
below exactly one keeper, which adopts orphans and reaps them. It runs no user code. When the host is gone, or does
not keep the routine's timeout, it ends the routine by itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

from stateous_supervisor.host import cgroups, prctl, processes, shelter
from stateous_supervisor.host.orders import End, Ended, Ends, Hatch, Started
from stateous_supervisor.link.frames import Frame
from stateous_supervisor.link.stream import LinkBroken, Unpacker, pack

# Where the host is gone, nobody waits for the routine's clean-up; the agent waits two seconds for the host.
ORPHAN_GRACE_S: Final = 1.0
OVERDUE_S: Final = 2.0  # how much later than its host the keeper ends a routine whose time is up
KILL_AGAIN_S: Final = 0.05
KILL_S: Final = 5.0
OOM_SCORE: Final = 500

# Runs the routine in the process that calls it, and never returns.
Routine = Callable[[Hatch, int], NoReturn]


def keep(order: Hatch, ends: Ends, groups: Path | None, routine: Routine) -> NoReturn:
    """Start `routine` in a process and session of its own, and stay until nothing of it is left.

    Args:
        order: what the host asked for.
        ends: the descriptors that came with it.
        groups: where control groups can be made, if anywhere.
        routine: runs in the new process.
    """
    prctl.adopt_orphans()
    signals_read, signals_write = os.pipe()
    for end in (signals_read, signals_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, _on_child)
    signal.set_wakeup_fd(signals_write, warn_on_full_buffer=False)
    leaf = cgroups.leaf(groups, f"{order.task}-{order.attempt}-{os.getpid()}") if groups is not None else None
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for end in (signals_read, signals_write, ends.keeper):
            os.close(end)
        _settle_in(order, ends, leaf, keeper)
        routine(order, ends.link)
    for end in (ends.link, ends.out, ends.err):
        os.close(end)
    _Keeper(pid, order, socket.socket(fileno=ends.keeper), signals_read, leaf).watch()
    os._exit(0)


class _Keeper:
    def __init__(
        self, pid: int, order: Hatch, host: socket.socket, signals: int, leaf: cgroups.Leaf | None
    ) -> None:
        self._pid = pid
        self._grace_s = order.grace_s
        self._host: socket.socket | None = host
        self._unpacker: Unpacker[End] = Unpacker(End | Started)
        self._signals = signals
        self._leaf = leaf
        self._code: int | None = None
        self._has_children = True
        self._is_told = False
        self._is_asked = False
        self._overdue_at = None if order.timeout_s is None else monotonic() + order.timeout_s + OVERDUE_S
        self._kill_at: float | None = None
        self._give_up_at: float | None = None

    def watch(self) -> None:
        self._tell(Started(pid=self._pid))
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._host is not None:
            poll.register(self._host, select.POLLIN)
        while self._has_children or not self._is_empty():
            due_at = self._overdue_at if self._kill_at is None else self._kill_at
            wait_s = None if due_at is None else max(0.0, due_at - monotonic())
            ready = dict(poll.poll(None if wait_s is None else wait_s * 1_000 + 1))
            if self._signals in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signals, 4_096)
            if self._host is not None and self._host.fileno() in ready and not self._hear():
                poll.unregister(self._host)
                self._host.close()
                self._host = None
                self._end(ORPHAN_GRACE_S)
            self._reap()
            self._look(monotonic())
            if self._give_up_at is not None and monotonic() > self._give_up_at:
                break
        self._tell_ended()
        if self._leaf is not None:
            self._leaf.remove()

    def _hear(self) -> bool:
        """Take what the host says. False: it is gone."""
        if self._host is None:
            return False
        try:
            received = self._host.recv(65_536)
            if not received:
                return False
            for message in self._unpacker.feed(received):
                if isinstance(message, End):
                    self._is_asked = True
                    self._end(message.grace_s)
        except (OSError, LinkBroken):
            return False
        return True

    def _end(self, grace_s: float) -> None:
        """SIGTERM to all that is left, and set the time for SIGKILL; a later call can only bring that nearer."""
        kill_at = monotonic() + grace_s
        if self._kill_at is None:
            processes.signal_tree(os.getpid(), self._pid, signal.SIGTERM)
            self._kill_at = kill_at
        else:
            self._kill_at = min(self._kill_at, kill_at)

    def _look(self, now: float) -> None:
        if self._overdue_at is not None and self._kill_at is None and now >= self._overdue_at:
            self._end(self._grace_s)
        if self._code is not None and (self._has_children or not self._is_empty()) and self._kill_at is None:
            # The routine returned or died and left something running: what it started ends with it.
            self._end(self._grace_s)
        if self._code is not None and not self._is_asked:
            self._tell_ended()
        if self._kill_at is not None and now >= self._kill_at:
            self._give_up_at = self._give_up_at or now + KILL_S
            self._kill_at = now + KILL_AGAIN_S
            if self._leaf is not None:
                self._leaf.kill()
            processes.signal_tree(os.getpid(), self._pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Collect whatever ended, orphans of the routine too."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._code = os.waitstatus_to_exitcode(status)
        self._has_children = False

    def _is_empty(self) -> bool:
        return self._leaf is None or self._leaf.is_empty()

    def _tell_ended(self) -> None:
        if self._is_told or self._code is None:
            return
        self._is_told = True
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s, peak_bytes, is_out_of_memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1_024, False
        if self._leaf is not None:
            cpu_s = max(cpu_s, self._leaf.cpu_s() or 0.0)
            peak_bytes = self._leaf.peak_bytes() or peak_bytes
            is_out_of_memory = self._leaf.was_out_of_memory()
        self._tell(
            Ended(code=self._code, cpu_s=cpu_s, peak_bytes=peak_bytes, is_out_of_memory=is_out_of_memory)
        )

    def _tell(self, message: Frame) -> None:
        if self._host is not None:
            with contextlib.suppress(OSError):
                self._host.sendall(pack([message]))


def _settle_in(order: Hatch, ends: Ends, leaf: cgroups.Leaf | None, keeper: int) -> None:
    """Make this fresh fork a process of the routine's own, before any of its code runs."""
    os.setsid()
    prctl.die_with_parent()
    if os.getppid() != keeper:
        os._exit(70)
    os.dup2(ends.out, 1)
    os.dup2(ends.err, 2)
    os.close(ends.out)
    os.close(ends.err)
    shelter.default_signals()
    shelter.go_first(OOM_SCORE)
    is_bound = False
    if leaf is not None:
        with contextlib.suppress(OSError):
            leaf.enter()
            is_bound = order.memory_bytes is not None and leaf.limit(order.memory_bytes)
    if order.memory_bytes is not None and not is_bound:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = order.memory_bytes if hard == resource.RLIM_INFINITY else min(order.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _on_child(_number: int, _frame: object) -> None:
    """Do nothing: the wakeup descriptor tells the loop."""
