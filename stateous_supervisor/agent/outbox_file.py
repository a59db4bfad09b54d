"""The file of an outbox: locked, opened, read, and what to do with one that is damaged, foreign or copied.

A record that makes no sense is set aside and the rest is found; of a damaged file, what can still be read is saved
into a new one (A-40). A file belongs where it was made, told by machine id and inode: in a copy no claim is repeated
and no grant settled (A-42), and from the first look on it says so itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from stateous_contract.messages import TaskMessage

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.outbox import (
    APPLICATION,
    SCHEMA,
    VERSION,
    ClaimRow,
    Envelope,
    Found,
    GrantRow,
    Outbox,
    flat,
    name_of,
    set_aside,
)

FILE: Final = "outbox.db"
LOCK: Final = "lock"
MACHINE_ID: Final = Path("/etc/machine-id")

# What each column must be. The first two order a table, and name a record of it.
_COLUMNS: Final[Mapping[str, tuple[type, ...]]] = {
    "claims": (str, str, str),
    "grants": (int, int, str, str, str, str),
    "messages": (int, int, int, str, str, str, str, str, bytes),
}

_Rows = dict[str, list[tuple[Any, ...]]]
_Bad = tuple[str, str, bytes | None]


class _Saved(NamedTuple):
    """What could be read of a file, and whether it was made here."""

    rows: _Rows
    is_ours: bool


class _Foreign(Exception):
    """A sound database that is not an outbox of ours."""


def open_outbox(folder: Path) -> Outbox:
    """Open or make the outbox in `folder`, which is made with mode 0700 if it is not there, and lock it.

    Raises:
        Fault: the folder cannot be used (73), or another agent holds it (75).
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Fault(Exit.NO_STATE_FOLDER, f"{folder}: cannot be used as the state folder: {why}") from None
    try:
        _take(lock, folder)
        return _open_file(folder, lock)
    except BaseException:
        os.close(lock)
        raise


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        sentence = f"{folder}: another agent (process {holder}) holds this state folder; only one may"
        raise Fault(Exit.HELD_BY_ANOTHER, sentence) from None
    with contextlib.suppress(OSError):  # a full disk: who holds it is only told for people
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _open_file(folder: Path, lock: int) -> Outbox:
    file = folder / FILE
    saved = _Saved({}, is_ours=True)
    told: list[str] = []
    for _ in range(2):
        database = None
        try:
            database = _connect(file)
            _prepare(database)
            found = _take_over(database, file, saved, told)
            return Outbox(database, found, file=file, lock=lock)
        except (sqlite3.DatabaseError, _Foreign) as error:
            if database is not None:
                database.close()
            if isinstance(error, sqlite3.OperationalError):
                sentence = f"{file}: cannot be opened: {error}; {_room(folder)}"
                raise Fault(Exit.NO_STATE_FOLDER, sentence) from None
            kept = _move_aside(file)
            told.append(f"{kept.name}: {error}")
            if not isinstance(error, _Foreign):
                saved = _salvage(kept)
    raise Fault(Exit.NO_STATE_FOLDER, f"{file}: cannot be made anew: {told[-1]}")


def _room(folder: Path) -> str:
    """Say what the file system has left: SQLite's own words do not tell a full one from one without inodes (BH-031)."""
    left = os.statvfs(folder)
    files = f" and {left.f_favail:,} files" if left.f_files else ""  # some file systems do not count them
    return f"there is room for {left.f_bavail * left.f_frsize // 1024:,} KiB{files}"


def _connect(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=5.0)
    database.text_factory = _text
    return database


