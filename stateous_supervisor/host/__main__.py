"""``python -P -m stateous_supervisor.host --link FD [--skip FILE]… FOLDER``: a routine host as a process.

The agent starts it, with its end of a socket pair as an inherited descriptor. It ends when the agent says so or when
the link ends, and by nothing else that it can help.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

from stateous_supervisor.host import children, processes, shelter, streams
from stateous_supervisor.host.serve import Host

# The agent waits two seconds for the host.
ISOLATED_S = 1.5

_USAGE = (
    "usage: python -P -m stateous_supervisor.host --link FD [--skip FILE]... FOLDER (the agent starts it)"
)


def main(arguments: list[str]) -> NoReturn:
    """Serve until the agent ends it. Never returns: leftover threads must not keep the process."""
    descriptor, skip, folder = _read(arguments)
    shelter.take(descriptor)
    host = Host(
        socket.socket(fileno=descriptor),
        Path(folder),
        skip=skip,
        on_gone=lambda: _end(host),
        environment=dict(os.environ),
    )
    shelter.at_fork(host.let_go)
    streams.install(host.link.say)
    streams.at_end(children.installed(host.link.say))
    host.serve()
    # What modules of the folder registered; the link's thread ends the process if it takes too long.
    atexit._run_exitfuncs()  # noqa: SLF001 - a normal exit would also wait for threads that may never end.
    host.link.close()
    while True:
        threading.Event().wait()


def _end(host: Host) -> NoReturn:
    """End the process, in the link's thread: routines may hold every other one.

    What routines started goes first: the agent that would end it may be dead (A-48).
    """
    host.end_isolated(ISOLATED_S)
    processes.end_session()
    if host.link.fault is None:
        os._exit(0)
    os.write(2, host.link.fault.encode())
    os._exit(70)


def _read(arguments: list[str]) -> tuple[int, list[str], str]:
    descriptor: int | None = None
    skip: list[str] = []
    folders: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--link":
            text = next(given, "")
            descriptor = int(text) if text.isdecimal() else None
        elif argument == "--skip":
            skip.append(next(given, ""))
        else:
            folders.append(argument)
    if descriptor is None or len(folders) != 1:
        sys.stderr.write(_USAGE + "\n")
        raise SystemExit(64)
    return descriptor, skip, folders[0]


if __name__ == "__main__":
    main(sys.argv[1:])
