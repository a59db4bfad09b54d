"""Pauses, resumes, generations and expiry through the engine, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, queue, sql
from control.engine.supervised import (
    HOLDER,
    answer,
    ask,
    check_whole,
    claim,
    code_of,
    finish,
    log_of,
    park,
    start_and_claim,
    steer,
    store,
)
from stateous_contract.codes import Code
from stateous_contract.messages import HeartbeatRequest, Report, Wait

from stateous_control.engine.people import TaskView
from stateous_control.store.people import TaskFilter


async def test_a_pause_says_that_it_comes_after_the_current_step(database: str) -> None:
    """S1-68, S1-69, S1-70, S1-97."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        before = await one.supervision.task(grant.task)
        view = await steer(one, "pause", grant.task)
        read = await one.supervision.task(grant.task)
        assert await store(one, grant.task, "build", 1) == 1
    assert (view.pausing, read.pausing) == ("pausing after the current step",) * 2
    assert (view.current_state, view.generation) == ("running", before.generation + 1)
    assert read.pause_requested_at is not None


async def test_a_worker_hears_of_a_pause_by_its_heartbeat_and_its_next_checkpoint(database: str) -> None:
    """S1-71."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        beat = HeartbeatRequest(tasks=[grant.task], attempts={str(grant.task): 1}, **HOLDER)
        assert (await one.heartbeat(beat)).pause == []
        await steer(one, "pause", grant.task)
        assert (await one.heartbeat(beat)).pause == [grant.task]
        assert (await park(one, grant.task)).status == "parked"
        view = await one.supervision.task(grant.task)
        assert (view.current_state, view.watchdog_stop_reason, view.pausing) == (
            "parked",
            "user_paused",
            None,
        )


async def test_nothing_changes_before_the_worker_gets_there(database: str) -> None:
    """S1-72."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await steer(one, "pause", grant.task)
        await sql(database, "UPDATE tasks SET pause_requested_at = now() - interval '1 hour'")
        await one._sweep.sweep()
        view = await one.supervision.task(grant.task)
    assert (view.current_state, view.supervisor) == ("running", "box")


async def test_a_resumed_task_goes_on_after_the_point_where_it_paused(database: str) -> None:
    """S1-76, S1-77, S1-78."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 1)
        await steer(one, "pause", grant.task)
        await park(one, grant.task, step="between", occurrence=1)
        await steer(one, "resume", grant.task)
        again = await claim(one)
    assert [(each.step, bytes(each.value)) for each in again.checkpoints or ()] == [
        ("build", b"1"),
        ("between", b"null"),
    ]


async def test_a_paused_pending_task_is_not_handed_out(database: str) -> None:
    """S1-75."""
    async with plane(database) as one:
        await queue(database, 1)
        await steer(one, "pause", 1)
        assert await one.claim(claim_of("coding")) == []
        await steer(one, "resume", 1)
        assert (await claim(one)).task == 1


async def test_a_paused_token_says_that_it_is_pausing_while_its_task_is_held(database: str) -> None:
    """S1-69, for tokens: paused it is, and what runs goes on."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        view = await one.pause("T")
        assert (view.status, view.pausing) == ("paused", "after the current step")
        assert (await one.token("T")).pausing == "after the current step"
        assert (await one.list_tokens())[0].pausing == "after the current step"
        await park(one, grant.task)
        assert "pausing" not in str((await one.token("T")).pausing)
        await one.resume("T")
        assert (await claim(one)).attempt == 2


async def test_of_fifty_resumes_one_succeeds_and_one_worker_drives(database: str) -> None:
    """S1-79, S1-80, S1-83, DX-04."""
    async with plane(database) as one, plane(database) as two:
        grant = await start_and_claim(one)
        await steer(one, "pause", grant.task)
        await park(one, grant.task)
        generation = (await one.supervision.task(grant.task)).generation
        codes = await asyncio.gather(
            *(code_of(steer((one, two)[n % 2], "resume", grant.task, generation)) for n in range(50))
        )
        grants = await asyncio.gather(
            *((one, two)[n % 2].claim(claim_of("coding", instance=f"i{n}")) for n in range(20))
        )
    assert Counter(codes) == {None: 1, Code.ALREADY_RESUMED: 49}
    assert sum(map(len, grants)) == 1
    await check_whole(database)


# The generation gate.

