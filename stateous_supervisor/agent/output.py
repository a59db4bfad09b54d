"""What routines print, kept by task and attempt on this box, within bounds (A-63).

One file for each attempt in the folder `output` of the state folder, written by a thread of its own: whoever brings a
line never waits for the disk. `task log` reads the files, also when no agent runs.

Bounds, each with a mark where something was dropped: of an attempt the newest `ATTEMPT_BYTES_MAX`, of all attempts the
newest `ATTEMPTS_MAX` and `BYTES_MAX`; what the disk does not take in time is not waited for.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

FOLDER: Final = "output"
ATTEMPT_BYTES_MAX: Final = 262_144  # in two files, of which the older one goes when the newer one is full
HALF_BYTES_MAX: Final = ATTEMPT_BYTES_MAX // 2
BYTES_MAX: Final = 67_108_864
ATTEMPTS_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = 4_194_304
SHOWN_CHARS_MAX: Final = 200
GATHER_S: Final = 0.05

OLDER: Final = ".older"
NEWER: Final = ".log"

Key = tuple[int, int]


class Line(msgspec.Struct, omit_defaults=True):
    """One line of a file. `dropped`: it stands for that many lines that are gone.

    `earlier` stands in the first line of a file that took the place of another: as many lines of this attempt, from
    its beginning on, are gone.
    """

    at: str
    level: str
    text: str
    dropped: int = 0
    earlier: int = 0


class Printed(msgspec.Struct):
    """What is kept of one attempt: its newest lines, and how many before them are gone."""

    task: int
    attempt: int
    earlier: int
    lines: list[Line]


class Last(NamedTuple):
    """How many lines an attempt has printed, and the newest of them, cut to `SHOWN_CHARS_MAX`."""

    lines: int
    text: str | None


class Sink(Protocol):
    """Where lines go."""

    def take(self, key: Key, level: str, text: str) -> None:
        """Keep a line of an attempt. Never waits."""

    def last(self, key: Key) -> Last: ...


class Nowhere:
    """Keeps nothing."""

    def take(self, key: Key, level: str, text: str) -> None: ...

    def last(self, key: Key) -> Last:  # noqa: ARG002  the protocol's
        return NOTHING


NOTHING: Final = Last(0, None)

_json: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode


class Output:
    """Keeps lines below `state_dir`. Nothing is made there before the first line.

    `last` is told of lines that were brought, whether the disk took them or not.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._waiting: deque[tuple[Key, Line]] = deque()
        self._waiting_bytes = 0
        self._lost: dict[Key, int] = {}
        self._last: dict[Key, Last] = {}
        self._lock = threading.Lock()
        self._called = threading.Event()
        self._is_open = True
        self._thread: threading.Thread | None = None

    def take(self, key: Key, level: str, text: str) -> None:
        """Keep a line of an attempt. Never waits: one that finds `WAITING_BYTES_MAX` waiting is dropped and counted."""
        now = time.time()
        self._last[key] = Last(self._last.pop(key, NOTHING).lines + 1, text[:SHOWN_CHARS_MAX])
        if len(self._last) > ATTEMPTS_MAX:
            del self._last[next(iter(self._last))]
        with self._lock:
            if self._waiting_bytes > WAITING_BYTES_MAX:
                _count(self._lost, key, 1)
                return
            self._waiting.append((key, Line(_stamp(now), level, text)))
            self._waiting_bytes += len(text)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="output", daemon=True)
            self._thread.start()
        self._called.set()

    def last(self, key: Key) -> Last:
        """Return how much an attempt has printed, and its newest line."""
        return self._last.get(key, NOTHING)

    def close(self, wait_s: float = 1.0) -> None:
        """Write what is there, for at most `wait_s`."""
        self._is_open = False
        self._called.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _run(self) -> None:
        files = _Files(self._folder)
        while self._is_open or self._waiting:
            self._called.wait()
            self._called.clear()
            if self._is_open:
                time.sleep(GATHER_S)
            with self._lock:
                lines, self._waiting = self._waiting, deque()
                lost, self._lost = self._lost, {}
                self._waiting_bytes = 0
            files.write(lines, lost)


class _Kept:
    """What there is of one attempt."""

    __slots__ = ("before", "dropped", "lines", "newer_bytes", "older_bytes")

    def __init__(self, older_bytes: int = 0, newer_bytes: int = 0) -> None:
        self.older_bytes = older_bytes
        self.newer_bytes = newer_bytes
        self.lines = 0  # in the newer file
        self.before = 0  # in the older file
        self.dropped = 0

    @property
    def bytes(self) -> int:
        return self.older_bytes + self.newer_bytes


