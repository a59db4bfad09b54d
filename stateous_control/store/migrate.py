"""Brings a database to this program's schema: numbered SQL files, one transaction each, under an advisory lock.

Safe when several control planes start at once and when one is killed half way: a file is applied whole or not at all.
It never goes backwards; a schema that is newer than the program is refused with one sentence. See ADR 12.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from stateous_control.logs import logger
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import LockedOut, Pool, Session

LOCK: Final = 7_283_914_460_125_331
LOCK_WAIT_S: Final = 2
WAIT_S: Final = 1.0
LOG_GUARDS: Final = frozenset({"task_log_keeps_rows", "task_log_keeps_all"})
"""The triggers that keep the log of tasks append-only, against its owner too (S1-103 … S1-105)."""

_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_LEDGER: Final = (
    "CREATE TABLE IF NOT EXISTS schema_versions "
    "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
)


log = logger()


@dataclass(frozen=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str


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

    Raises `StartRefused` where the schema is newer than this program or the database is too old, `Unavailable` where
    it does not answer.
    """
    applied = [migration.name for migration in migrations() if await _apply_missing(pool, migration)]
    await check(pool)
    return applied


async def check(pool: Pool) -> None:
    """Raise `StartRefused` unless the schema is exactly this program's, and its log protected; changes nothing."""
    found = await pool.run(_version)
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
    """Apply a file unless it was. A table that is held is waited for, but not with everybody else in line behind us."""
    while True:
        try:
            return await pool.run(lambda session: _apply(session, migration))
        except LockedOut:
            log.warning("migration.waits", name=migration.name, seconds=WAIT_S)
            await asyncio.sleep(WAIT_S)


async def _apply(session: Session, migration: Migration) -> bool:
    session.timeout_s = 86_400
    # The lock is waited for as long as another's migration takes; its end, not a limit, is what we need.
    await session.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
    await session.fetch("SELECT pg_advisory_xact_lock($1)", LOCK)
    await session.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
    if await _version(session) >= migration.version:
        return False
    rows = await session.fetch("SELECT current_setting('server_version_num')::int AS number")
    if rows[0]["number"] < 140_000:
        raise StartRefused(
            f"the database is PostgreSQL {rows[0]['number'] // 10_000}, it must be 14 or newer"
        )
    await session.execute(_LEDGER)
    await session.execute(migration.text)
    await session.fetch(
        "INSERT INTO schema_versions (version, name) VALUES ($1, $2)", migration.version, migration.name
    )
    return True