VERBS = ("pause", "resume", "cancel")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("off", [-1, 1])
async def test_another_generation_changes_nothing(database: str, verb: str, off: int) -> None:
    """S1-33, S1-35, S1-96."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await steer(one, "pause", grant.task)
        before = await one.supervision.task(grant.task)
        assert await code_of(steer(one, verb, grant.task, before.generation + off)) is Code.STALE_GENERATION
        assert await one.supervision.task(grant.task) == before


@pytest.mark.parametrize("verb", VERBS)
async def test_of_two_with_the_same_generation_one_succeeds(database: str, verb: str) -> None:
    """S1-97, S1-98, S1-99."""
    async with plane(database) as one, plane(database) as two:
        grant = await start_and_claim(one)
        view = await steer(one, "pause", grant.task)
        results = await asyncio.gather(
            *(steer(each, verb, grant.task, view.generation) for each in (one, two)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, TaskView)]
        assert len(won) == 1
        assert won[0].generation == view.generation + 1
        again = await code_of(steer(one, "pause", grant.task))
    assert again is (Code.TASK_OVER if verb == "cancel" else None)


async def test_a_stale_dashboard_pauses_nothing(database: str) -> None:
    """S1-100."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task)
        seen = (await one.supervision.task(grant.task)).generation
        await answer(one, asked.question)
        await claim(one)
        assert await code_of(steer(one, "pause", grant.task, seen)) is Code.STALE_GENERATION
        assert (await one.supervision.task(grant.task)).pause_requested_at is None


async def test_worker_traffic_does_not_make_human_values_stale(database: str) -> None:
    """S1-102."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        seen = (await one.supervision.task(grant.task)).generation
        await store(one, grant.task, "build", 1)
        await one.note(grant.task, "working", attempt=1)
        await one.heartbeat(HeartbeatRequest(tasks=[grant.task], **HOLDER))
        assert (await steer(one, "pause", grant.task, seen)).generation == seen + 1


async def test_a_task_shows_its_worker_while_it_runs_and_no_longer(database: str) -> None:
    """S1-02, S1-03, S1-35."""
    async with plane(database) as one:
        await queue(database, 1)
        assert (await one.supervision.task(1)).supervisor is None
        await claim(one)
        assert (await one.supervision.task(1)).supervisor == "box"
        await ask(one, 1)
        assert (await one.supervision.task(1)).supervisor is None


async def test_a_waiting_reader_sees_the_end_at_once(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        waiting = asyncio.create_task(one.supervision.task(grant.task, wait_s=20))
        changed = asyncio.create_task(
            one.supervision.task(grant.task, wait_s=20, after_generation=grant.generation)
        )
        await asyncio.sleep(0.05)
        await steer(one, "pause", grant.task)
        async with asyncio.timeout(3):
            assert (await changed).pausing
        assert not waiting.done()
        await finish(one, grant.task, 1, "coded")
        async with asyncio.timeout(3):
            assert (await waiting).current_state == "completed"


async def test_cancelling_a_task_cancels_its_token_and_tells_its_worker(database: str) -> None:
    """S2-46, S2-50, S2-51."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        view = await steer(one, "cancel", grant.task)
        beat = HeartbeatRequest(tasks=[grant.task], attempts={str(grant.task): 1}, **HOLDER)
        assert (await one.heartbeat(beat)).causes == {str(grant.task): "cancelled"}
        assert await code_of(store(one, grant.task, "s", 1)) is Code.TASK_CANCELLED
        late = Report(kind="event", event="coded", attempt=1, **HOLDER)
        assert await code_of(one.report(grant.task, late)) is Code.TASK_NOT_HELD
        assert (await one.token("T")).status == "cancelled"
    assert (view.current_state, view.watchdog_stop_reason) == ("cancelled", "cancelled:user")


async def test_a_retry_takes_up_what_was_passed_and_answered(database: str) -> None:
    """C14."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 7)
        await answer(one, (await ask(one, grant.task)).question, "yes")
        await claim(one)
        await one.report(grant.task, Report(kind="failed", error="x", retryable=False, attempt=2, **HOLDER))
        await one.cancel("T")
        assert (
            await code_of(steer(one, "retry", grant.task)) is Code.NOT_RETRYABLE
        )  # its token went on to `failed`


async def test_a_retry_is_linked_both_ways_and_carries_what_was_saved(database: str) -> None:
    """C14."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 7)
        await answer(one, (await ask(one, grant.task)).question, "yes")
        await steer(one, "cancel", grant.task)
        fresh = await steer(one, "retry", grant.task)
        old = await one.supervision.task(grant.task)
        again = await claim(one)
    assert (fresh.retried_from, old.retried_as, fresh.token) == (
        grant.task,
        fresh.task,
        f"T.retry-{grant.task}",
    )
    assert (again.task, again.attempt) == (fresh.task, 1)
    assert [bytes(each.value) for each in again.checkpoints or ()] == [b"7"]
    assert [bytes(each.answer) for each in again.answers or ()] == [b'"yes"']
    await check_whole(database)


