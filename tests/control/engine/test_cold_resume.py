"""What is left after a failure at any write, and what goes on from the rows alone."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from control.databases import fresh
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, sql
from control.engine.supervised import (
    HOLDER,
    answer,
    ask,
    await_signal,
    check_whole,
    claim,
    log_of,
    park,
    raw,
    send,
    sleep,
    start_and_claim,
    steer,
    store,
)
from stateous_contract.messages import Grant, Report, Spawn, Wait

from stateous_control.store.people import QuestionFilter, TaskFilter
from stateous_control.store.pool import Rejected

# A failure at every write.

WRITES = [
    *(("ask", table) for table in ("tasks", "leases", "questions", "task_log", "history", "tokens")),
    *(("answer", table) for table in ("tasks", "questions", "task_log", "history", "tokens")),
]
BREAK = """
CREATE FUNCTION break_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken on purpose'; END $$;
CREATE TRIGGER break_it BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION break_it();
"""
MEND = "DROP TRIGGER break_it ON {table}; DROP FUNCTION break_it();"
PICTURE = """SELECT (SELECT array_agg(t.*::text ORDER BY t.id) FROM tasks t), (SELECT array_agg(q.*::text) FROM questions q),
  (SELECT count(*) FROM task_log), (SELECT count(*) FROM leases), (SELECT count(*) FROM history)"""


async def execute(url: str, text: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(text)
    await connection.close()


@pytest.mark.parametrize(("what", "table"), WRITES)
async def test_a_failure_at_any_write_leaves_none_of_them(database: str, table: str, what: str) -> None:
    """S1-16, S1-17, S1-37, S2-23: and the same once more succeeds."""
    async with plane(database) as one:
        grant = await start_and_claim(one)

        async def step() -> object:
            return await (ask(one, grant.task) if what == "ask" else answer(one, asked.question))

        if what == "answer":
            asked = await ask(one, grant.task)
        before = await sql(database, PICTURE)
        await execute(database, BREAK.format(table=table))
        try:
            with pytest.raises(Rejected):
                await step()
            assert await sql(database, PICTURE) == before
        finally:
            await execute(database, MEND.format(table=table))
        await step()
    await check_whole(database)


# A second executor on a copy of the database.


async def run_on(url: str, supervisor: str) -> tuple[list[object], list[str]]:
    """Drive the parked task to its end with nothing but the database, and return what there was to see."""
    async with plane(url) as one:
        (open_one,) = (
            await one.supervision.questions(QuestionFilter(status="pending"), limit=9, cursor=None)
        ).entries
        await answer(one, open_one.question, "yes", generation=open_one.generation)
        grant = await claim(one, supervisor=supervisor, instance="fresh")
        seen = [
            grant.task,
            grant.attempt,
            [(each.key, each.occurrence, bytes(each.answer)) for each in grant.answers or ()],
            [(each.step, each.occurrence, bytes(each.value)) for each in grant.checkpoints or ()],
            bytes(grant.context),
        ]
        await one.report(grant.task, _done(supervisor, grant.attempt))
        token = await one.token("T")
        return [*seen, token.state, token.visit], await log_of(one, grant.task)


def _done(supervisor: str, attempt: int) -> Report:
    return Report(kind="event", event="coded", attempt=attempt, supervisor=supervisor, instance="fresh")


def test_a_second_executor_does_what_the_first_one_does(postgres: str, migrated_template: str) -> None:
    """S1-53, S1-55: on a clone of the database, in a control plane and a worker that know nothing else."""
    with fresh(postgres, migrated_template) as url:
        asyncio.run(_park(url))
        name = url.split("postgresql:///")[1].split("?")[0]
        with fresh(postgres, name) as clone:
            assert asyncio.run(run_on(url, "first")) == asyncio.run(run_on(clone, "second"))


async def _park(url: str) -> None:
    async with plane(url) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", {"url": "x", "n": 2**70})
        await ask(one, grant.task)


def test_every_park_kind_goes_on_in_a_fresh_control_plane_on_a_clone(
    postgres: str, migrated_template: str
) -> None:
    """S1-53: question, pauses, sleep, signal, event, the first of several, a child's result, and a strict replay."""
    with fresh(postgres, migrated_template) as url:
        grants, question = asyncio.run(_park_all(url))
        with fresh(postgres, url.split("postgresql:///")[1].split("?")[0]) as clone:
            asyncio.run(_go_on(clone, grants, question))


async def _park_all(url: str) -> tuple[dict[str, Grant], int]:
    async with plane(url) as one:
        names = ("asked", "paused", "stopped", "sleeps", "signalled", "waits", "first", "parent", "strict")
        grants = {name: await start_and_claim(one, name) for name in names}
        asked = await ask(one, grants["asked"].task)
        await steer(one, "pause", grants["paused"].task)
        assert (await park(one, grants["paused"].task)).status == "parked"
        await one.pause("stopped")
        assert (await park(one, grants["stopped"].task)).status == "parked"
        await sleep(one, grants["sleeps"].task, 0.01)
        await await_signal(one, grants["signalled"].task)
        await one.report(grants["waits"].task, Report(kind="waiting", attempt=1, **HOLDER))
        either = Wait(kind="any", of=[Wait(kind="sleep", for_s=3600.0), Wait(kind="signal", name="go")])
        await park(one, grants["first"].task, wait=either, step="either", occurrence=1)
        begins = Spawn(**HOLDER, attempt=1, step="begin", occurrence=1, routine="part", input=raw(2))
        child = (await one.supervision.spawn(grants["parent"].task, begins)).task
        result = Wait(kind="result", task=child)
        await park(one, grants["parent"].task, wait=result, step="result", occurrence=1)
        strict = Wait(kind="nondeterminism", found="made#1")
        await park(one, grants["strict"].task, wait=strict, step="build", occurrence=1)
    return grants, asked.question


async def _go_on(url: str, grants: dict[str, Grant], question: int) -> None:
    async with plane(url) as two:
        reasons = [
            view.watchdog_stop_reason
            for view in (
                await two.supervision.tasks(TaskFilter(current_state="parked"), limit=20, cursor=None)
            ).entries
        ]
        assert sorted(reason.partition(":")[0] for reason in reasons if reason) == [
            "awaiting_any", "awaiting_event", "awaiting_result", "awaiting_signal", "awaiting_user_answer",
            "nondeterminism", "sleeping", "user_paused", "user_paused",
        ]  # fmt: skip
        await answer(two, question)
        await steer(two, "resume", grants["paused"].task)
        await two.resume("stopped")
        await send(two, grants["signalled"].task)
        await send(two, grants["first"].task)
        await steer(two, "resume", grants["strict"].task)
        (part,) = await two.claim(claim_of(routines={"part": [1]}))
        await two.report(part.task, Report(kind="returned", result=raw(4), attempt=1, **HOLDER))
        await two.fire("waits", "stopped", None)
        assert (await two.token("waits")).state == "waiting"
        async with asyncio.timeout(20):
            went_on = await two.claim(claim_of("coding", max=9))
            while len(went_on) < 8:
                await asyncio.sleep(0.01)
                await two._sweep.sweep()
                went_on += await two.claim(claim_of("coding", max=9))
        assert {each.task for each in went_on} == {grants[name].task for name in grants if name != "waits"}
    await check_whole(url)
