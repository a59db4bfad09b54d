"""The process beside a host that ends what would outlive it, and needs no turn of the host's interpreter (A-48).

A routine can hold the interpreter for minutes; if the agent is killed meanwhile, no thread of the host can see it. And
a host that is killed leaves the programs that its routines started. The warden stays in the host's session, so that
the session's number is nobody else's while it looks, and leaves the host's family, so that user code that waits for
its children never meets it. It runs no user code. Linux, from 5.3 on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Final, NoReturn

from stateous_supervisor.host import processes

# Longer than a host takes that can still end by itself, and than the agent waits before it kills it.
LEAVE_S: Final = 2.5


def post(link: int) -> int | None:
    """Fork the warden of the session that this process leads, and return its pid; None where there can be none.

    To be called before anything starts a thread.

    Args:
        link: the host's end of the link; the session ends when the other one is closed.
    """
    try:
        return _fork(link, os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        os.write(2, f"no warden ({error}): what routines start may outlive a host that is killed\n".encode())
        return None


def _fork(link: int, host: int) -> int | None:
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        with contextlib.suppress(OSError):
            if (warden := os.fork()) == 0:
                os.close(read)
                os.close(write)
                _keep_watch(link, host)
            os.write(write, str(warden).encode())
        os._exit(0)
    os.close(write)
    os.close(host)
    os.waitpid(between, 0)
    told = os.read(read, 32)
    os.close(read)
    return int(told) if told else None


def _keep_watch(link: int, host: int) -> NoReturn:
    with contextlib.suppress(BaseException):
        _settle_in()
        poll = select.poll()
        poll.register(link, 0)  # its hangup, which is always told
        poll.register(host, select.POLLIN)
        if host not in dict(poll.poll()):
            select.select([host], [], [], LEAVE_S)
        processes.end_session(leader=os.getsid(0))
    os._exit(0)


def _settle_in() -> None:
    """Leave the host's process group, its output and its folder, and take no signal that can be refused."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    os.setpgid(0, 0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