class _Files:
    """The files, by attempt, the one that was begun first in front. Used by the writing thread alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = _found(folder)
        self._bytes = sum(kept.bytes for kept in self._kept.values())
        self._lost: dict[Key, int] = {}

    def write(self, lines: Iterable[tuple[Key, Line]], late: Mapping[Key, int]) -> None:
        """Append lines; those that the disk refuses are counted, and marked when it takes some again.

        Args:
            lines: what waited, in order.
            late: how many lines of an attempt came after them and found no place to wait.
        """
        by_key: dict[Key, list[Line]] = {key: [_missing(lost)] for key, lost in self._lost.items()}
        for key, line in lines:
            by_key.setdefault(key, []).append(line)
        for key, number in late.items():
            by_key.setdefault(key, []).append(_missing(number))
        for key, of_key in by_key.items():
            rest = self._append(key, of_key)
            self._lost.pop(key, None)
            if rest:
                self._lost[key] = sum(line.dropped or 1 for line in rest)
        while len(self._lost) > ATTEMPTS_MAX:
            del self._lost[next(iter(self._lost))]

    def _append(self, key: Key, lines: list[Line]) -> list[Line]:
        """Append lines of an attempt; return those that the disk refused."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            while lines:
                lines = self._append_some(key, lines)
            self._drop_oldest(key)
        return lines

    def _append_some(self, key: Key, lines: list[Line]) -> list[Line]:
        """Append as much as the newer file may have; return the rest."""
        kept = self._kept.setdefault(key, _Kept())
        if kept.newer_bytes >= HALF_BYTES_MAX:
            self._turn(key, kept)
        text = b""
        taken = 0
        for line in lines:
            text += _encode(line)
            taken += 1
            kept.lines += line.dropped or 1
            if kept.newer_bytes + len(text) >= HALF_BYTES_MAX:
                break
        _append_whole(self._path(key, NEWER), text)
        kept.newer_bytes += len(text)
        self._bytes += len(text)
        return lines[taken:]

    def _turn(self, key: Key, kept: _Kept) -> None:
        """The newer file becomes the older one, whose lines are gone; the first line of the next one says how many."""
        self._path(key, NEWER).replace(self._path(key, OLDER))
        self._bytes -= kept.older_bytes
        kept.dropped += kept.before
        kept.older_bytes, kept.newer_bytes = kept.newer_bytes, 0
        kept.before, kept.lines = kept.lines, 0
        if kept.dropped:
            text = f"more than {ATTEMPT_BYTES_MAX} bytes of one attempt are not kept"
            line = _encode(Line(_stamp(time.time()), "warning", text, earlier=kept.dropped))
            _append_whole(self._path(key, NEWER), line)
            kept.newer_bytes = len(line)
            self._bytes += len(line)

    def _drop_oldest(self, but: Key) -> None:
        while len(self._kept) > ATTEMPTS_MAX or self._bytes > BYTES_MAX:
            oldest = next((key for key in self._kept if key != but), None)
            if oldest is None:
                return
            self._bytes -= self._kept.pop(oldest).bytes
            for end in (OLDER, NEWER):
                with contextlib.suppress(OSError):
                    self._path(oldest, end).unlink(missing_ok=True)

    def _path(self, key: Key, end: str) -> Path:
        return self._folder / f"{key[0]}-{key[1]}{end}"


def read(state_dir: Path, task: int) -> list[Printed]:
    """Return what is kept of a task, its attempts in order; nothing if nothing is kept.

    Raises:
        OSError: the folder is there and may not be read.
    """
    folder = state_dir / FOLDER
    attempts = sorted({attempt for each, attempt in _keys(folder) if each == task})
    return [_read_attempt(folder, (task, attempt)) for attempt in attempts]


def kept(state_dir: Path) -> list[Key]:
    """Return the attempts of which something is kept, in order.

    Raises:
        OSError: the folder is there and may not be read.
    """
    return sorted(set(_keys(state_dir / FOLDER)))


def _read_attempt(folder: Path, key: Key) -> Printed:
    """Read both files of an attempt, again where one took the other's place meanwhile."""
    newer, older = (folder / f"{key[0]}-{key[1]}{end}" for end in (NEWER, OLDER))
    lines: list[Line] = []
    for _ in range(3):
        before = _identity(newer)
        lines = [*_read_file(older), *_read_file(newer)]
        if _identity(newer) == before:
            break
    earlier = max((line.earlier for line in lines), default=0)
    return Printed(key[0], key[1], earlier, [line for line in lines if not line.earlier])


def _read_file(path: Path) -> Iterator[Line]:
    """Yield the lines of a file; one that a crash tore is passed over."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    for line in raw.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            yield _decode(line)


def _identity(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _keys(folder: Path) -> Iterator[Key]:
    try:
        names = [each.name for each in os.scandir(folder)]
    except FileNotFoundError:
        return
    for name in names:
        task, _, rest = name.partition("-")
        attempt = rest.removesuffix(NEWER).removesuffix(OLDER)
        if task.isdecimal() and attempt.isdecimal():
            yield int(task), int(attempt)


def _found(folder: Path) -> dict[Key, _Kept]:
    """Return what an earlier process kept, the attempt that was written first in front."""
    seen: list[tuple[float, Key, _Kept]] = []
    with contextlib.suppress(OSError):
        for key in set(_keys(folder)):
            sizes = [0, 0]
            written_at = 0.0
            for number, end in enumerate((OLDER, NEWER)):
                with contextlib.suppress(FileNotFoundError):
                    status = (folder / f"{key[0]}-{key[1]}{end}").stat()
                    sizes[number] = status.st_size
                    written_at = max(written_at, status.st_mtime)
            seen.append((written_at, key, _Kept(*sizes)))
    return {key: had for _, key, had in sorted(seen, key=lambda each: each[:2])}


def _append_whole(path: Path, text: bytes) -> None:
    """Append all of `text` or nothing of it.

    Raises:
        OSError: the disk does not take it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, text) < len(text):
            os.ftruncate(descriptor, size)
            raise OSError("the disk took a part only")
    finally:
        os.close(descriptor)


def _encode(line: Line) -> bytes:
    try:
        return _json(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a routine's text
        return _json(Line(line.at, line.level, line.text.encode("utf-8", "replace").decode())) + b"\n"


def _missing(number: int) -> Line:
    text = "the disk did not take them in time, or not at all"
    return Line(_stamp(time.time()), "warning", text, dropped=number)


def _count(counts: dict[Key, int], key: Key, number: int) -> None:
    counts[key] = counts.get(key, 0) + number


def _stamp(at: float) -> str:
    whole, part = divmod(int(at * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:03d}Z"
