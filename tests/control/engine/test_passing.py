"""Checkpoints by one statement: what it writes, what it leaves to the rules, and that both write the same rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from control.engine.planes import plane, sql
from control.engine.supervised import HOLDER, raw, start_and_claim, store
from stateous_contract.messages import Report, TaskMessage, TaskMessages

ROWS = """SELECT c.version, c.step, c.occurrence, c.seq, c.value, l.kind, l.data, t.log_seq, t.saved_bytes
FROM checkpoints c JOIN task_log l ON l.task_id = c.task_id AND l.sequence_num = c.seq JOIN tasks t ON t.id = c.task_id
WHERE c.task_id = $1 ORDER BY c.seq"""


def said(step: str, value: Any, **more: Any) -> TaskMessage:
    place = {"task": 1, "attempt": 1} | more
    return TaskMessage(kind="checkpoint", step=step, value=raw(value), **place)


async def tell(one: Any, *messages: TaskMessage, **holder: Any) -> list[tuple[int, str | None]]:
    results = (await one.messages(TaskMessages(**(HOLDER | holder), messages=list(messages)))).results
    return [(each.status, each.code) for each in results]


async def test_a_step_costs_no_book_and_leaves_what_the_rules_would_leave(database: str) -> None:
    """S2-05, S2-30: the short way and the long way write the same rows, lines and counts."""
    async with plane(database) as one:
        await start_and_claim(one)
        books = one._gathering.transactions
        assert await tell(one, said("ä", {"n": [1, "ü"]}), said("b", None, occurrence=2)) == [(200, None)] * 2
        assert one._gathering.transactions == books
        short = await sql(database, ROWS, 1)
        other = await start_and_claim(one, "other")
        await store(one, other.task, "ä", {"n": [1, "ü"]})
        await store(one, other.task, "b", None, occurrence=2)
        assert [tuple(row) for row in await sql(database, ROWS, other.task)] == [tuple(row) for row in short]


@pytest.mark.parametrize(
    ("messages", "holder", "answer"),
    [
        ([said("s", 1, attempt=2)], {}, (409, "task_not_held")),
        ([said("s", 1, version=2)], {}, (422, "invalid_argument")),
        ([said("s", 1)], {"instance": "another"}, (409, "task_not_held")),
        ([said("s", 1)], {"supervisor": "another"}, (409, "task_not_held")),
        ([said("s", 1, task=77)], {}, (404, "task_not_found")),
    ],
)
async def test_who_does_not_hold_the_task_writes_nothing(
    database: str, messages: list[TaskMessage], holder: dict[str, str], answer: tuple[int, str]
) -> None:
    """S2-58: fenced in SQL by attempt, holder and version; the refusal is that of the rules."""
    async with plane(database) as one:
        await start_and_claim(one)
        assert await tell(one, *messages, **holder) == [answer]
    assert await sql(database, "SELECT 1 FROM checkpoints") == []


async def test_an_attempt_that_is_over_writes_nothing_beside_one_that_is_held(database: str) -> None:
    """S2-58, S2-30: what is refused or stands already costs the others of the request nothing."""
    async with plane(database) as one:
        await start_and_claim(one)
        other = await start_and_claim(one, "other")
        await tell(one, said("s", "first", task=other.task))
        await one.report(1, Report(kind="released", reason="drain", attempt=1, **HOLDER))
        mixed = [said("s", 1), said("s", "second", task=other.task), said("t", 3, task=other.task)]
        results = (await one.messages(TaskMessages(**HOLDER, messages=mixed))).results
    assert [each.status for each in results] == [409, 200, 200]
    assert bytes(results[1].value) == b'"first"'  # type: ignore[arg-type]
    stand = "SELECT step, value FROM checkpoints WHERE task_id = $1 ORDER BY seq"
    rows = await sql(database, stand, other.task)
    assert [tuple(row) for row in rows] == [("s", '"first"'), ("t", "3")]


async def test_a_pause_is_told_with_the_next_step(database: str) -> None:
    """S1-71: also by the short way."""
    async with plane(database) as one:
        await start_and_claim(one)
        shown = await one.supervision.task(1)
        await one.supervision.pause(1, shown.generation, None)
        results = (await one.messages(TaskMessages(**HOLDER, messages=[said("s", 1)]))).results
    assert (results[0].status, results[0].pause) == (200, True)


async def test_steps_write_to_no_index_of_their_task(database: str) -> None:
    """The thousandth step costs what the first one did: the updates of the task's row are HOT (ADR 16).

    The claim is not: it takes the row out of the index of what can be claimed. Nor is the first update after a page is
    full of versions that an older snapshot still sees, which happens three times in 200 where one is held throughout.
    """
    counted = "SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'"
    updates, colder = tuple((await sql(database, counted))[0])  # of tests before this one
    async with plane(database) as one:
        await start_and_claim(one)
        for number in range(200):
            assert await tell(one, said(f"s{number}", 1)) == [(200, None)]
    async with asyncio.timeout(15):  # a connection tells its counts when it ends
        while (now := tuple((await sql(database, counted))[0]))[0] < updates + 200:
            await asyncio.sleep(0.05)
    assert now[1] - colder <= 1 + 3
