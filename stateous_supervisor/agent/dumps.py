"""What a host that says nothing is doing: which thread burns, and what Python wrote about all of them.

`faulthandler` writes the dump to the host's stderr when the host is sent `DUMP_SIGNAL`, also while a C call holds the
interpreter's lock (A-22). Called by `host_process`; reading the lines is pure.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_THREAD: Final = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_OURS: Final = re.compile(r"stateous_supervisor/(host|link|sdk)/[a-z_]+\.py$|/threading\.py$|/selectors\.py$")


class Line(NamedTuple):
    """One frame: its file, relative to the folder where it is in there, its line and its function."""

    file: str
    line: int
    name: str
    is_in_folder: bool


class Hang(NamedTuple):
    """Where a host hangs: `place` for people, `frames` from the innermost outwards."""

    place: str
    frames: Sequence[Line]


def is_of_dump(text: str) -> bool:
    """Whether a line of a host's stderr is one of a dump."""
    return bool(_THREAD.match(text) or _FRAME.match(text)) or text.strip() in ("", "...", "<no Python frame>")


def read(lines: Iterable[str], folder: Path) -> Hang | None:
    """Return where the host hangs: the thread that took the signal, or else the first that is in the folder's code."""
    threads: list[list[Line]] = []
    current: list[Line] | None = None
    for text in lines:
        head, frame = _THREAD.match(text), _FRAME.match(text)
        if head:
            threads.append([])
            current = threads[-1] if head[1] == "Current thread" else current
        elif frame and threads:
            path = Path(frame[1])
            is_in_folder = path.is_relative_to(folder)
            file = str(path.relative_to(folder)) if is_in_folder else frame[1]
            threads[-1].append(Line(file, int(frame[2]), frame[3], is_in_folder))
    candidates = [current, *threads] if current is not None else threads
    for frames in candidates:
        found = next((frame for frame in frames if frame.is_in_folder), None)
        if found is not None:
            return _hang(found, frames)
    for frames in candidates:
        if frames and not _OURS.search(frames[0].file):
            return _hang(frames[0], frames)
    return None


def cpu_by_thread(pid: int) -> dict[int, int]:
    """Return for each thread of a process how much CPU time it has had, in clock ticks."""
    used: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                used[int(entry.name)] = int(fields[11]) + int(fields[12])
    return used


def hottest(before: dict[int, int], after: dict[int, int], pid: int) -> int:
    """Return the thread that had the most CPU time meanwhile; the main one where none had any."""
    grown = {thread: used - before.get(thread, used) for thread, used in after.items()}
    thread = max(grown, key=lambda each: grown[each], default=pid)
    return thread if grown.get(thread, 0) > 0 else pid


def _hang(found: Line, frames: Sequence[Line]) -> Hang:
    return Hang(f"{found.file}:{found.line} ({found.name})", frames)
