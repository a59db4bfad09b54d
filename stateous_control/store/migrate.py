"""Brings a database to this program's schema: numbered SQL files, one transaction each, under an advisory lock.

Safe when several control planes start at once and when one is killed half way: a file is applied whole or not at all.
A file that makes indexes of large tables is the exception: its statements are transactions of their own, in which
nobody is kept waiting, and each that was done is skipped the next time (ADR 42). It never goes backwards; a schema
that is newer than the program is refused with one sentence. See ADR 12.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from stateous_control.logs import logger
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import Forbidden, LockedOut, Mode, Pool, Session

LOCK: Final = 7_283_914_460_125_331
LOCK_WAIT_MS: Final = 500
QUIET_WAIT_MS: Final = 10_000
WAIT_S: Final = 1.0
LOOK_S: Final = 0.1
TELL_S: Final = 5.0
WHOLE_S: Final = 86_400.0
LOG_GUARDS: Final = frozenset({"task_log_keeps_rows", "task_log_keeps_all"})
"""The triggers that keep the log of tasks append-only, against its owner too (S1-103 … S1-105)."""

_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_MADE: Final = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_TOUCHED: Final = re.compile(r"(?:ALTER TABLE|DROP TABLE|REFERENCES) (\w+)")
_INDEX: Final = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)")
_LEDGER: Final = (
    "CREATE TABLE IF NOT EXISTS schema_versions "
    "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
)
_STATE_OF_INDEX: Final = (
    "SELECT i.indisvalid AS is_whole, EXISTS (SELECT 1 FROM pg_stat_progress_create_index p "
    "WHERE p.datname = current_database() AND p.index_relid = i.indexrelid) AS is_built "
    "FROM pg_index i WHERE i.indexrelid = to_regclass($1)"
)


log = logger()


@dataclass(frozen=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str

    @property
    def is_gradual(self) -> bool:
        """Whether its statements are transactions of their own."""
        return _INDEX.search(self.text) is not None

    @property
    def touched(self) -> list[str]:
        """The tables that were there before, and that it locks."""
        return sorted({*_TOUCHED.findall(self.text)} - {*_MADE.findall(self.text)})

    @property
    def statements(self) -> list[str]:
        """Its statements one by one; only for a gradual file, which holds no text with a semicolon."""
        return [each.strip() for each in _COMMENT.sub("", self.text).split(";") if each.strip()]


def migrations() -> list[Migration]:
    """Return the files that came with this program, in order."""
    found = []
    for file in resources.files("stateous_control.store").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), file.name, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


async def migrate(pool: Pool) -> list[str]:
    """Apply what is missing and return the names of the files applied.

    Raises `StartRefused` where the schema is newer than this program, the database is too old or its user may not
    change the schema, `Unavailable` where it does not answer.
    """
    try:
        applied = [migration.name for migration in migrations() if await _apply_missing(pool, migration)]
    except Forbidden as error:
        raise StartRefused(
            f"the database's user may not bring the schema up to date ({error}): run 'stateous-control migrate' as "
            f"the user that owns it"
        ) from None
    await check(pool)
    return applied


async def check(pool: Pool) -> None:
    """Raise `StartRefused` unless the schema is exactly this program's, and its log protected; changes nothing."""
    try:
        found = await pool.run(_version)
    except Forbidden as error:
        raise StartRefused(f"the database's user may not read the schema's version: {error}") from None
    newest = migrations()[-1].version
    if found > newest:
        raise StartRefused(
            f"the database has schema version {found}, and this program knows versions up to {newest}: "
            f"it was migrated by a newer release, so upgrade this one"
        )
    if found < newest:
        raise StartRefused(
            f"the database has schema version {found}, and this program needs version {newest}: "
            f"run 'stateous-control migrate' first"
        )
    missing = LOG_GUARDS - await pool.run(_guards)
    if missing:
        raise StartRefused(
            f"the log of tasks is not protected: {', '.join(sorted(missing))} on task_log must be there and "
            f"ENABLE ALWAYS; somebody has dropped or disabled it"
        )


