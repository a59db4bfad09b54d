"""Questions through the engine, on a real PostgreSQL: one transaction to ask, one to answer, and nothing in between."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import held_by_another, plane, queue, sql
from control.engine.supervised import (
    DECISIONS,
    HOLDER,
    answer,
    ask,
    check_whole,
    claim,
    code_of,
    finish,
    start_and_claim,
    steer,
    store,
)
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import HeartbeatRequest, Report

from stateous_control.store.failures import Unavailable
from stateous_control.store.people import QuestionFilter


async def test_a_question_is_stored_with_all_that_was_asked(database: str) -> None:
    """S1-36, S1-38, S1-41: a read with the id works at once."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task, schema=None)
        view = await one.supervision.question(asked.question)
    assert (view.task, view.token, view.key, view.status) == (grant.task, "T", "go", "pending")
    assert json.loads(bytes(view.data)) == {"diff": "…", "n": 2**70}
    assert (view.asked_by, view.answered_by) == ("box", None)


async def test_a_question_expires_by_the_databases_clock(database: str) -> None:
    """S1-39, S1-86."""
    async with plane(database) as one:
        asked = await ask(one, (await start_and_claim(one)).task, ttl_s=90.0)
    rows = await sql(
        database, "SELECT extract(epoch FROM expires_at - now())::float8 AS left_s FROM questions"
    )
    assert asked.parked
    assert 80 < rows[0]["left_s"] <= 90


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.prove)])
async def test_asking_frees_the_slot_and_many_parked_tasks_use_none(database: str, count: int) -> None:
    """S1-48, S2-24: no lease is held, and other work is handed out at once."""
    async with plane(database) as one:
        await queue(database, count)
        for grant in await one.claim(claim_of("coding", max=count)):
            await ask(one, grant.task)
        await one.start_token("late", None)
        assert (await claim(one)).token == "late"
    assert (await sql(database, "SELECT count(*) AS n FROM leases"))[0]["n"] == 1


async def test_the_decisions_are_on_the_row_with_the_park(database: str) -> None:
    """S1-50, S1-51."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await ask(one, grant.task)
        view = await one.supervision.task(grant.task)
    assert json.loads(bytes(view.locked_decisions)) == DECISIONS  # type: ignore[arg-type]


async def test_an_answer_readies_the_task_and_comes_with_its_grant(database: str) -> None:
    """S1-42, S1-52, S1-60, S1-66: another worker, from the row alone, on every replay."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", {"url": "x"})
        asked = await ask(one, grant.task)
        await answer(one, asked.question, "yes")
        again = await claim(one, supervisor="elsewhere", instance="i9")
        kept = await one.supervision.task(grant.task)
    assert (again.task, again.attempt, again.version) == (grant.task, 2, 1)
    assert [(each.key, each.occurrence, bytes(each.answer)) for each in again.answers or ()] == [
        ("go", 1, b'"yes"')
    ]
    assert [(each.step, bytes(each.value)) for each in again.checkpoints or ()] == [
        ("build", b'{"url": "x"}')
    ]
    assert (kept.watchdog_stop_reason, kept.failures) == (None, 0)


