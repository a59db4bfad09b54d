"""Other processes, by /proc: who descends from whom, and how to signal all of them.

Linux only; elsewhere nobody is found. No state. Called by keepers, which adopt what escapes from a routine's session
and so have it below them, by a host at its end, and by its warden.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_ROUNDS: Final = 3


def descendants(root: int) -> list[int]:
    """Return the processes below `root` that are no zombies, parents before their children."""
    children: dict[int, list[int]] = {}
    zombies: set[int] = set()
    for pid, parent, state, _ in _all():
        children.setdefault(parent, []).append(pid)
        if state in ("Z", "X"):
            zombies.add(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(0), [])
        waiting += below
        found += [pid for pid in below if pid not in zombies]
    return found


def children(parent: int) -> list[int]:
    """Return the direct children of `parent` that are no zombies."""
    return [pid for pid, above, state, _ in _all() if above == parent and state not in ("Z", "X")]


def signal_tree(root: int, group: int, number: signal.Signals) -> None:
    """Send a signal to the process group `group` and to everything below `root` that is in another one.

    A process that is stopped is continued, so that it can act on the signal.
    """
    reached = _signal_group(group, number)
    for pid in descendants(root):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not reached or os.getpgid(pid) != group:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)


def _signal_group(group: int, number: signal.Signals) -> bool:
    try:
        os.killpg(group, number)
        os.killpg(group, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def lead_session() -> bool:
    """Leave the terminal, whose signals go to the agent alone; return whether this process leads a session now."""
    with contextlib.suppress(PermissionError):  # The agent started us as the leader of a session.
        os.setsid()
    return os.getsid(0) == os.getpid()


def end_session(spared: int | None = None, *, leader: int | None = None) -> None:
    """Kill all others in the session that `leader` leads, this process if not given (A-48).

    Args:
        spared: goes on.
        leader: whose session; where it leads none, nobody is killed.
    """
    me = os.getpid()
    session = leader or me
    for _ in range(_ROUNDS):  # one may have forked while it was looked for
        others = [
            pid
            for pid, _, state, of in _all()
            if of == session and pid not in (me, spared) and state not in ("Z", "X")
        ]
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not others:
            return


def _all() -> Iterator[tuple[int, int, str, int]]:
    """Yield pid, parent, state and session of every process that can be seen."""
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                # The name in brackets may hold anything, a bracket too.
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                yield int(entry.name), int(fields[1]), fields[0], int(fields[3])
