"""The one door to SQLite: the outbox and journal of one agent, a file in its state folder.

It holds what must survive `kill -9`: request ids of claims before they are sent, grants before their routine
starts, and what is to be delivered before it is sent (ADR 11). The file is locked by its owner and only ever
used by one thread at a time. Request ids and grants are safe from the process's death, messages from a power
cut too (`synchronous`). What cannot be read is set aside, never thrown away (A-40). A file that was made on
another box is told by machine id and inode (`is_copied`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from stateous_contract.messages import TaskMessage

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.faults import Exit, Fault

FILE: Final = "outbox.db"
LOCK: Final = "lock"
VERSION: Final = 1
APPLICATION: Final = 0x53544F42  # "STOB", so that a foreign database is not taken for ours
MACHINE_ID: Final = Path("/etc/machine-id")

_SCHEMA: Final = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE owner (machine TEXT NOT NULL, inode INTEGER NOT NULL);
CREATE TABLE claims (request TEXT PRIMARY KEY, supervisor TEXT NOT NULL, instance TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE grants (
  task INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, token TEXT NOT NULL,
  supervisor TEXT NOT NULL, instance TEXT NOT NULL, PRIMARY KEY (task, attempt)
) WITHOUT ROWID;
CREATE TABLE messages (
  id INTEGER PRIMARY KEY, task INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL,
  token TEXT NOT NULL, supervisor TEXT NOT NULL, instance TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE aside (id INTEGER PRIMARY KEY, error TEXT NOT NULL, record TEXT NOT NULL, body BLOB);
"""


class ClaimRow(NamedTuple):
    """A request id that was made and has no definite answer yet."""

    request: str
    identity: Identity


class GrantRow(NamedTuple):
    """An attempt that was claimed and has no outcome yet."""

    task: int
    attempt: int
    state: str
    token: str
    identity: Identity


class Envelope(NamedTuple):
    """A message that is to be delivered. `body` is the JSON of a `TaskMessage`."""

    id: int
    task: int
    attempt: int
    state: str
    token: str
    identity: Identity
    kind: str
    body: bytes


@dataclass
class Batch:
    """Everything that one commit writes. Lists of rows, so that a commit is a handful of statements."""

    claims: list[ClaimRow] = field(default_factory=list)
    claims_over: list[str] = field(default_factory=list)
    grants: list[GrantRow] = field(default_factory=list)
    grants_over: list[tuple[int, int]] = field(default_factory=list)
    messages: list[Envelope] = field(default_factory=list)
    messages_over: list[int] = field(default_factory=list)
    attempts_over: list[tuple[int, int]] = field(default_factory=list)
    aside: list[tuple[str, Envelope]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not any(vars(self).values())

    def before(self, later: Batch) -> Batch:
        """Return this batch and a later one as one."""
        return Batch(**{name: [*rows, *getattr(later, name)] for name, rows in vars(self).items()})


class Found(NamedTuple):
    """What an earlier process left. `aside` are sentences about what could not be read."""

    claims: list[ClaimRow]
    grants: list[GrantRow]
    messages: list[Envelope]
    aside: list[str]
    is_copied: bool


class WriteFailed(Exception):
    """The disk refused (full, read-only, broken). What was to be written is not; it may be tried again."""


class Outbox:
    """An open outbox. `found` is what an earlier process left."""

    def __init__(
        self, database: sqlite3.Connection, found: Found, *, is_in_memory: bool, lock: int | None
    ) -> None:
        self._database = database
        self._lock = lock
        self._is_full: bool | None = None
        self.found = found
        self.is_in_memory = is_in_memory
        self.next_id = 1 + max((envelope.id for envelope in found.messages), default=0)

    def commit(self, batch: Batch) -> None:
        """Write a batch in one transaction.

        Raises:
            WriteFailed: nothing of it was written.
        """
        run = self._database.execute
        many = self._database.executemany
        try:
            self._be_durable(is_full=bool(batch.messages))
            run("BEGIN IMMEDIATE")
            if batch.claims:
                many("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", _flat(batch.claims, 1))
            if batch.grants:
                many("INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?, ?)", _flat(batch.grants, 4))
            if batch.messages:
                many(
                    "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    _flat(batch.messages, 5),
                )
            if batch.claims_over:
                many("DELETE FROM claims WHERE request = ?", [(request,) for request in batch.claims_over])
            if batch.grants_over:
                many("DELETE FROM grants WHERE task = ? AND attempt = ?", batch.grants_over)
            if batch.messages_over:
                many("DELETE FROM messages WHERE id BETWEEN ? AND ?", _runs(batch.messages_over))
            self._forget(batch)
            run("COMMIT")
        except (sqlite3.Error, OSError) as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.rollback()
            raise WriteFailed(f"the outbox cannot be written: {error}") from None

    def _be_durable(self, *, is_full: bool) -> None:
        """Have the next commit wait for the disk, or leave that to the system."""
        if is_full is not self._is_full:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if is_full else 'NORMAL'}")
            self._is_full = is_full

    def _forget(self, batch: Batch) -> None:
        many = self._database.executemany
        if batch.attempts_over:
            many("DELETE FROM grants WHERE task = ? AND attempt = ?", batch.attempts_over)
            many("DELETE FROM messages WHERE task = ? AND attempt = ?", batch.attempts_over)
        for error, envelope in batch.aside:
            record = f"{envelope.kind} of task {envelope.task} attempt {envelope.attempt}"
            many("INSERT INTO aside (error, record, body) VALUES (?, ?, ?)", [(error, record, envelope.body)])

    def close(self) -> None:
        """Close the file and let go of the lock. What is kept stays."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


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


def in_memory() -> Outbox:
    """Return an outbox that lives as long as the object; for simulation and tests."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.executescript(_SCHEMA)
    return Outbox(database, Found([], [], [], [], is_copied=False), is_in_memory=True, lock=None)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        sentence = f"{folder}: another agent (process {holder}) holds this state folder; only one may"
        raise Fault(Exit.HELD_BY_ANOTHER, sentence) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _open_file(folder: Path, lock: int) -> Outbox:
    file = folder / FILE
    aside: list[str] = []
    for _ in range(2):
        database = None
        try:
            database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=5.0)
            _prepare(database)
            found = _load(database, file, aside)
            return Outbox(database, found, is_in_memory=False, lock=lock)
        except (sqlite3.DatabaseError, _Foreign) as error:
            if database is not None:
                database.close()
            if isinstance(error, sqlite3.OperationalError):
                raise Fault(Exit.NO_STATE_FOLDER, f"{file}: cannot be opened: {error}") from None
            aside.append(f"{_move_aside(file).name}: {error}")
    raise Fault(Exit.NO_STATE_FOLDER, f"{file}: cannot be made anew: {aside[-1]}")


