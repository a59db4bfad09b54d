"""Sleeps and signals through the engine, on a real PostgreSQL. Time is moved by SQL, never waited for."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, queue, sql
from control.engine.supervised import (
    await_signal,
    check_whole,
    claim,
    code_of,
    finish,
    log_of,
    park,
    raw,
    send,
    sleep,
    start_and_claim,
)
from stateous_contract.codes import Code
from stateous_contract.messages import Grant, Report, Wait

from stateous_control.engine.operations import ControlPlane

DUE = "UPDATE waits SET parts = replace(parts, to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS'), '2020-01-01T00:00:00'), due_at = '2020-01-01' WHERE due_at IS NOT NULL"

SPANS_S = [0.2, 1.0, 3600.0, 26 * 86400.0, 200 * 86400.0, 400 * 86400.0]


def steps_of(grant: Grant) -> list[tuple[str, bytes]]:
    return [(each.step, bytes(each.value)) for each in grant.checkpoints or ()]


async def test_a_sleep_is_over_when_the_database_says_so(database: str) -> None:
    """S2-08, S2-09, S2-27, S2-31: parked with its moment, then claimed with what it passed."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        parked = await sleep(one, grant.task, 300)
        view = await one.supervision.task(grant.task)
        assert (parked.status, view.status, view.watchdog_stop_reason) == (
            "parked",
            "waiting",
            "sleeping:nap#1",
        )
        await one._sweep.sweep()
        assert await one.claim(claim_of("coding")) == []
        await sql(database, DUE)
        await one._sweep.sweep()
        again = await claim(one)
    assert (again.task, again.attempt) == (grant.task, 2)
    assert steps_of(again) == [("nap", b'{"outcome":"slept"}')]
    await check_whole(database)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
async def test_a_sleep_lasts_its_seconds_wherever_the_database_stands(database: str, zone: str) -> None:
    """BH-045: seconds are seconds, over one change of the clock, over two, and over 24.8 days."""
    await sql(database, f"ALTER DATABASE engine SET timezone = '{zone}'")
    spans_s = [*SPANS_S, until_the_clock_changes_s(zone)]
    async with plane(database) as one:
        await queue(database, len(spans_s))
        for for_s in spans_s:
            await sleep(one, (await claim(one)).task, for_s)
    rows = await sql(database, "SELECT began_at, due_at FROM waits ORDER BY task_id")
    assert [row["due_at"] - row["began_at"] for row in rows] == [timedelta(seconds=each) for each in spans_s]


def until_the_clock_changes_s(zone: str) -> float:
    """Return whole days in seconds, after which the clocks of a zone have changed once."""
    now = datetime.now(UTC)
    offset = now.astimezone(ZoneInfo(zone)).utcoffset()
    days = range(1, 366)
    return 86400.0 * next(
        n for n in days if (now + timedelta(n)).astimezone(ZoneInfo(zone)).utcoffset() != offset
    )


async def test_a_sleep_keeps_its_moment_over_attempts_and_restarts(database: str) -> None:
    """S2-01, S2-10, S2-26, DX-11."""
    async with plane(database, retry_delay_s=0.0) as one:
        grant = await start_and_claim(one)
        first = await sleep(one, grant.task, 60)
    for attempt in (2, 3):
        async with plane(database, retry_delay_s=0.0) as one:
            await one.report(grant.task, Report(kind="failed", error="from outside"))
            assert (await claim(one)).attempt == attempt
            assert (await sleep(one, grant.task, 3600, attempt=attempt)).until == first.until
    await check_whole(database)


