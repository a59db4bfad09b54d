"""The one door to SQLite: the outbox and journal of one agent, a file in its state folder.

It holds what must survive `kill -9`: request ids of claims before they are sent, grants before their routine
starts, and what is to be delivered before it is sent (ADR 11). The file is locked by its owner and only ever
used by one thread at a time. Request ids and grants are safe from the process's death, messages from a power
cut too (`synchronous`). What cannot be read or sent is set aside, never thrown away (A-40). `outbox_file` opens it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from stateous_supervisor.agent.assignment import Identity

VERSION: Final = 1
APPLICATION: Final = 0x53544F42  # "STOB", so that a foreign database is not taken for ours
ASIDE_MAX: Final = 100  # records that stay set aside; older ones make room

SCHEMA: Final = f"""
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
    """What an earlier process left. `aside` says what could not be read now, `earlier` what was set aside before."""

    claims: list[ClaimRow]
    grants: list[GrantRow]
    messages: list[Envelope]
    aside: list[str]
    is_copied: bool
    earlier: list[str]


class WriteFailed(Exception):
    """The disk refused (full, read-only, broken). What was to be written is not; it may be tried again."""


class Outbox:
    """An open outbox. `found` is what an earlier process left.

    Args:
        file: where it stands; None keeps it in memory.
        lock: the descriptor whose lock makes it ours; closed with it.
    """

    def __init__(
        self, database: sqlite3.Connection, found: Found, *, file: Path | None = None, lock: int | None = None
    ) -> None:
        self._database = database
        self._lock = lock
        self._file = file
        self._inode = file.stat().st_ino if file is not None else 0
        self._is_full: bool | None = None
        self.found = found
        self.is_in_memory = file is None
        self.next_id = 1 + max((envelope.id for envelope in found.messages), default=0)

    def commit(self, batch: Batch) -> None:
        """Write a batch in one transaction. Where there is no room, what has gathered in the log of writes makes some.

        Raises:
            WriteFailed: nothing of it was written.
        """
        try:
            self._write(batch)
        except (sqlite3.Error, OSError):
            try:
                self._make_room()
                self._write(batch)
            except (sqlite3.Error, OSError) as error:
                raise WriteFailed(f"the outbox cannot be written: {error}") from None

    def _write(self, batch: Batch) -> None:
        run = self._database.execute
        try:
            self._be_there()
            self._be_durable(is_full=bool(batch.messages))
            run("BEGIN IMMEDIATE")
            self._add(batch)
            self._forget(batch)
            run("COMMIT")
        except (sqlite3.Error, OSError):
            with contextlib.suppress(sqlite3.Error):
                self._database.rollback()
            raise

    def _be_there(self) -> None:
        """Refuse to write to a file that was removed or replaced: SQLite would, and no start would find it (BH-031)."""
        try:
            is_there = self._file is None or self._file.stat().st_ino == self._inode
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise OSError(f"{self._file} was removed or replaced; only a restart makes it anew")

    def _make_room(self) -> None:
        """Move what is in the write-ahead log to its place, and give the log's blocks back to the disk (A-41)."""
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _add(self, batch: Batch) -> None:
        many = self._database.executemany
        if batch.claims:
            many("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", flat(batch.claims, 1))
        if batch.grants:
            many("INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?, ?)", flat(batch.grants, 4))
        if batch.messages:
            many(
                "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                flat(batch.messages, 5),
            )

    def _be_durable(self, *, is_full: bool) -> None:
        """Have the next commit wait for the disk, or leave that to the system."""
        if is_full is not self._is_full:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if is_full else 'NORMAL'}")
            self._is_full = is_full

    def _forget(self, batch: Batch) -> None:
        many = self._database.executemany
        if batch.claims_over:
            many("DELETE FROM claims WHERE request = ?", [(request,) for request in batch.claims_over])
        if batch.grants_over:
            many("DELETE FROM grants WHERE task = ? AND attempt = ?", batch.grants_over)
        if batch.messages_over:
            many("DELETE FROM messages WHERE id BETWEEN ? AND ?", _runs(batch.messages_over))
        if batch.attempts_over:
            many("DELETE FROM grants WHERE task = ? AND attempt = ?", batch.attempts_over)
            many("DELETE FROM messages WHERE task = ? AND attempt = ?", batch.attempts_over)
        if batch.aside:
            set_aside(
                self._database, [(error, name_of(envelope), envelope.body) for error, envelope in batch.aside]
            )

    def close(self) -> None:
        """Close the file and let go of the lock. What is kept stays."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def in_memory() -> Outbox:
    """Return an outbox that lives as long as the object; for simulation and tests."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.executescript(SCHEMA)
    return Outbox(database, Found([], [], [], [], is_copied=False, earlier=[]))


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


def flat(rows: Iterable[ClaimRow | GrantRow | Envelope], width: int) -> Iterator[tuple[object, ...]]:
    """Return rows with their identity spread into name and instance, after the first `width` columns."""
    for row in rows:
        identity = row.identity
        yield (*row[:width], identity.supervisor, identity.instance, *row[width + 1 :])


def name_of(envelope: Envelope) -> str:
    """Return how people are told of a message."""
    return f"{envelope.kind} of task {envelope.task} attempt {envelope.attempt}"


def set_aside(database: sqlite3.Connection, records: Iterable[tuple[str, str, bytes | None]]) -> None:
    """Keep records that cannot be read or sent: why, what it is, and its bytes; the newest `ASIDE_MAX`."""
    database.executemany("INSERT INTO aside (error, record, body) VALUES (?, ?, ?)", records)
    database.execute("DELETE FROM aside WHERE id <= (SELECT max(id) FROM aside) - ?", (ASIDE_MAX,))
