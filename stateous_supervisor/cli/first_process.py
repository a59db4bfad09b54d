"""Being process 1 of a container: every orphan in it becomes ours, and somebody must collect it when it ends (BH-027).

The agent cannot, without taking the exit status of children that others wait for. So process 1 forks: the child is
the agent, and the parent stays, runs nothing else, reaps everything and hands signals on. Called first by `run`.
"""

from __future__ import annotations

import os
import signal
from typing import Final, NoReturn

# The kernel's own si_code: a terminal signals the whole group, and the agent has had it too.
_FROM_KERNEL: Final = 0x80


def stand_aside() -> None:
    """Return at once unless this is process 1; there, return in a child and never in this process."""
    if os.getpid() != 1:
        return
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    agent = os.fork()
    if agent == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _serve(agent)


def _serve(agent: int) -> NoReturn:
    while True:
        got = signal.sigwaitinfo(signal.valid_signals())
        if got.si_signo != signal.SIGCHLD:
            if got.si_code != _FROM_KERNEL:
                os.kill(agent, got.si_signo)
            continue
        code = _reap(agent)
        if code is not None:
            os._exit(code if code >= 0 else 128 - code)


def _reap(agent: int) -> int | None:
    """Collect all that has ended; return the agent's exit code if it was among them."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
