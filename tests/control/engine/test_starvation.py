"""BH-012: what nobody serves, what is paused, and a snapshot that somebody holds slow no claim without end."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from control.engine.planes import ask, graph, held_by_another, ids, plane, queue, sql
from stateous_contract.messages import Report

from stateous_control.engine.operations import ControlPlane
from stateous_control.store.pool import Mode, Pool
from stateous_control.store.statements import statements

AT_ONCE = 4
CHUNK = 1_000
APART = 10 * CHUNK
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tasks"


async def cycles(url: str, one: ControlPlane, first: int) -> tuple[float, float]:
    """Claim and report a thousand fresh tasks; return how many a second, and the 99th percentile of a claim."""
    await queue(url, CHUNK, first=first)
    took_s: list[float] = []

    async def work() -> None:
        while True:
            began = time.monotonic()
            grants = await one.claim(ask("coding"))
            if not grants:
                return
            took_s.append(time.monotonic() - began)
            said = Report(kind="event", event="coded", attempt=1, supervisor="box", instance="i1")
            await one.report(grants[0].task, said)

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    assert len(took_s) == CHUNK
    return CHUNK / (time.monotonic() - began), sorted(took_s)[CHUNK * 99 // 100]


async def crowd(url: str, unserved: int, held: int) -> None:
    """Tasks that nobody serves, and before them tasks of paused and cancelled tokens, as the rules leave their rows."""
    await queue(url, unserved, "testing", first=30_000_000)
    await queue(url, held, first=5_000_000)
    await sql(
        url,
        "UPDATE tokens SET status = CASE WHEN id % 2 = 0 THEN 'paused' ELSE 'cancelled' END,"
        " paused_at = CASE WHEN id % 2 = 0 THEN now() END WHERE id BETWEEN 5000000 AND 29999999",
    )
    await sql(
        url,
        "UPDATE tasks SET ready_at = NULL, held_ready_at = CASE WHEN id % 2 = 0 THEN ready_at END,"
        " current_state = CASE WHEN id % 2 = 0 THEN 'pending' ELSE 'cancelled' END,"
        " watchdog_stop_reason = CASE WHEN id % 2 = 1 THEN 'cancelled:token_cancelled' END"
        " WHERE id BETWEEN 5000000 AND 29999999",
    )


@pytest.mark.prove
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("unserved", "held", "chunks"), [(20_000, 2_000, 12), (200_000, 20_000, 100)], ids=["short", "whole"]
)
async def test_claims_keep_their_speed_under_a_held_snapshot(
    database: str, unserved: int, held: int, chunks: int
) -> None:
    """Throughput at the end is at least half of that at the start, a claim's p99 within five times: in one run."""
    async with plane(database) as one:
        await cycles(database, one, 1)  # everything is planned and loaded
        _, empty_s = await cycles(database, one, APART)
        await crowd(database, unserved, held)
        rates: list[float] = []
        slowest_s: list[float] = []
        async with held_by_another(database, SNAPSHOT):
            for number in range(chunks):
                rate, p99_s = await cycles(database, one, 100_000 + number * APART)
                rates.append(rate)
                slowest_s.append(p99_s)
        part = max(1, chunks // 10)
        first, last = sum(rates[:part]) / part, sum(rates[-part:]) / part
        p99_s = sorted(slowest_s[-part:])[part // 2]
        print(
            f"{first:.0f} → {last:.0f} cycles/s; p99 {empty_s * 1e3:.1f} ms empty, {p99_s * 1e3:.1f} ms at the end"
        )
        assert last >= first / 2
        assert p99_s <= 5 * empty_s
        # An agent that serves both kinds, and caps the older one, gets both at once; without a cap age alone decides.
        await queue(database, 5, first=2_000_000)
        both = await one.claim(ask("coding", "testing", max=1_000, max_by_state={"testing": 900}))
        assert {grant.state for grant in both} == {"coding", "testing"}


@pytest.mark.prove
@pytest.mark.timeout(600)
async def test_an_ended_lease_is_found_behind_20000_that_run(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 20_001)
        for _ in range(21):
            await one.claim(ask("coding", max=1_000))
        await sql(database, "UPDATE leases SET until = now() - interval '1 second' WHERE task_id = 20001")
        await one._sweep.sweep()
        assert ids(await one.claim(ask("coding", supervisor="other"))) == [20_001]


async def explained(database: str, mode: Mode, name: str, values: str) -> str:
    """Return the plan that a statement gets in an empty database: it is kept when there is more."""
    pool = Pool(database)

    async def explain(session):  # type: ignore[no-untyped-def]
        await session.execute(f"PREPARE {name} AS " + getattr(statements, name))
        return await session.fetch(f"EXPLAIN EXECUTE {name} ({values})")

    lines = [row[0].strip() for row in await pool.run(explain, mode)]
    await pool.close()
    return "\n".join(lines)


async def test_request_ids_are_found_and_forgotten_by_their_whole_key(database: str) -> None:
    """The dead rows of one instance lie side by side in the index; under a held snapshot no look may walk them."""
    key = "(supervisor = {0}.supervisor) AND (instance = {0}.instance) AND (request = {0}.request) AND (scope = "
    none = "ARRAY[]::text[]"
    found = await explained(database, Mode.CLAIM, "remembered", f"ARRAY[]::int[], {none}, {none}, {none}, ''")
    assert key.format("w") in found, found
    numbers, texts, ints = "ARRAY[]::bigint[]", none, "ARRAY[]::int[]"
    values = (
        f"{numbers}, {numbers}, {ints}, {texts}, {texts}, {numbers}, {texts}, {numbers}, {numbers}, {texts}, {texts},"
        f" {texts}, {ints}, {ints}, 120, '', {numbers}, {texts}, {texts}, {texts}"
    )
    given = await explained(database, Mode.CLAIM, "give", values)
    assert key.format("f") in given, given


async def test_the_live_tasks_of_a_token_are_found_by_the_token_whatever_the_planner_believes(
    database: str,
) -> None:
    """A plan that reads the small table whole and compares it with each token outlives the smallness."""
    await sql(database, "INSERT INTO graphs VALUES ($1, '', '', '{}')", graph().checksum)
    await queue(database, 3)
    await sql(database, "ANALYZE tasks")
    plan = await explained(database, Mode.WRITE, "read_tasks", "ARRAY[]::bigint[], ARRAY[]::bigint[]")
    assert "Index Cond: (token_id = n.token_id)" in plan, plan
    assert "Index Cond: (id = n_1.id)" in plan, plan
    assert "Materialize" not in plan
    assert "Join Filter" not in plan
    assert "Bitmap" not in plan


@pytest.mark.parametrize(
    "name",
    ["update_tasks", "read_leases", "renew", "grant_again", "read_timers", "delete_timers", "delete_held"],
)
async def test_what_is_nearly_empty_and_full_of_dead_rows_is_found_by_its_keys(
    database: str, name: str
) -> None:
    """Leases, timers and held events come and go: a plan from when they were vacuumed empty must not walk them."""
    await sql(database, "VACUUM (ANALYZE) leases, timers, held_events")
    plan = (await planned(database, name)).splitlines()
    scans = [n for n, line in enumerate(plan) if re.search(r"Scan .*on (leases|timers|held_events)", line)]
    assert scans
    for scan in scans:
        assert plan[scan + 1].startswith("Index Cond"), "\n".join(plan)


async def planned(database: str, name: str) -> str:
    """Return the plan that a statement keeps, whatever its values are."""
    pool = Pool(database)

    async def explain(session):  # type: ignore[no-untyped-def]
        await session.execute(f"PREPARE it AS {getattr(statements, name)}")
        (found,) = await session.fetch(
            "SELECT cardinality(parameter_types) AS n FROM pg_prepared_statements WHERE name = 'it'"
        )
        return await session.fetch(f"EXPLAIN EXECUTE it ({', '.join(['NULL'] * found['n'])})")

    lines = [row[0].strip() for row in await pool.run(explain, Mode.WRITE)]
    await pool.close()
    return "\n".join(lines)


async def test_an_instance_keeps_its_newest_request_ids_on_record_and_no_others(database: str) -> None:
    """Each is forgotten when the ninth after it comes; a claim that finds nothing forgets nothing."""
    from stateous_control.engine.granting import REQUESTS_KEPT

    async with plane(database) as one:
        await queue(database, 30)
        requests = [ask("coding", request=f"r{number}") for number in range(20)]
        for request in requests:
            await one.claim(request)
        await asyncio.gather(*(one.claim(ask("coding", request=f"s{number}")) for number in range(3)))
        rows = await sql(database, "SELECT request FROM claim_requests")
        assert {row["request"] for row in rows} == {"s0", "s1", "s2", *(f"r{n}" for n in range(15, 20))}
        assert len(rows) == REQUESTS_KEPT
        assert ids(await one.claim(requests[19])) == [20]