async def test_a_plain_grant_says_nothing_of_replay(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
    assert (grant.answers, grant.checkpoints) == (None, None)


async def test_twenty_parks_cost_no_attempt_of_the_budget(database: str) -> None:
    """S1-06, S1-07, S1-08, S2-29: the routine asks twenty times, and passes each step once."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        for number in range(1, 21):
            assert len(grant.answers or ()) == number - 1
            assert len(grant.checkpoints or ()) == number - 1
            await store(one, grant.task, "step", number, attempt=grant.attempt, occurrence=number)
            asked = await ask(one, grant.task, attempt=grant.attempt, occurrence=number)
            await answer(one, asked.question, number)
            grant = await claim(one)
        await finish(one, grant.task, grant.attempt, "coded")
        view = await one.supervision.task(grant.task)
    assert (view.current_state, view.failures, view.attempt) == ("completed", 0, 21)
    await check_whole(database)


async def test_an_answer_survives_the_control_plane_that_took_it(database: str) -> None:
    """S1-14, S1-54, S1-59: another one, with nothing in memory, resumes the task."""
    async with plane(database) as one:
        asked = await ask(one, (await start_and_claim(one)).task)
        await answer(one, asked.question)
    assert (await sql(database, "SELECT current_state FROM tasks"))[0]["current_state"] == "parked"
    async with plane(database) as two:
        assert (await claim(two)).attempt == 2


async def test_a_parked_task_is_never_reaped(database: str) -> None:
    """S1-21."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await ask(one, grant.task)
        await sql(database, "UPDATE tasks SET queued_at = now() - interval '30 days'")
        await one._sweep.sweep()
        view = await one.supervision.task(grant.task)
    assert (view.current_state, view.watchdog_stop_reason) == ("parked", "awaiting_user_answer:go")


async def test_a_reaped_task_goes_on_from_its_last_checkpoint(database: str) -> None:
    """S1-19, S1-22."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 7)
        await sql(database, "UPDATE leases SET until = now() - interval '1 second'")
        await one._sweep.sweep()
        again = await claim(one, supervisor="other", instance="i2")
    assert [(each.step, bytes(each.value)) for each in again.checkpoints or ()] == [("build", b"7")]


async def test_a_waiting_claim_wakes_when_an_answer_comes(database: str) -> None:
    """S1-60: at once, not at the next look."""
    async with plane(database) as one:
        asked = await ask(one, (await start_and_claim(one)).task)
        waiting = asyncio.create_task(one.claim(claim_of("coding", wait=20)))
        await asyncio.sleep(0.05)
        await answer(one, asked.question)
        async with asyncio.timeout(5):
            assert [grant.attempt for grant in await waiting] == [2]


async def test_who_answered_what_and_when_is_on_record(database: str) -> None:
    """S1-57, S1-67, S1-108."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task)
        view = await answer(one, asked.question, {"go": 2**70}, actor="ben")
        page = await one.supervision.log(grant.task, limit=50, before=None)
    assert (view.status, view.answered_by) == ("answered", "ben")
    assert view.answered_at is not None
    assert [entry.kind for entry in page.entries] == [
        "created",
        "claimed",
        "question_asked",
        "question_answered",
    ]
    told = json.loads(bytes(page.entries[-1].data))
    assert (told["by"], told["answer"]) == ("ben", {"go": 2**70})


async def test_of_many_answers_at_two_control_planes_one_is_stored(database: str) -> None:
    """S1-65, S1-84, DX-04: fifty with one generation; every loser is told, and the text is the winner's."""
    async with plane(database) as one, plane(database) as two:
        asked = await ask(one, (await start_and_claim(one)).task)
        results = await asyncio.gather(
            *(
                answer((one, two)[n % 2], asked.question, n, generation=asked.generation, actor=f"p{n}")
                for n in range(50)
            ),
            return_exceptions=True,
        )
        stored = await one.supervision.question(asked.question)
    won = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    lost = [result for result in results if isinstance(result, Refused)]
    assert (len(won), len(lost)) == (1, 49)
    assert (json.loads(bytes(stored.answer)), stored.answered_by) == (won[0], f"p{won[0]}")  # type: ignore[arg-type]
    assert {refused.code for refused in lost} == {Code.ALREADY_ANSWERED}
    assert lost[0].told["answered_by"] == f"p{won[0]}"


async def test_two_questions_of_one_family_answered_at_once_leave_nothing_parked(database: str) -> None:
    """BH-043 (a)."""
    async with plane(database) as one:
        for name in ("A", "B"):
            await one.start_token(name, None)
        asked = [await ask(one, grant.task) for grant in await one.claim(claim_of("coding", max=2))]
        await asyncio.gather(*(answer(one, each.question) for each in asked))
        assert len(await one.claim(claim_of("coding", max=9))) == 2
    await check_whole(database)


@pytest.mark.parametrize("end", ["expire", "cancel", "event", "token"])
async def test_an_ended_task_leaves_no_open_question(database: str, end: str) -> None:
    """S1-93, DX-19."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task)
        if end == "expire":
            await sql(database, "UPDATE questions SET expires_at = now() - interval '1 second'")
            await one._sweep.sweep()
        elif end == "cancel":
            await steer(one, "cancel", grant.task)
        elif end == "event":
            await one.fire("T", "stopped", None)
        else:
            await one.cancel("T")
        page = await one.supervision.questions(QuestionFilter(status="pending"), limit=10, cursor=None)
        closed = await one.supervision.question(asked.question)
        assert await code_of(answer(one, asked.question)) is Code.QUESTION_CLOSED
    assert (page.total_count, bool(closed.cause)) == (0, True)
    await check_whole(database)


async def test_an_answer_waits_for_the_question_that_somebody_holds(database: str) -> None:
    """S1-18, S1-56: the row is locked, and looked at under the lock."""
    async with plane(database) as one:
        asked = await ask(one, (await start_and_claim(one)).task)
        async with held_by_another(database, "UPDATE questions SET status = 'closed', cause = 'x'"):
            with pytest.raises(Unavailable):
                await answer(one, asked.question, generation=asked.generation)
            assert (await one.supervision.question(asked.question)).status == "pending"
        assert (await answer(one, asked.question)).status == "answered"


async def test_a_task_may_run_for_an_hour_while_its_worker_lives(database: str) -> None:
    """S1-13, S1-20: a beat each half minute, and a sweep in between."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        beat = HeartbeatRequest(tasks=[grant.task], attempts={str(grant.task): 1}, **HOLDER)
        for _ in range(120):
            await sql(database, "UPDATE leases SET until = until - interval '30 seconds'")
            await one._sweep.sweep()
            assert (await one.heartbeat(beat)).lost == []
        assert (await one.supervision.task(grant.task)).attempt == 1


async def test_orphans_of_a_namesake_are_recovered_whatever_the_list_of_supervisors_says(
    database: str,
) -> None:
    """DX-13: a restart under the same name, and a list that forgot; recovery looks at the task's lease alone."""
    async with plane(database) as one:
        await queue(database, 2)
        old = await claim(one, instance="old")
        fresh = await claim(one, instance="new")
        await sql(database, "DELETE FROM supervisors")
        await sql(database, "UPDATE leases SET until = now() - interval '1 second' WHERE instance = 'old'")
        await one._sweep.sweep()
        again = await claim(one, instance="new")
        late = Report(kind="event", event="coded", attempt=1, supervisor="box", instance="old")
        assert await code_of(one.report(old.task, late)) is Code.ATTEMPT_OVER
        kept = await one.supervision.task(fresh.task)
    assert (again.task, again.attempt) == (old.task, 2)
    assert (kept.current_state, kept.attempt, kept.instance) == ("running", 1, "new")


async def test_a_question_nobody_asked_is_not_found(database: str) -> None:
    async with plane(database) as one:
        assert await code_of(one.supervision.question(77)) is Code.QUESTION_NOT_FOUND
        assert await code_of(answer(one, 77, generation=1)) is Code.QUESTION_NOT_FOUND


# What the database itself refuses.


@pytest.mark.parametrize(
    ("statement", "by"),
    [
        ("UPDATE tasks SET current_state = 'asleep'", "tasks_current_state_check"),
        ("UPDATE questions SET status = 'answered', answered_at = now()", "questions_answered_has_answer"),
        ("UPDATE questions SET status = 'answered', answer = '1'", "questions_answered_has_time"),
        ("UPDATE questions SET status = 'perhaps'", "questions_status_check"),
        (
            "INSERT INTO questions (id, task_id, key, occurrence, data, attempt, expires_at) SELECT 99, task_id, 'other', 1, '1', 1, now() FROM questions",
            "questions_open",
        ),
    ],
    ids=["unknown state", "no answer", "no time", "unknown status", "one open question a task"],
)
async def test_the_database_refuses_what_must_not_be(database: str, statement: str, by: str) -> None:
    """S1-12, S1-62, S1-63, S1-64."""
    async with plane(database) as one:
        await ask(one, (await start_and_claim(one)).task)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await sql(database, statement)
    assert refused.value.constraint_name == by


async def test_a_task_that_is_made_by_hand_begins_at_generation_one(database: str) -> None:
    """S1-32, S1-02."""
    async with plane(database):
        await queue(database, 1)
    row = (await sql(database, "SELECT generation, current_state, supervisor FROM tasks"))[0]
    assert tuple(row) == (1, "pending", None)


async def test_a_parked_row_without_a_reason_is_an_alarm(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1-23, S1-25, S1-26: the insert succeeds, and health, metrics and log tell of it."""
    async with plane(database) as one:
        await queue(database, 2)
        await sql(database, "UPDATE tasks SET current_state = 'parked', ready_at = NULL WHERE id = 2")
        await sql(
            database,
            "UPDATE tasks SET current_state = 'parked', ready_at = NULL, watchdog_stop_reason = 'brand_new:x' WHERE id = 1",
        )
        await one._sweep.sweep()
        assert one.health().alarms == ["task 2 is parked without a reason"]
        assert one.statistics()["tasks_unexplained"] == 1
    assert "task.unexplained" in "".join(capsys.readouterr())
