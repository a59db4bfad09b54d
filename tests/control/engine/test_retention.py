"""Forgetting what has ended, leaves first, on a real PostgreSQL. Time is moved by SQL."""

from __future__ import annotations

import asyncpg
import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, sql
from control.engine.supervised import HOLDER, check_whole, code_of, finish, log_of, raw, steer, store
from stateous_contract.codes import Code
from stateous_contract.messages import Report, Spawn, Start

from stateous_control.engine import retention
from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.retention import Forgotten, Windows

DAY = 86_400.0
ALL = Windows(tokens_s=DAY, routines_s=DAY)


async def forget(one: ControlPlane, windows: Windows = ALL) -> Forgotten:
    return await retention.forget(one._pool, windows, batches_max=100)


async def age(database: str) -> None:
    """Let everything have ended two days ago."""
    await sql(
        database, "UPDATE tokens SET ended_at = ended_at - interval '2 days' WHERE ended_at IS NOT NULL"
    )
    await sql(database, "UPDATE tasks SET ended_at = ended_at - interval '2 days' WHERE ended_at IS NOT NULL")


async def ended_token(one: ControlPlane, name: str) -> int:
    await one.start_token(name, None, key=name)
    (grant,) = await one.claim(claim_of("coding"))
    await store(one, grant.task, "build", 1)
    await one.cancel(name)
    return grant.task


async def counts(database: str, tables: dict[str, str]) -> dict[str, int]:
    """How many rows of each table are there, of those that are meant."""
    return {
        table: len(await sql(database, f"SELECT FROM {table} WHERE {whose}"))
        for table, whose in tables.items()
    }


async def names(database: str) -> list[str]:
    return [row["name"] for row in await sql(database, "SELECT name FROM tokens ORDER BY id")]


async def test_what_ended_long_ago_goes_with_all_that_hangs_on_it(database: str) -> None:
    async with plane(database) as one:
        task = await ended_token(one, "old")
        await age(database)
        await ended_token(one, "young")
        await one.start_token("live", None)
        assert await forget(one) == Forgotten(tokens=1, tasks=1)
        assert await forget(one) == Forgotten()
        assert await names(database) == ["young", "live"]
        for table, column in (("checkpoints", "task_id"), ("tasks", "id"), ("history", "token_id")):
            assert await sql(database, f"SELECT FROM {table} WHERE {column} = 1") == []
        # Its log outlives it; its name and key may be used again.
        assert await code_of(one.supervision.task(task)) is Code.TASK_NOT_FOUND
        assert (await log_of(one, task))[:2] == ["created", "claimed"]
        assert (await one.start_token("old", None, key="old"))[1] is True
    await check_whole(database)


