"""Ended leases behind others that cannot be ended, or whose owner has a namesake."""

from __future__ import annotations

import pytest
from control.engine.planes import ask, held_by_another, plane, queue, sql
from stateous_contract.messages import HeartbeatRequest

from stateous_control.engine import sweep
from stateous_control.rules.book import Book, Task
from stateous_control.rules.leases import end_lease


async def end_leases(url: str) -> None:
    await sql(url, "UPDATE leases SET until = now() - interval '1 second'")


@pytest.mark.parametrize(
    ("ahead", "in_the_way"),
    [
        (700, "held"),
        (700, "broken"),
        pytest.param(20_000, "held", marks=[pytest.mark.prove, pytest.mark.timeout(600)]),
        pytest.param(2_000, "broken", marks=[pytest.mark.prove, pytest.mark.timeout(600)]),
    ],
)
async def test_a_lease_behind_many_that_cannot_be_ended_is_ended_in_the_same_pass(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ahead: int,
    in_the_way: str,
) -> None:
    """DX-15, BH-007, BH-012: more than a batch of ended leases whose tokens are held, or whose rules break, comes first."""

    def breaking(book: Book, task: Task, lease_s: float) -> bool:
        if in_the_way == "broken" and task.id <= ahead:
            raise ZeroDivisionError("a fault of ours")
        return end_lease(book, task, lease_s)

    monkeypatch.setattr(sweep, "end_lease", breaking)
    held = (
        f"SELECT 1 FROM tokens WHERE id <= {ahead} FOR NO KEY UPDATE" if in_the_way == "held" else "SELECT 1"
    )
    async with plane(database) as one:
        await queue(database, ahead + 3)
        # What comes last needs different treatment: tried again, out of retries, expired meanwhile.
        await sql(database, "UPDATE tasks SET retries = 0 WHERE id = $1", ahead + 2)
        for _ in range(ahead // 1_000 + 1):
            await one.claim(ask("coding", max=1_000))
        await end_leases(database)
        await sql(
            database, "UPDATE tasks SET expires_at = now() - interval '1 second' WHERE id = $1", ahead + 3
        )
        async with held_by_another(database, held):
            await one._sweep.sweep()
            left = await sql(database, "SELECT count(*) FROM leases WHERE task_id <= $1", ahead)
        rows = await sql(
            database,
            "SELECT current_state, failures FROM tasks WHERE id > $1 AND state = 'coding' ORDER BY id",
            ahead,
        )
    assert tuple(left[0]) == (ahead,)
    assert [row["current_state"] for row in rows[:2]] == ["pending", "failed"]
    assert rows[2]["current_state"] in ("pending", "expired")
    assert await sql(database, "SELECT 1 FROM leases WHERE task_id > $1", ahead) == []


async def test_leases_of_a_dead_process_end_although_its_name_lives_on(database: str) -> None:
    """DX-13: two processes of one name, the older one draining; it dies, its successor beats, the list forgets both."""
    async with plane(database) as one:
        await queue(database, 5)
        old = [grant.task for grant in await one.claim(ask("coding", max=3, instance="old"))]
        new = [grant.task for grant in await one.claim(ask("coding", max=1, instance="new"))]
        both = [
            await one.heartbeat(HeartbeatRequest(supervisor="box", instance=instance, tasks=tasks))
            for instance, tasks in (("old", old), ("new", new))
        ]
        assert [beat.lost for beat in both] == [[], []]
        await sql(database, "UPDATE leases SET until = now() - interval '1 second' WHERE instance = 'old'")
        await one.heartbeat(HeartbeatRequest(supervisor="box", instance="new", tasks=new))
        await sql(database, "DELETE FROM supervisors")
        await one._sweep.sweep()
        rows = await sql(database, "SELECT id, attempt, failures FROM tasks WHERE attempt > 0 ORDER BY id")
        assert [tuple(row) for row in rows] == [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 0)]
        await sql(database, "UPDATE tasks SET ready_at = now() WHERE failures = 1")
        again = await one.claim(ask("coding", max=9, instance="third"))
        assert sorted((grant.task, grant.attempt) for grant in again) == [(1, 2), (2, 2), (3, 2), (5, 1)]
        beat = await one.heartbeat(HeartbeatRequest(supervisor="box", instance="old", tasks=old))
        assert sorted(lost.task if hasattr(lost, "task") else lost for lost in beat.lost) == old