class _Foreign(Exception):
    """A sound database that is not an outbox of ours."""


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 2000")
    if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION or version != VERSION:
        raise _Foreign(f"this is not an outbox of version {VERSION}")
    problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {problem}")


def _load(database: sqlite3.Connection, file: Path, aside: list[str]) -> Found:
    here = (_machine(), file.stat().st_ino)
    owner = database.execute("SELECT machine, inode FROM owner").fetchone()
    identities: dict[tuple[str, str], Identity] = {}

    def who(supervisor: str, instance: str) -> Identity:
        return identities.setdefault((supervisor, instance), Identity(supervisor, instance))

    claims = [ClaimRow(row[0], who(row[1], row[2])) for row in database.execute("SELECT * FROM claims")]
    rows = database.execute("SELECT * FROM grants ORDER BY task, attempt").fetchall()
    grants = [GrantRow._make((*row[:4], who(row[4], row[5]))) for row in rows]
    rows = database.execute("SELECT * FROM messages ORDER BY id").fetchall()
    messages = [Envelope._make((*row[:5], who(row[5], row[6]), *row[7:])) for row in rows]
    good = [envelope for envelope in messages if _is_sound(database, envelope, aside)]
    database.execute("DELETE FROM owner")
    database.execute("INSERT INTO owner VALUES (?, ?)", here)
    return Found(claims, grants, good, aside, is_copied=owner is not None and tuple(owner) != here)


def _is_sound(database: sqlite3.Connection, envelope: Envelope, aside: list[str]) -> bool:
    """Return whether a message can be read; one that cannot is moved to the table of those set aside."""
    try:
        message = msgspec.json.decode(envelope.body, type=TaskMessage)
        if (message.task, message.attempt, message.kind) == (envelope.task, envelope.attempt, envelope.kind):
            return True
        error = "it names another attempt than its row"
    except (msgspec.DecodeError, RecursionError, TypeError) as problem:
        error = str(problem)
    record = f"{envelope.kind} of task {envelope.task} attempt {envelope.attempt}"
    insert = "INSERT INTO aside (error, record, body) VALUES (?, ?, ?)"
    database.execute(insert, (error, record, envelope.body))
    database.execute("DELETE FROM messages WHERE id = ?", (envelope.id,))
    aside.append(f"{record}: {error}")
    return False


def _move_aside(file: Path) -> Path:
    number = 1
    while (kept := file.with_name(f"{file.name}.aside-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    return file.rename(kept)


def _machine() -> str:
    try:
        return MACHINE_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last of each run of neighbours: a hundred messages that went out together are one delete."""
    runs: list[tuple[int, int]] = []
    first = last = -1
    for row in sorted(ids):
        if row == last + 1 and runs:
            last = row
            runs[-1] = (first, last)
        else:
            first = last = row
            runs.append((first, last))
    return runs


def _flat(rows: Iterable[ClaimRow | GrantRow | Envelope], width: int) -> Iterator[tuple[object, ...]]:
    """Return rows with their identity spread into name and instance, after the first `width` columns."""
    for row in rows:
        identity = row.identity
        yield (*row[:width], identity.supervisor, identity.instance, *row[width + 1 :])
