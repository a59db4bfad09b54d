"""Migrations: whole or not at all, many at once, and never over a newer schema."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from stateous_control.store import migrate
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import Pool, Rejected


async def fetch(url: str, statement: str):
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


async def test_five_control_planes_that_start_at_once_migrate_once(empty_database: str) -> None:
    """BH-050."""
    pools = [Pool(empty_database) for _ in range(5)]
    applied = await asyncio.gather(*(migrate.migrate(pool) for pool in pools))
    for pool in pools:
        await pool.close()
    assert sorted(map(len, applied)) == [0, 0, 0, 0, len(migrate.migrations())]


async def test_a_migration_that_breaks_half_way_leaves_nothing(empty_database: str, monkeypatch) -> None:
    whole = migrate.migrations()[0]
    broken = migrate.Migration(1, whole.name, whole.text + "\nSELECT no_such_function();")
    pool = Pool(empty_database)
    monkeypatch.setattr(migrate, "migrations", lambda: [broken])
    with pytest.raises(Rejected, match="no_such_function"):
        await migrate.migrate(pool)
    monkeypatch.undo()
    assert await fetch(empty_database, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []
    assert await migrate.migrate(pool) == [migration.name for migration in migrate.migrations()]
    await pool.close()


async def test_a_newer_schema_is_refused_with_one_sentence(database: str) -> None:
    await fetch(database, "INSERT INTO schema_versions (version, name) VALUES (999, '0999_later.sql')")
    pool = Pool(database)
    with pytest.raises(StartRefused, match=r"has schema version 999, .* upgrade this one"):
        await migrate.migrate(pool)
    await pool.close()


async def test_a_schema_that_is_missing_or_old_is_refused_by_the_check(empty_database: str) -> None:
    """`--no-migrate`."""
    pool = Pool(empty_database)
    with pytest.raises(StartRefused, match=r"needs version .* run 'stateous-control migrate' first"):
        await migrate.check(pool)
    await pool.close()
