"""Heartbeats on a real PostgreSQL: what is renewed, what is lost and why."""

from __future__ import annotations

import asyncio
import random

import pytest
from control.engine.planes import ask, ids, plane, queue, sql
from stateous_contract.messages import HeartbeatRequest

SOON = "SELECT count(*) AS n FROM leases WHERE until > now() + interval '1 minute'"


def beat(
    *tasks: int, supervisor: str = "box", instance: str | None = "i1", attempts: dict[str, int] | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(supervisor=supervisor, tasks=list(tasks), instance=instance, attempts=attempts)


async def age_leases(url: str) -> None:
    await sql(url, "UPDATE leases SET until = now() - interval '1 second'")


async def test_one_heartbeat_renews_all_its_tasks_with_one_statement(database: str) -> None:
    """S3-21, S3-22, and S3-23: a lease that ended unswept is renewed."""
    async with plane(database) as one:
        await queue(database, 50)
        await one.claim(ask("coding", max=50))
        await age_leases(database)
        before = one._pool.statements
        answer = await one.heartbeat(beat(*range(50, 0, -1), attempts={str(n): 1 for n in range(1, 51)}))
        assert one._pool.statements - before == 1
    assert (answer.lost, answer.causes) == ([], {})
    assert (await sql(database, SOON))[0]["n"] == 50


async def test_a_heartbeat_writes_nothing_but_leases(database: str) -> None:
    """S1-102: neither the generation nor the history moves."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding"))
        before = await sql(database, "SELECT xmin::text FROM tasks UNION ALL SELECT xmin::text FROM tokens")
        await one.heartbeat(beat(1))
        assert before == await sql(
            database, "SELECT xmin::text FROM tasks UNION ALL SELECT xmin::text FROM tokens"
        )


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("current_state = 'cancelled', watchdog_stop_reason = 'cancelled:token_left:stopped'", "token_left"),
        ("current_state = 'cancelled', watchdog_stop_reason = 'cancelled:token_cancelled'", "cancelled"),
        ("current_state = 'completed'", "token_left"),
        ("current_state = 'expired', watchdog_stop_reason = 'expired:running'", "expired"),
        ("current_state = 'pending'", "lease_ended"),
        ("current_state = 'failed', watchdog_stop_reason = 'failed:lease_ended'", "lease_ended"),
        ("attempt = 2", "attempt_over"),
    ],
)
async def test_a_lost_task_is_named_with_its_cause(database: str, change: str, cause: str) -> None:
    """S3-24."""
    async with plane(database) as one:
        await queue(database, 2)
        await one.claim(ask("coding", max=2))
        await sql(database, "DELETE FROM leases WHERE task_id = 1")
        await sql(database, f"UPDATE tasks SET {change} WHERE id = 1")
        answer = await one.heartbeat(beat(2, 1, attempts={"1": 1, "2": 1}))
    assert (answer.lost, answer.causes) == ([1], {"1": cause})


async def test_an_unknown_task_is_lost(database: str) -> None:
    async with plane(database) as one:
        answer = await one.heartbeat(beat(7, 3))
    assert (answer.lost, answer.causes) == ([3, 7], {"3": "not_found", "7": "not_found"})


async def test_an_older_attempt_is_lost_and_the_newer_one_is_not_renewed_for_it(database: str) -> None:
    """A-31."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding"))
        await sql(database, "UPDATE tasks SET attempt = 2")
        await sql(database, "UPDATE leases SET attempt = 2, until = now()")
        answer = await one.heartbeat(beat(1, attempts={"1": 1}))
    assert answer.causes == {"1": "attempt_over"}
    assert (await sql(database, SOON))[0]["n"] == 0


async def test_a_twin_of_the_same_name_renews_nothing_of_mine(database: str) -> None:
    """BH-010: who holds is the instance, not the name."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding"))
        await age_leases(database)
        answer = await one.heartbeat(beat(1, instance="i2", attempts={"1": 1}))
    assert answer.lost == [1]
    assert (await sql(database, SOON))[0]["n"] == 0


async def test_a_heartbeat_without_an_instance_is_judged_by_name(database: str) -> None:
    """The baseline's answer has `lost` and nothing else."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding", instance=None))
        answer = await one.heartbeat(beat(1, 5, instance=None))
        other = await one.heartbeat(beat(1, supervisor="other", instance=None))
    assert (answer.lost, answer.causes, answer.now, other.lost) == ([5], None, None, [1])


async def test_tasks_of_a_paused_token_are_named_to_be_paused(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 2)
        await one.claim(ask("coding", max=2))
        await sql(database, "UPDATE tokens SET status = 'paused', paused_at = now() WHERE id = 2")
        assert (await one.heartbeat(beat(1, 2, attempts={"1": 1, "2": 1}))).pause == [2]


async def test_shuffled_heartbeats_never_deadlock(database: str) -> None:
    """BH-006, the short form for beats."""
    async with plane(database) as one, plane(database) as two:
        await queue(database, 100)
        assert len(ids(await one.claim(ask("coding", max=100)))) == 100
        answers = await asyncio.gather(
            *((one, two)[n % 2].heartbeat(beat(*random.sample(range(1, 101), 100))) for n in range(40))
        )
    assert all(answer.lost == [] for answer in answers)
    rows = await sql(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert rows[0]["deadlocks"] == 0
