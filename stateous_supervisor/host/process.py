"""A routine host that has a process to itself: what is done before its first line of user code, and at its end.

It ends when the agent says so or when the link ends, and by nothing else that it can help. Called by `__main__`.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final, NoReturn

from stateous_supervisor.host import children, fatal, processes, shelter, streams
from stateous_supervisor.host.serve import Host

# The agent waits two seconds for the host.
ISOLATED_S: Final = 1.5


def serve(link: int, folder: str, *, skip: Collection[str], spared: int | None) -> NoReturn:
    """Serve until the agent ends it. Never returns: leftover threads must not keep the process.

    Args:
        link: the descriptor of the host's end of the link.
        folder: the routine folder.
        skip: names of files to leave out.
        spared: the warden, if there is one: it ends after this process.
    """
    shelter.take(link)
    host = Host(
        socket.socket(fileno=link),
        Path(folder),
        skip=skip,
        on_gone=lambda: _end(host, spared),
        on_fault=fatal.end,
        environment=dict(os.environ),
    )
    shelter.at_fork(host.let_go)
    streams.install(host.link.say)
    streams.at_end(children.installed(host.link.say))
    with fatal.Guard(fatal.end):
        host.serve()
    # What modules of the folder registered; the link's thread ends the process if it takes too long.
    atexit._run_exitfuncs()  # noqa: SLF001 - a normal exit would also wait for threads that may never end.
    host.link.close()
    while True:
        threading.Event().wait()


def _end(host: Host, spared: int | None) -> NoReturn:
    """End the process, in the link's thread: routines may hold every other one.

    What routines started goes first: the agent that would end it may be dead (A-48). The warden stays, should one
    of them take the interpreter from this thread for good.
    """
    try:  # User code may have closed every descriptor, of which this needs some.
        host.end_isolated(ISOLATED_S)
        processes.end_session(spared)
    finally:
        os._exit(0)