async def test_a_timeout_is_an_outcome_and_no_failure(database: str) -> None:
    """C10, DX-11."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await await_signal(one, grant.task, timeout_s=60.0)
        await sql(database, DUE)
        await one._sweep.sweep()
        again = await claim(one)
        assert (await one.supervision.task(grant.task)).failures == 0
    assert steps_of(again) == [("here", b'{"outcome":"timeout"}')]


@pytest.mark.parametrize("moment", ["before the claim", "before the wait", "during it"])
@pytest.mark.parametrize("address", ["task", "token"])
async def test_a_signal_is_delivered_once_whenever_it_was_sent(
    database: str, moment: str, address: str
) -> None:
    """DX-09, S2-32."""

    async def tell(one: ControlPlane) -> None:
        if address == "task":
            await send(one, 1, payload={"n": 2**70})
        else:
            said: dict[str, Any] = {"key": None, "actor": None}
            await one.supervision.signal_token("T-1", "go", raw({"n": 2**70}), **said)

    async with plane(database) as one:
        await queue(database, 1)
        if moment == "before the claim":
            await tell(one)
        await claim(one)
        if moment == "before the wait":
            await tell(one)
        parked = await await_signal(one, 1)
        if moment == "during it":
            await tell(one)
            (_, value), attempt = steps_of(await claim(one))[0], 2
        else:
            value, attempt = bytes(parked.value), 1  # type: ignore[arg-type]
        assert json.loads(value) == {"outcome": "signal", "name": "go", "payload": {"n": 2**70}}
        assert (await await_signal(one, 1, step="next", attempt=attempt)).status == "parked"
    await check_whole(database)


async def test_a_key_sends_one_signal(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        first, second = [await send(one, grant.task, key="k") for _ in range(2)]
        assert (first.duplicate, second.duplicate) == (False, True)
        assert (await await_signal(one, grant.task)).status == "ready"
        assert (await await_signal(one, grant.task, step="next")).status == "parked"


async def test_the_first_of_several_ends_the_wait(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        of = [Wait(kind="sleep", for_s=60.0), Wait(kind="signal", name="a"), Wait(kind="signal", name="b")]
        await park(one, grant.task, wait=Wait(kind="any", of=of), step="first", occurrence=1)
        assert (await send(one, grant.task, "b", 1)).delivered
        again = await claim(one)
        assert (await send(one, grant.task, "a", 1)).delivered is False
    assert steps_of(again) == [("first", b'{"outcome":"signal","name":"b","payload":1,"index":2}')]


async def test_waits_leave_no_trace_in_the_budget(database: str) -> None:
    """DX-01, S2-29: a task without retries sleeps and waits four times, and no row is ready and unclaimable."""
    async with plane(database) as one:
        await one.start_token("T", None)
        grant = await claim(one)
        await finish(one, grant.task, 1, "coded")
        grant = await claim(one, "testing")
        for number in range(4):
            await sleep(one, grant.task, 60, attempt=grant.attempt, step=f"s{number}")
            await sql(database, DUE)
            await one._sweep.sweep()
            grant = await claim(one, "testing")
            await await_signal(one, grant.task, attempt=grant.attempt, step=f"g{number}")
            await send(one, grant.task)
            grant = await claim(one, "testing")
        view = await one.supervision.task(grant.task)
        await finish(one, grant.task, grant.attempt, "passed")
    assert (view.attempt, view.failures, view.retries) == (9, 0, 0)
    await check_whole(database)


LONG = [pytest.mark.prove, pytest.mark.timeout(1800)]
CONNECTIONS = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=LONG)])
async def test_the_herd_wakes_once_and_starves_nobody(database: str, count: int) -> None:
    """BH-045, S2-25: sleepers come due together; meanwhile they hold no lease and no connection, and others work on."""
    async with plane(database, connections_max=4) as one, plane(database, connections_max=4) as two:
        await queue(database, count)
        for _ in range(0, count, 500):
            grants = await one.claim(claim_of("coding", max=500))
            await asyncio.gather(*(sleep(one, grant.task, 3600) for grant in grants))
        assert await sql(database, "SELECT FROM leases") == []
        assert (await sql(database, CONNECTIONS))[0]["n"] <= 12
        await one.start_token("OTHER", None)
        await sql(database, DUE)
        await asyncio.gather(one._sweep.sweep(), two._sweep.sweep())
        (first,) = await one.claim(claim_of("coding"))
        woken = {first.task}
        while grants := await one.claim(claim_of("coding", max=500)):
            woken |= {grant.task for grant in grants}
        counts = await sql(
            database, "SELECT count(*) AS n FROM task_log WHERE kind = 'wait_over' GROUP BY task_id"
        )
    assert first.token == "OTHER", "who was ready before the herd goes before it"
    assert len(woken) == count + 1
    assert [row["n"] for row in counts] == [1] * count
    await check_whole(database)


async def race(one: ControlPlane, two: ControlPlane, task: int, chance: random.Random) -> None:
    """One round: a signal at a random moment around the park; whoever was first, the wait ends."""

    async def later(call: object) -> object:
        await asyncio.sleep(chance.random() * 0.004)
        return await call  # type: ignore[misc]

    parked, sent = await asyncio.gather(
        later(await_signal(one, task)), later(send(two, task, payload=1)), return_exceptions=True
    )
    assert not isinstance(parked, BaseException), parked
    assert not isinstance(sent, BaseException), sent
    if parked.status == "parked":  # type: ignore[attr-defined]
        assert sent.delivered, "the wake was lost"  # type: ignore[attr-defined]
        (again,) = await one.claim(claim_of("coding"))
        assert again.task == task
    await one.supervision.cancel(task, (await one.supervision.task(task)).generation)


async def rounds(database: str, count: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with plane(database) as one, plane(database) as two:
        for number in range(1, count + 1):
            grant = await start_and_claim(one, f"R-{number}")
            await race(one, two, grant.task, chance)
    await check_whole(database)


async def test_no_wake_is_lost(database: str) -> None:
    """DX-02, in short."""
    await rounds(database, 8)


@pytest.mark.prove
@pytest.mark.timeout(1800)
async def test_no_wake_is_lost_in_a_thousand_rounds(database: str) -> None:
    """DX-02."""
    await rounds(database, 1000)


async def test_a_late_worker_cannot_park(database: str) -> None:
    """S2-58."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await sleep(one, grant.task, 60)
        await sql(database, DUE)
        await one._sweep.sweep()
        await claim(one)
        assert await code_of(sleep(one, grant.task, 60, step="late")) is Code.ATTEMPT_OVER


async def test_a_cancelled_sleeper_is_cancelled_at_once(database: str) -> None:
    """S2-51."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await sleep(one, grant.task, 60)
        await one.cancel("T")
        assert await code_of(send(one, grant.task)) is Code.TASK_OVER
        assert (await log_of(one, grant.task))[-1] == "cancelled"
    await check_whole(database)


async def test_until_is_a_moment_of_the_database(database: str) -> None:
    """S2-28: `until` is told, with its offset, whatever the caller's was."""
    until = datetime.fromisoformat("2030-12-24T18:00:00+01:00")
    async with plane(database) as one:
        grant = await start_and_claim(one)
        wait = Wait(kind="sleep", until=until)
        parked = await park(one, grant.task, wait=wait, step="eve", occurrence=1)
    assert parked.until == "2030-12-24T17:00:00Z"
