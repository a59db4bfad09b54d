"""Migrations: whole or not at all, many at once, and never over a newer schema."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from contextlib import suppress

import asyncpg
import pytest

from stateous_control.store import migrate
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import Pool, Rejected


async def fetch(url: str, statement: str) -> list[asyncpg.Record]:
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


async def test_a_migration_that_breaks_half_way_leaves_nothing(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def fill(url: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring an empty database to the first schema, and put tasks of every kind into it."""
    first = migrate.migrations()[:1]
    pool = Pool(url)
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: first)
        patched.setattr(migrate, "LOG_GUARDS", frozenset())
        await migrate._apply_missing(pool, first[0])
    await pool.close()
    await fetch(
        url,
        f"""WITH g AS (INSERT INTO graphs (checksum, structure, workflow, document) VALUES ('c', 's', 'w', '{{}}')),
             k AS (INSERT INTO tokens (id, name, graph, workflow, state, status, visit, context, entered_at, entered_by,
                   seq, visits, events)
                   SELECT i, 'T' || i, 'c', 'w', 'a', 'active', 1, '{{}}', now(), '__started__', 4, '{{}}', '{{}}'
                   FROM generate_series(1, {count}) AS i RETURNING id)
           INSERT INTO tasks (id, token_id, state, visit, current_state, ready_at, watchdog_stop_reason)
           SELECT id, id, 'a', 1, CASE id % 3 WHEN 0 THEN 'pending' WHEN 1 THEN 'parked' ELSE 'completed' END,
             CASE id % 3 WHEN 0 THEN now() END, CASE id % 3 WHEN 1 THEN 'awaiting_event:a' END FROM k""",
    )


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


LOCK_S_MAX = 2.0
"""How long an upgrade may keep a worker waiting, by BH-050."""


