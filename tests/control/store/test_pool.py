"""The door to PostgreSQL: what a transaction stands on, what is tried again, what trouble means."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from stateous_contract.codes import Code

from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Listener, Mode, Pool, Rejected, Session


async def fetch(url: str, statement: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.WRITE, Mode.CLAIM, Mode.BEAT])
async def test_the_isolation_of_a_transaction_is_its_own_whatever_the_database_says(
    database: str, mode: Mode
) -> None:
    """BH-006: ALTER DATABASE … SET default_transaction_isolation changes nothing."""
    name = (await fetch(database, "SELECT current_database() AS name"))[0]["name"]
    await fetch(database, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    pool = Pool(database)
    rows = await pool.run(lambda s: s.fetch("SELECT current_setting('transaction_isolation') AS level"), mode)
    await pool.close()
    assert rows[0]["level"] == "read committed"


async def test_limits_are_set_in_each_transaction_and_leave_nothing_behind(database: str) -> None:
    pool = Pool(database, connections_max=1)
    inside = await pool.run(lambda s: s.fetch("SELECT current_setting('statement_timeout') AS t"), Mode.WRITE)
    connection = pool._idle[0]
    outside = await connection.fetch("SELECT current_setting('statement_timeout') AS t")
    await pool.close()
    assert (inside[0]["t"], outside[0]["t"]) == ("15s", "0")


async def test_a_deadlock_is_tried_again_and_nobody_hears_of_it(database: str) -> None:
    """BH-006: whoever is stopped by a deadlock runs again."""
    await fetch(database, "CREATE TABLE pair (id int PRIMARY KEY, n int)")
    await fetch(database, "INSERT INTO pair VALUES (1, 0), (2, 0)")
    name = (await fetch(database, "SELECT current_database() AS name"))[0]["name"]
    await fetch(database, f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    pool = Pool(database)
    meet = asyncio.Barrier(2)
    is_met = False

    async def cross(session: Session, first: int, second: int) -> None:
        nonlocal is_met
        await session.fetch("UPDATE pair SET n = n + 1 WHERE id = $1", first)
        if not is_met:
            await meet.wait()
            is_met = True
        await session.fetch("UPDATE pair SET n = n + 1 WHERE id = $1", second)

    await asyncio.gather(pool.run(lambda s: cross(s, 1, 2)), pool.run(lambda s: cross(s, 2, 1)))
    await pool.close()
    assert [row["n"] for row in await fetch(database, "SELECT n FROM pair ORDER BY id")] == [2, 2]
    assert await fetch(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


async def test_a_connection_that_was_terminated_while_idle_costs_nobody_an_answer(database: str) -> None:
    """BH-049."""
    pool = Pool(database)
    await asyncio.gather(*(pool.run(lambda s: s.fetch("SELECT pg_sleep(0.02)")) for _ in range(3)))
    await fetch(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    rows = await pool.run(lambda s: s.fetch("SELECT 1 AS one"))
    await pool.close()
    assert rows[0]["one"] == 1


async def test_a_connection_lost_in_a_transaction_is_unavailable_and_the_next_works(database: str) -> None:
    pool = Pool(database)
    with pytest.raises(Unavailable) as caught:
        await pool.run(lambda s: s.fetch("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert (caught.value.code, caught.value.retry_after_s) == (Code.DATABASE_BUSY, 1.0)
    assert await pool.run(lambda s: s.fetch("SELECT 1"))
    await pool.close()


async def test_a_database_that_is_not_there_is_unavailable() -> None:
    pool = Pool("postgresql://nobody@/none?host=/tmp/no-such-folder&port=1")
    with pytest.raises(Unavailable, match="does not answer"):
        await pool.run(lambda s: s.fetch("SELECT 1"))


async def test_a_busy_pool_is_unavailable_in_bounded_time(database: str) -> None:
    pool = Pool(database, connections_max=1)
    holding = asyncio.create_task(pool.run(lambda s: s.fetch("SELECT pg_sleep(0.3)")))
    await asyncio.sleep(0.1)
    with pytest.raises(Unavailable, match="busy"):
        await pool.run(lambda s: s.fetch("SELECT 1"), wait_s=0.05)
    await holding
    await pool.close()


async def test_data_that_the_database_cannot_hold_is_rejected_not_unavailable(database: str) -> None:
    pool = Pool(database)
    with pytest.raises(Rejected):
        await pool.run(lambda s: s.fetch("SELECT $1::text", "nul \x00"))
    with pytest.raises(Rejected):
        await pool.run(lambda s: s.fetch("SELECT $1::int", "one"))
    assert await pool.run(lambda s: s.fetch("SELECT 1"))
    await pool.close()


async def test_a_pooler_that_forgets_prepared_statements_is_found_out(database: str) -> None:
    """PgBouncer in transaction mode hands the next transaction another connection, without our statements."""
    pool = Pool(database, connections_max=1)
    await pool.run(lambda s: s.fetch("SELECT 1 AS one"))
    await pool._idle[0].execute("DEALLOCATE ALL")
    rows = await pool.run(lambda s: s.fetch("SELECT 1 AS one"))
    assert (rows[0]["one"], pool.statement_cache) == (1, False)
    await pool._idle[0].execute("DEALLOCATE ALL")
    assert await pool.run(lambda s: s.fetch("SELECT 1 AS one"))
    await pool.close()


async def test_a_cancelled_transaction_frees_its_place_and_changes_nothing(database: str) -> None:
    await fetch(database, "CREATE TABLE one (n int)")
    pool = Pool(database, connections_max=1)

    async def write(session: Session) -> None:
        await session.fetch("INSERT INTO one VALUES (1)")
        await asyncio.sleep(60)

    task = asyncio.create_task(pool.run(write))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    rows = await pool.run(lambda s: s.fetch("SELECT count(*) AS n FROM one"))
    await pool.close()
    assert rows[0]["n"] == 0


async def test_a_listener_comes_back_after_its_connection_was_terminated(database: str) -> None:
    """BH-049: LISTEN is not lost for the rest of the process's life."""
    pool = Pool(database)
    heard: list[str] = []
    listener = Listener(pool, "channel", heard.append)
    running = asyncio.create_task(listener.run())
    for round_ in ("first", "second"):
        while not listener.is_listening:
            await asyncio.sleep(0.01)
        await fetch(database, f"SELECT pg_notify('channel', '{round_}')")
        while round_ not in heard:
            await asyncio.sleep(0.01)
        await fetch(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()",
        )
        await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.close()
    assert heard == ["first", "second"]