@pytest.mark.parametrize("size", [1, 2, 200])
async def test_leaves_go_before_parents_and_nothing_that_lives(
    database: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """S2-43, S2-44, S2-45: whatever the size of a batch."""
    monkeypatch.setattr(retention, "BATCH_MAX", size)
    async with plane(database) as one:
        roots = []
        for _ in range(3):
            view, _ = await one.supervision.start(Start(routine="publish", input=raw(1)), None)
            roots.append(view.task)
        for grant in await one.claim(claim_of(routines={"publish": [1]}, max=3)):
            said = Spawn(**HOLDER, attempt=1, step="s", occurrence=1, routine="part", input=raw(2))
            await one.supervision.spawn(grant.task, said)
        for grant in await one.claim(claim_of(routines={"part": [1]}, max=3)):
            await one.report(grant.task, Report(kind="returned", result=raw(1), attempt=1, **HOLDER))
        for root in roots[:2]:
            await one.report(root, Report(kind="returned", result=raw(1), attempt=1, **HOLDER))
        await age(database)
        # The child of the third has ended, and its parent lives: a replay may still ask for its result.
        assert await forget(one) == Forgotten(routines=2, tasks=4)
        left = await sql(database, "SELECT id, parent_id, current_state FROM tasks ORDER BY id")
        orphans = "SELECT FROM tasks t WHERE parent_id IS NOT NULL AND NOT EXISTS (SELECT FROM tasks p WHERE p.id = t.parent_id)"
        assert await sql(database, orphans) == []
    assert [(row["id"], row["current_state"]) for row in left] == [
        (roots[2], "running"),
        (left[1]["id"], "completed"),
    ]
    assert left[1]["parent_id"] == roots[2]


async def test_of_a_long_life_a_batch_forgets_a_part(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-43, S2-44: its history is whole up to where it ends by now, and the token goes last."""
    monkeypatch.setattr(retention, "ROWS_MAX", 4)
    tables = {"history": "token_id = 1", "checkpoints": "task_id = 1", "tasks": "token_id = 1"}
    async with plane(database) as one:
        await one.start_token("T", None)
        (grant,) = await one.claim(claim_of("coding"))
        for number in range(11):
            await store(one, grant.task, f"s{number}", number)
            await one.note(grant.task, f"line {number}", attempt=1)
        await one.cancel("T")
        await age(database)
        before = await counts(database, tables)
        batches = 0
        while await names(database) == ["T"]:
            await retention.forget(one._pool, ALL, batches_max=1)
            batches += 1
            left = await counts(database, tables)
            assert all(before[table] - left[table] <= 4 for table in tables)
            seqs = await sql(database, "SELECT seq FROM history ORDER BY seq")
            assert [row["seq"] for row in seqs] == list(range(1, len(seqs) + 1))
            before = left
        lines = len(await sql(database, "SELECT FROM task_log"))
        for left_lines in range(lines - 4, -4, -4):
            await retention.forget(one._pool, Windows(logs_s=DAY), batches_max=1)
            assert len(await sql(database, "SELECT FROM task_log")) == max(left_lines, 0)
    assert batches >= 4
    assert before == dict.fromkeys(tables, 0)
    assert await sql(database, "SELECT FROM gone_tasks") == []


async def test_what_was_retried_stays_as_long_as_its_retry(database: str) -> None:
    async with plane(database) as one:
        task = await ended_token(one, "first")
        await sql(database, "UPDATE tokens SET status = 'failed' WHERE name = 'first'")
        again = await steer(one, "retry", task)
        await age(database)
        assert await forget(one) == Forgotten()
        await one.cancel(again.token or "")
        await age(database)
        assert await forget(one) == Forgotten(tokens=2, tasks=2)


async def test_logs_go_under_their_own_time_and_by_nothing_else(database: str) -> None:
    """C15: append-only holds for every log whose task is there or whose time is not over."""
    async with plane(database) as one:
        old = await ended_token(one, "old")
        await age(database)
        await ended_token(one, "young")
        logs = Windows(logs_s=DAY)
        assert (await forget(one, logs)).log_lines == 0
        await forget(one)
        assert (await forget(one, Windows(logs_s=10 * DAY))).log_lines == 0
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await sql(database, "DELETE FROM task_log WHERE task_id = $1", old)
        lines = (await sql(database, "SELECT count(*) AS n FROM task_log WHERE task_id = $1", old))[0]["n"]
        assert (await forget(one, logs)).log_lines == lines > 0
        assert await code_of(one.supervision.log(old, limit=10, before=None)) is Code.TASK_NOT_FOUND
        for statement in ("DELETE FROM task_log", "UPDATE task_log SET kind = 'x'", "TRUNCATE task_log"):
            with pytest.raises(asyncpg.RaiseError, match="append-only"):
                await sql(database, statement)


async def test_a_sweep_forgets_and_a_start_without_times_does_not(database: str) -> None:
    async with plane(database) as one:
        await ended_token(one, "old")
        await age(database)
        await one._sweep.sweep()
        assert await names(database) == ["old"]
    async with plane(database, windows=ALL) as two:
        await two._sweep.sweep()
        assert await names(database) == []


async def test_a_finished_token_is_forgotten_too(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        for state, event in (("coding", "coded"), ("testing", "passed")):
            (grant,) = await one.claim(claim_of(state))
            await finish(one, grant.task, 1, event)
        await sql(database, "UPDATE tokens SET ended_at = NULL, entered_at = entered_at - interval '2 days'")
        assert await forget(one) == Forgotten(tokens=1, tasks=2)