async def _guards(session: Session) -> frozenset[str]:
    rows = await session.fetch(
        "SELECT tgname::text AS name FROM pg_trigger WHERE tgrelid = 'task_log'::regclass AND tgenabled = 'A'"
    )
    return frozenset(row["name"] for row in rows)


async def _version(session: Session) -> int:
    rows = await session.fetch("SELECT to_regclass('schema_versions') IS NOT NULL AS is_there")
    if not rows[0]["is_there"]:
        return 0
    rows = await session.fetch("SELECT coalesce(max(version), 0) AS version FROM schema_versions")
    return int(rows[0]["version"])


async def _apply_missing(pool: Pool, migration: Migration) -> bool:
    """Apply a file unless it was. What is held is waited for, but not with everybody else in line behind us."""
    while True:
        try:
            done = await pool.run(lambda session: _apply(pool, session, migration), Mode.PLAIN)
        except LockedOut:
            log.warning("migration.waits", name=migration.name, seconds=WAIT_S)
            await asyncio.sleep(WAIT_S)
        else:
            if done is not None:
                return done
            await asyncio.sleep(LOOK_S)


async def _apply(pool: Pool, session: Session, migration: Migration) -> bool | None:
    """Apply a file and return whether it was missing; None while somebody else applies one.

    The lock is asked for again and again: who waits for it inside a statement holds a snapshot, which the other's
    indexes would wait for.
    """
    session.timeout_s = WHOLE_S
    await session.execute(
        f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}; SET LOCAL statement_timeout = 0; "
        "SET LOCAL idle_in_transaction_session_timeout = 0"
    )
    if not (await session.fetch("SELECT pg_try_advisory_xact_lock($1) AS is_ours", LOCK))[0]["is_ours"]:
        return None
    if await _version(session) >= migration.version:
        return False
    rows = await session.fetch("SELECT current_setting('server_version_num')::int AS number")
    if rows[0]["number"] < 140_000:
        raise StartRefused(
            f"the database is PostgreSQL {rows[0]['number'] // 10_000}, it must be 14 or newer"
        )
    if migration.is_gradual:
        # This transaction keeps the lock meanwhile and is in no index's way: it has written nothing, and a statement of
        # the simple protocol ends the snapshot that the last `fetch` left open.
        await session.execute("SELECT 1")
        async with pool.alone(WHOLE_S) as beside:
            for statement in migration.statements:
                await _take_step(beside, statement)
    await session.execute(_LEDGER)
    if not migration.is_gradual:
        await _quiet(session, migration.touched)
        await session.execute(migration.text)
    await session.fetch(
        "INSERT INTO schema_versions (version, name) VALUES ($1, $2)", migration.version, migration.name
    )
    return True


async def _quiet(session: Session, tables: list[str]) -> None:
    """Get the tables' vacuum out of the way, which gives up only when it is waited for longer than we wait for others.

    This lock keeps neither readers nor writers waiting, also while it is waited for.
    """
    if tables:
        await session.execute(
            f"SET LOCAL lock_timeout = {QUIET_WAIT_MS}; LOCK TABLE {', '.join(tables)} IN SHARE UPDATE EXCLUSIVE MODE; "
            f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}"
        )


async def _take_step(beside: Session, statement: str) -> None:
    """Run one statement of a gradual file unless what it makes is there."""
    match = _INDEX.match(statement)
    if match is not None and await _is_made(beside, match[1]):
        return
    what = " ".join(statement.split()[:6])
    telling = asyncio.get_running_loop().call_later(
        TELL_S, lambda: log.info("migration.goes_on", statement=what)
    )
    try:
        await beside.execute(statement)
    finally:
        telling.cancel()


async def _is_made(beside: Session, index: str) -> bool:
    """Return whether an index is whole; what a try that was killed left of it is dropped."""
    while True:
        rows = await beside.fetch(_STATE_OF_INDEX, index)
        if not rows or rows[0]["is_whole"]:
            return bool(rows)
        if rows[0]["is_built"]:  # the server goes on for whoever is gone
            await asyncio.sleep(LOOK_S)
        else:
            await beside.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