# Expiry.


async def test_the_sweep_expires_tasks_and_questions_by_the_databases_clock(database: str) -> None:
    """S1-85 … S1-92: one line each, terminal, nothing guessed, the earlier reason kept."""
    async with plane(database, task_ttl_s=3600.0) as one:
        asked, paused, queued = [await start_and_claim(one, name) for name in ("asked", "paused", "queued")]
        await ask(one, asked.task)
        await steer(one, "pause", paused.task)
        await park(one, paused.task)
        await one.report(queued.task, Report(kind="released", reason="drain", attempt=1, **HOLDER))
        await one._sweep.sweep()
        assert await sql(database, "SELECT 1 FROM tasks WHERE current_state = 'expired'") == []
        await sql(database, "UPDATE questions SET expires_at = clock_timestamp() - interval '1 ms'")
        await sql(
            database,
            "UPDATE tasks SET expires_at = clock_timestamp() - interval '1 ms' WHERE id <> $1",
            asked.task,
        )
        await one._sweep.sweep()
        await one._sweep.sweep()
        reasons = [
            (await one.supervision.task(each.task)).watchdog_stop_reason for each in (asked, paused, queued)
        ]
        logs = [(await log_of(one, each.task)).count("expired") for each in (asked, paused, queued)]
        assert await one.claim(claim_of("coding", max=9)) == []
    assert reasons == ["expired:awaiting_user_answer:go", "expired:user_paused", "expired:pending"]
    assert logs == [1, 1, 1]
    await check_whole(database)


async def test_a_diverged_task_is_shown_resumed_by_a_person_and_expires(database: str) -> None:
    """S2-13: nobody is given it, the list finds it by its kind, a stale look changes nothing."""
    here: dict[str, Any] = {"step": "build", "occurrence": 1}
    async with plane(database, task_ttl_s=3600.0) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 1)
        wait = Wait(kind="nondeterminism", found="made#1")
        parked = await park(one, grant.task, wait=wait, **here)
        await one._sweep.sweep()
        assert await one.claim(claim_of("coding")) == []
        wanted = TaskFilter(kind="nondeterminism")
        assert [
            each.task for each in (await one.supervision.tasks(wanted, limit=9, cursor=None)).entries
        ] == [1]
        assert await code_of(steer(one, "resume", 1, parked.generation - 1)) is Code.STALE_GENERATION
        await steer(one, "resume", 1)
        again = await claim(one)
        assert [each.step for each in again.checkpoints or ()] == ["build"]
        await park(one, 1, attempt=2, wait=wait, **here)
        await check_whole(database)
        await sql(database, "UPDATE tasks SET expires_at = clock_timestamp() - interval '1 ms'")
        await one._sweep.sweep()
        view = await one.supervision.task(1)
    assert (view.current_state, view.watchdog_stop_reason) == ("expired", "expired:nondeterminism:build")
    assert view.failures == 0
    await check_whole(database)


async def test_a_worker_of_an_expired_task_hears_of_it(database: str) -> None:
    async with plane(database, task_ttl_s=0.01) as one:
        grant = await start_and_claim(one)
        await asyncio.sleep(0.02)
        await one._sweep.sweep()
        beat = HeartbeatRequest(tasks=[grant.task], attempts={str(grant.task): 1}, **HOLDER)
        assert (await one.heartbeat(beat)).causes == {str(grant.task): "expired"}
        assert await code_of(store(one, grant.task, "s", 1)) is Code.TASK_OVER


async def test_many_sweepers_expire_each_task_once(database: str) -> None:
    """S1-88, S1-90."""
    async with plane(database) as one, plane(database) as two, plane(database) as three:
        await queue(database, 100)
        await sql(database, "UPDATE tasks SET expires_at = now() - interval '1 second' WHERE id <= 60")
        await asyncio.gather(*(each._sweep.sweep() for each in (one, two, three)))
        await one._sweep.sweep()
    rows = await sql(database, "SELECT current_state, count(*) AS n FROM tasks GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("expired", 60), ("pending", 40)]
    assert (await sql(database, "SELECT count(*) AS n FROM task_log WHERE kind = 'expired'"))[0]["n"] == 60