def _text(raw: bytes) -> str | bytes:
    """Return a text; what is none stays bytes, so that its record is found to be damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 2000")
    if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        database.executescript(f"BEGIN; {SCHEMA} COMMIT;")
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION or version != VERSION:
        raise _Foreign(f"this is not an outbox of version {VERSION}")
    problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {problem}")


# What an earlier process left.


def _take_over(database: sqlite3.Connection, file: Path, saved: _Saved, told: list[str]) -> Found:
    """Read everything, and write in one transaction what follows from it; nothing where nothing does."""
    here = (_machine(), file.stat().st_ino)
    owner = database.execute("SELECT machine, inode FROM owner").fetchone()
    rows = {
        table: [*saved.rows.get(table, []), *database.execute(f"SELECT * FROM {table} ORDER BY 1, 2")]
        for table in _COLUMNS
    }
    earlier = _set_aside_before(database, file, told)
    bad = _sift(rows)
    is_copied = not saved.is_ours or (owner is not None and tuple(owner) != here)
    found = _found(rows, [*told, *(f"{record}: {error}" for error, record, _ in bad)], is_copied=is_copied)
    if owner is None or is_copied or bad or saved.rows:
        _rewrite(database, here, found, bad)
    return found._replace(earlier=earlier)


def _set_aside_before(database: sqlite3.Connection, file: Path, told: Sequence[str]) -> list[str]:
    """Return what stands aside already, files and records; `told` are those of this start."""
    files = {kept.name for kept in file.parent.glob(f"{FILE}.aside-*[0-9]")}
    files -= {sentence.partition(":")[0] for sentence in told}
    records = database.execute("SELECT record, error FROM aside ORDER BY id")
    return [f"{name}: a file" for name in sorted(files)] + [f"{record}: {error}" for record, error in records]


def _found(rows: _Rows, aside: list[str], *, is_copied: bool) -> Found:
    identities: dict[tuple[str, str], Identity] = {}

    def who(supervisor: str, instance: str) -> Identity:
        return identities.setdefault((supervisor, instance), Identity(supervisor, instance))

    return Found(
        claims=[ClaimRow(row[0], who(row[1], row[2])) for row in rows["claims"]],
        grants=[GrantRow._make((*row[:4], who(row[4], row[5]))) for row in rows["grants"]],
        messages=[
            Envelope._make((*row[:5], who(row[5], row[6]), *row[7:])) for row in sorted(rows["messages"])
        ],
        aside=aside,
        is_copied=is_copied,
        earlier=[],
    )


def _rewrite(database: sqlite3.Connection, here: tuple[str, int], found: Found, bad: Sequence[_Bad]) -> None:
    """Make the file hold what was found, as this box's own; of a copy only what is to be delivered."""
    many = database.executemany
    database.execute("BEGIN IMMEDIATE")
    for table in ("owner", *_COLUMNS):
        database.execute(f"DELETE FROM {table}")
    database.execute("INSERT INTO owner VALUES (?, ?)", here)
    if not found.is_copied:
        many("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", flat(found.claims, 1))
        many("INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?, ?)", flat(found.grants, 4))
    many("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", flat(found.messages, 5))
    set_aside(database, bad)
    database.execute("COMMIT")


def _sift(rows: _Rows) -> list[_Bad]:
    """Take out of `rows` what makes no sense, and return it."""
    bad: list[_Bad] = []
    for table, types in _COLUMNS.items():
        good = []
        for row in rows[table]:
            error = _fault_of(row, types) or (_fault_of_message(row) if table == "messages" else None)
            if error is None:
                good.append(row)
            else:
                bad.append((error, _named(table, row), _bytes_of(row)))
        rows[table] = good
    return bad


def _fault_of(row: Sequence[object], types: Sequence[type]) -> str | None:
    for value, wanted in zip(row, types, strict=True):
        if not isinstance(value, wanted):
            return f"a column is {type(value).__name__} where {wanted.__name__} is allowed"
        if isinstance(value, int) and value < 1:
            return "an id or an attempt below 1"
    return None


def _fault_of_message(row: tuple[Any, ...]) -> str | None:
    try:
        message = msgspec.json.decode(row[8], type=TaskMessage)
    except (msgspec.DecodeError, RecursionError, TypeError) as problem:
        return str(problem)
    if (message.task, message.attempt, message.kind) != (row[1], row[2], row[7]):
        return "it names another attempt than its row"
    return None


def _named(table: str, row: tuple[Any, ...]) -> str:
    if table == "messages":
        return name_of(Envelope._make((*row[:5], None, *row[7:])))
    return f"grant of task {row[0]} attempt {row[1]}" if table == "grants" else f"claim {row[0]}"


def _bytes_of(row: tuple[Any, ...]) -> bytes:
    """Return what is kept of a record: the body of a message, else the whole as text."""
    return (
        row[-1]
        if isinstance(row[-1], bytes) and len(row) == len(_COLUMNS["messages"])
        else repr(row).encode()
    )


# A damaged file.


def _move_aside(file: Path) -> Path:
    number = 1
    while (kept := file.with_name(f"{file.name}.aside-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm"):  # the log of writes belongs to it: the newest records are only there
        with contextlib.suppress(FileNotFoundError):
            file.with_name(file.name + ending).rename(kept.with_name(kept.name + ending))
    return file.rename(kept)


def _salvage(kept: Path) -> _Saved:
    """Return what can be read of a damaged file: each table from both ends up to the damage."""
    with contextlib.closing(_connect(kept)) as database:
        rows = {table: list(_readable(database, table)) for table in _COLUMNS}
        owner = None
        with contextlib.suppress(sqlite3.DatabaseError):
            owner = database.execute("SELECT machine, inode FROM owner").fetchone()
    is_ours = owner is not None and tuple(owner) == (_machine(), kept.stat().st_ino)
    return _Saved(rows, is_ours=is_ours or not any(rows.values()))


def _readable(database: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    found: dict[object, tuple[Any, ...]] = {}
    for way in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.DatabaseError):
            for row in database.execute(f"SELECT * FROM {table} ORDER BY 1 {way}, 2 {way}"):
                found.setdefault(row[:2], row)
    yield from found.values()


def _machine() -> str:
    try:
        return MACHINE_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
