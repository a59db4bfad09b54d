"""Migrations: whole or not at all, many at once, and never over a newer schema."""

from __future__ import annotations

import asyncio
import time

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
    names = [name for each in applied for name in each]
    assert sorted(names) == [migration.name for migration in migrate.migrations()], (
        "each file is applied once"
    )


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


async def beats(url: str, stop: asyncio.Event) -> float:
    """Renew one task's row as fast as it goes, and return the longest that one took, in seconds."""
    longest_s = 0.0
    connection = await asyncpg.connect(url)
    while not stop.is_set():
        began = time.monotonic()
        await connection.execute("UPDATE tasks SET attempt = attempt + 1 WHERE id = 3")
        longest_s = max(longest_s, time.monotonic() - began)
        await asyncio.sleep(0)
    await connection.close()
    return longest_s


@pytest.mark.parametrize(
    "count",
    [20_000, pytest.param(1_000_000, marks=[pytest.mark.prove, pytest.mark.timeout(600)])],
)
async def test_an_older_database_is_upgraded_with_what_is_in_it(
    empty_database: str, monkeypatch, count: int
) -> None:
    """BH-050: while workers write; tasks of every state are there afterwards, and nobody waits for long."""
    newest = migrate.migrations()
    pool = Pool(empty_database)
    monkeypatch.setattr(migrate, "migrations", lambda: newest[:1])
    monkeypatch.setattr(migrate, "LOG_GUARDS", frozenset())
    for migration in newest[:1]:
        await migrate._apply_missing(pool, migration)
    await fetch(
        empty_database,
        f"""WITH g AS (INSERT INTO graphs (checksum, structure, workflow, document) VALUES ('c', 's', 'w', '{{}}')),
             k AS (INSERT INTO tokens (id, name, graph, workflow, state, status, visit, context, entered_at, entered_by,
                   seq, visits, events)
                   SELECT i, 'T' || i, 'c', 'w', 'a', 'active', 1, '{{}}', now(), '__started__', 4, '{{}}', '{{}}'
                   FROM generate_series(1, {count}) AS i RETURNING id)
           INSERT INTO tasks (id, token_id, state, visit, current_state, ready_at, watchdog_stop_reason)
           SELECT id, id, 'a', 1, CASE id % 3 WHEN 0 THEN 'pending' WHEN 1 THEN 'parked' ELSE 'completed' END,
             CASE id % 3 WHEN 0 THEN now() END, CASE id % 3 WHEN 1 THEN 'awaiting_event:a' END FROM k""",
    )
    monkeypatch.undo()
    stop = asyncio.Event()
    worker = asyncio.create_task(beats(empty_database, stop))
    applied = await migrate.migrate(pool)
    stop.set()
    longest_s = await worker
    await pool.close()
    assert applied == [migration.name for migration in newest[1:]]
    rows = await fetch(
        empty_database,
        "SELECT count(*) AS n, sum(log_seq) AS lines, min(handler_version) AS version, min(owner) AS owner FROM tasks",
    )
    assert tuple(rows[0]) == (count, 0, 1, "default")
    assert longest_s < 10, "a worker's write waited longer than leaves time for another beat"
    print(f"upgraded {count:,} tasks; the longest wait of a worker's write was {longest_s:.2f} s")


async def test_a_migration_that_waits_for_a_table_lets_workers_write_meanwhile(
    empty_database: str, monkeypatch
) -> None:
    """BH-050: somebody reads a table for long; who stands in line behind the migration stands there for two seconds."""
    newest = migrate.migrations()
    pool = Pool(empty_database)
    assert await migrate._apply_missing(pool, newest[0])
    reader, writer = [await asyncpg.connect(empty_database) for _ in range(2)]
    await reader.execute("BEGIN; SELECT count(*) FROM tasks")
    refused = asyncio.Event()
    monkeypatch.setattr(migrate.log, "warning", lambda *_, **__: refused.set())
    monkeypatch.setattr(migrate, "WAIT_S", 0.2)
    running = asyncio.create_task(migrate.migrate(pool))
    async with asyncio.timeout(30):
        await refused.wait()
        await writer.execute("UPDATE tasks SET attempt = 1")
    assert not running.done()
    await reader.execute("ROLLBACK")
    assert await asyncio.wait_for(running, 30) == [migration.name for migration in newest[1:]]
    for connection in (reader, writer):
        await connection.close()
    await pool.close()


async def test_a_log_without_its_guards_is_no_schema_of_ours(database: str) -> None:
    """S1-105."""
    await fetch(database, "DROP TRIGGER task_log_keeps_all ON task_log")
    pool = Pool(database)
    with pytest.raises(StartRefused, match="task_log_keeps_all on task_log must be there"):
        await migrate.check(pool)
    await pool.close()