@pytest.mark.parametrize(
    "count",
    [20_000, pytest.param(1_000_000, marks=[pytest.mark.prove, pytest.mark.timeout(600)])],
)
async def test_an_older_database_is_upgraded_with_what_is_in_it(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """BH-050: while workers write; tasks of every state are there afterwards, and nobody waits for long."""
    newest = migrate.migrations()
    await fill(empty_database, count, monkeypatch)
    pool = Pool(empty_database)
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
    assert longest_s <= LOCK_S_MAX, "a worker's write waited too long"
    print(f"upgraded {count:,} tasks; the longest wait of a worker's write was {longest_s:.2f} s")


async def test_a_migration_that_waits_for_a_table_lets_workers_write_meanwhile(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
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


async def test_a_vacuum_is_waited_for_with_nobody_in_line_behind(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BH-050: also for longer than a lock is tried for; a vacuum's own lock stands for it."""
    pool = Pool(empty_database)
    assert await migrate._apply_missing(pool, migrate.migrations()[0])
    vacuum, writer = [await asyncpg.connect(empty_database) for _ in range(2)]
    await vacuum.execute("BEGIN; LOCK TABLE tasks IN SHARE UPDATE EXCLUSIVE MODE")
    monkeypatch.setattr(migrate, "LOCK_WAIT_MS", 100)
    monkeypatch.setattr(migrate.log, "warning", lambda *_, **__: pytest.fail("it gave up"))
    running = asyncio.create_task(migrate.migrate(pool))
    async with asyncio.timeout(30):
        while not await writer.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        await writer.execute("SET statement_timeout = 1000; UPDATE tasks SET attempt = 1")
        await vacuum.execute("ROLLBACK")
        await running
    for connection in (vacuum, writer):
        await connection.close()
    await pool.close()


async def test_a_log_without_its_guards_is_no_schema_of_ours(database: str) -> None:
    """S1-105."""
    await fetch(database, "DROP TRIGGER task_log_keeps_all ON task_log")
    pool = Pool(database)
    with pytest.raises(StartRefused, match="task_log_keeps_all on task_log must be there"):
        await migrate.check(pool)
    await pool.close()


def test_no_file_makes_an_index_of_a_table_that_may_be_large_while_others_wait() -> None:
    """BH-050: what a file indexes in its transaction, it has made there; each statement of a gradual file stands alone."""
    for migration in migrate.migrations():
        if migration.is_gradual:
            kinds = [
                re.match(r"(CREATE (UNIQUE )?|DROP )INDEX CONCURRENTLY |UPDATE ", each)
                for each in migration.statements
            ]
            assert all(kinds), migration.name
            continue
        made = set(re.findall(r"^CREATE TABLE (\w+)", migration.text, re.MULTILINE))
        indexed = set(re.findall(r"^CREATE (?:UNIQUE )?INDEX \w+\s+ON (\w+)", migration.text, re.MULTILINE))
        assert indexed <= made, migration.name


SCHEMA = """SELECT indexdef || i.indisvalid AS line FROM pg_indexes x JOIN pg_index i ON i.indexrelid = x.indexname::regclass
    WHERE schemaname = 'public'
  UNION ALL SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)
    FROM information_schema.columns WHERE table_schema = 'public'
  UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
  UNION ALL SELECT pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL SELECT concat_ws(' ', version, name) FROM schema_versions
  ORDER BY 1"""

TOLD = """
import asyncio, sys
from stateous_control.store import migrate
from stateous_control.store.pool import Pool
apply = migrate._apply
def told(pool, session, migration):
    print(migration.version, flush=True)
    return apply(pool, session, migration)
migrate._apply = told
asyncio.run(migrate.migrate(Pool(sys.argv[1])))
"""


def kill_within(url: str, version: int, after_s: float) -> None:
    """Migrate in a process that is killed `after_s` seconds after it began with a file."""
    with subprocess.Popen([sys.executable, "-c", TOLD, url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while (line := child.stdout.readline().strip()) != str(version):
            assert line, "it ended before that file"
        with suppress(subprocess.TimeoutExpired):
            child.wait(after_s)
        child.kill()


SOME = (3, 11)
ROUNDS = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "version",
    [pytest.param(each.version, marks=() if each.version in SOME else pytest.mark.prove) for each in migrate.migrations()],
)  # fmt: skip
async def test_a_migration_that_is_killed_goes_on_the_next_time(
    empty_database: str, database: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """BH-050: at any moment of any file, also with another one beside it; the schema is then that of a new database."""
    if version > 1:
        await fill(empty_database, 20_000, monkeypatch)
    for _ in range(ROUNDS):
        if (await versions(empty_database)) >= version:
            break
        await asyncio.to_thread(kill_within, empty_database, version, random.uniform(0, 0.05))
    pool = Pool(empty_database)
    await asyncio.wait_for(migrate.migrate(pool), 120)
    await pool.close()
    assert await fetch(empty_database, SCHEMA) == await fetch(database, SCHEMA)


async def versions(url: str) -> int:
    pool = Pool(url)
    try:
        return await pool.run(migrate._version)
    finally:
        await pool.close()


async def test_an_index_that_was_left_half_made_is_made_anew(
    empty_database: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BH-050: its server process is ended while it waits for an old snapshot, as a killed one leaves it."""
    files = migrate.migrations()
    pool = Pool(empty_database)
    for migration in files[:10]:
        await migrate._apply_missing(pool, migration)
    reader, killer = [await asyncpg.connect(empty_database) for _ in range(2)]
    await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    half = asyncio.create_task(
        fetch(empty_database, "CREATE INDEX CONCURRENTLY tasks_by_token ON tasks (token_id)")
    )
    async with asyncio.timeout(30):
        while not await killer.fetchval("SELECT count(*) FROM pg_index WHERE NOT indisvalid AND indisready"):
            await asyncio.sleep(0.01)
        await killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'"
        )
        with pytest.raises(asyncpg.PostgresError):
            await half
        await reader.execute("ROLLBACK")
        assert await migrate.migrate(pool) == [migration.name for migration in files[10:]]
    for connection in (reader, killer):
        await connection.close()
    await pool.close()
    assert await fetch(empty_database, SCHEMA) == await fetch(database, SCHEMA)


async def test_a_user_who_may_not_change_the_schema_is_told_so(empty_database: str, database: str) -> None:
    """BH-050: one sentence for a schema that is missing; one that is whole needs no such rights."""
    await fetch(empty_database, "DROP ROLE IF EXISTS reader")
    await fetch(empty_database, "CREATE ROLE reader LOGIN")
    try:
        await fetch(database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO reader")
        missing, whole = (Pool(f"{url}&user=reader", connections_max=1) for url in (empty_database, database))
        with pytest.raises(
            StartRefused, match=r"user may not .* \(permission denied for schema public\): run 'stateous"
        ):
            await migrate.migrate(missing)
        assert await migrate.migrate(whole) == []
        for pool in (missing, whole):
            await pool.close()
    finally:
        await fetch(database, "DROP OWNED BY reader")
        await fetch(database, "DROP ROLE reader")
