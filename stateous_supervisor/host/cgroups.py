"""A control group of its own for each isolated routine, where systemd delegated ours to us (`Delegate=yes`).

Version 2 only, and only below a group that carries systemd's mark of delegation: no other group is touched. Without
one, `find` returns None and keepers do with sessions and /proc. Called by the nursery and its keepers.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKS: Final = ("user.delegate", "trusted.delegate")
OURS: Final = "agent"
ROUTINES: Final = "routines"


@dataclass(frozen=True)
class Leaf:
    """The group of one routine."""

    path: Path

    def enter(self) -> None:
        """Move this process into the group; all that it starts is born there."""
        _write(self.path / "cgroup.procs", "0")

    def limit(self, memory_bytes: int) -> bool:
        """Bound the memory of all in the group together. False: the controller is not there."""
        if not (self.path / "memory.max").exists():
            return False
        _write(self.path / "memory.max", str(memory_bytes))
        with contextlib.suppress(OSError):
            _write(self.path / "memory.swap.max", "0")
        return True

    def kill(self) -> None:
        """Kill everything in the group at once, whatever session it is in."""
        with contextlib.suppress(OSError):
            _write(self.path / "cgroup.kill", "1")

    def is_empty(self) -> bool:
        """Whether nothing lives in the group any more."""
        try:
            return not (self.path / "cgroup.procs").read_text().split()
        except OSError:
            return True

    def peak_bytes(self) -> int | None:
        """Return the most memory that all in the group had together, where the kernel counts it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / "memory.peak").read_text())
        return None

    def cpu_s(self) -> float | None:
        """Return the CPU time of all that ever was in the group."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / "cpu.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "usage_usec":
                    return int(value) / 1e6
        return None

    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed something in the group because it reached its limit."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value) > 0
        return False

    def remove(self) -> None:
        """Remove the group. One that still has a process stays."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


def find() -> Path | None:
    """Return the folder in which groups for routines can be made, ready for use, or None."""
    delegated = _delegated(_own())
    if delegated is None:
        return None
    with contextlib.suppress(OSError):
        _step_aside(delegated)
    routines = delegated / ROUTINES
    with contextlib.suppress(OSError):
        routines.mkdir(exist_ok=True)
        for group in (delegated, routines):
            for controller in ("memory", "pids"):
                with contextlib.suppress(OSError):
                    _write(group / "cgroup.subtree_control", f"+{controller}")
        return routines
    return None


def leaf(routines: Path, name: str) -> Leaf | None:
    """Make the group of one routine, or return None where that fails."""
    path = routines / name
    try:
        path.mkdir()
    except OSError:
        return None
    return Leaf(path)


def _own() -> Path | None:
    """Return the folder of this process's own group in version 2's hierarchy."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        if group is not None and after.startswith("cgroup2 "):
            return Path(before.split()[4]) / group.lstrip("/")
    return None


def _delegated(group: Path | None) -> Path | None:
    """Return the nearest group at or above `group` that was delegated to us."""
    while group is not None and (group / "cgroup.procs").exists():
        if _is_marked(group):
            return group if os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK) else None
        group = group.parent
    return None


def _is_marked(group: Path) -> bool:
    for mark in MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(group, mark) == b"1":
                return True
    return False


def _step_aside(delegated: Path) -> None:
    """Move what is in the delegated group itself into one below: only leaves may hold processes."""
    pids = (delegated / "cgroup.procs").read_text().split()
    if pids:
        (delegated / OURS).mkdir(exist_ok=True)
        for pid in pids:
            with contextlib.suppress(OSError):
                _write(delegated / OURS / "cgroup.procs", pid)


def _write(file: Path, text: str) -> None:
    with file.open("w") as opened:
        opened.write(text)
