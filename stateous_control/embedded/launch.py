"""Become what PostgreSQL may run as, tie this process to its parent, then become PostgreSQL.

Run as a script by `stateous_control.embedded.spawn`, in an interpreter of its own (`-I -S`: it starts in
milliseconds), because all of this must happen between fork and exec, where the big process's threads make
Python code unsafe. It imports nothing of ours.

    launch.py MODE PARENT_PID SIGNAL PROGRAM ARGUMENT…     MODE: plain, namespace, nobody
    launch.py MODE PARENT_PID SIGNAL --probe FOLDER        can this mode write into FOLDER?
"""

from __future__ import annotations

import ctypes
import os
import sys

NOBODY = 65534
CANNOT = 90

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def enter_namespace(libc: ctypes.CDLL) -> None:
    """Go into a user namespace where we are `NOBODY`, while files that we make stay ours outside of it."""
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(_CLONE_NEWUSER))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{NOBODY} {uid} 1")
    _write("/proc/self/gid_map", f"{NOBODY} {gid} 1")


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def die_with(libc: ctypes.CDLL, parent: int, signal: int) -> None:
    """Have the kernel send `signal` to us when `parent` ends, however it ends. exec keeps the request."""
    _check(libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0))
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit(CANNOT)


def probe(folder: str) -> None:
    path = os.path.join(folder, f".probe-{os.getpid()}")  # noqa: PTH118 - pathlib would double the start time
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)  # noqa: PTH108


def main(mode: str, parent: str, signal: str, program: str, *arguments: str) -> None:
    """Do what the module says. Ends with exit code `CANNOT` and a sentence where the system forbids it."""
    try:
        os.setsid()  # Ctrl-C in a terminal is for our parent, which then stops us in its own time
        if sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            if mode == "namespace":
                enter_namespace(libc)
            if mode == "nobody":
                become_nobody()
            die_with(libc, int(parent), int(signal))  # last: a change of identity would clear it
        if program == "--probe":
            probe(arguments[0])
            return
        os.execv(program, [program, *arguments])  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"{mode}: {error}\n")
        sys.exit(CANNOT)


if __name__ == "__main__":
    main(*sys.argv[1:])
