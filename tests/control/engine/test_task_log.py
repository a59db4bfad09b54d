"""The log of a task: append-only, numbered without a gap, and read in pages that say what they withheld."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import asyncpg
import pytest
from control.engine.planes import plane, queue, sql
from control.engine.supervised import (
    HOLDER,
    ask,
    check_whole,
    claim,
    code_of,
    log_of,
    park,
    raw,
    start_and_claim,
    steer,
    store,
)
from stateous_contract.codes import Code
from stateous_contract.messages import Report, TaskMessage, TaskMessages

from stateous_control.store.failures import StartRefused
from stateous_control.store.people import QuestionFilter, TaskFilter


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE task_log SET kind = 'x'",
        "UPDATE task_log SET kind = 'x' WHERE sequence_num = 1",
        "DELETE FROM task_log",
        "DELETE FROM task_log WHERE sequence_num = 1",
        "TRUNCATE task_log",
    ],
)
@pytest.mark.parametrize("role", ["origin", "replica"])
async def test_the_log_cannot_be_rewritten_by_its_owner(database: str, statement: str, role: str) -> None:
    """S1-103, S1-104, S1-105."""
    async with plane(database) as one:
        await start_and_claim(one)
    connection = await asyncpg.connect(database)
    await connection.execute(f"SET session_replication_role = {role}")
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await connection.execute(statement)
    await connection.close()
    assert len(await sql(database, "SELECT 1 FROM task_log")) == 2


@pytest.mark.parametrize(
    ("undo", "redo"),
    [
        (
            "ALTER TABLE task_log DISABLE TRIGGER task_log_keeps_rows",
            "ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_rows",
        ),
        (
            "ALTER TABLE task_log ENABLE TRIGGER task_log_keeps_all",
            "ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_all",
        ),
    ],
)
async def test_a_control_plane_does_not_start_over_a_log_without_its_guards(
    database: str, undo: str, redo: str
) -> None:
    """S1-105: DDL of the owner gets around them, and is found out."""
    await sql(database, undo)
    try:
        with pytest.raises(StartRefused, match="the log of tasks is not protected: task_log_keeps"):
            async with plane(database):
                pass
    finally:
        await sql(database, redo)


async def test_a_page_of_a_long_log_is_the_newest_one_and_counts_the_rest(database: str) -> None:
    """S1-109, S1-110, S1-111, S1-112, S1-113, BH-056."""
    async with plane(database) as one:
        await queue(database, 1)
        await sql(
            database,
            "INSERT INTO task_log SELECT 1, i, now(), 'note', '{}' FROM generate_series(1, 10423) AS i",
        )
        page = await one.supervision.log(1, limit=50, before=None)
        older = await one.supervision.log(1, limit=50, before=int(page.cursor or 0))
    assert (page.returned_count, page.total_count, page.withheld_count, page.truncated) == (
        50,
        10423,
        10373,
        True,
    )
    assert [page.entries[0].sequence_num, page.entries[-1].sequence_num] == [10374, 10423]
    assert [older.entries[0].sequence_num, older.entries[-1].sequence_num] == [10324, 10373]


async def test_a_log_that_is_shown_whole_withholds_nothing(database: str) -> None:
    """S1-111."""
    async with plane(database) as one:
        await start_and_claim(one)
        page = await one.supervision.log(1, limit=50, before=None)
    assert (page.returned_count, page.withheld_count, page.truncated, page.cursor) == (2, 0, False, None)


async def test_a_log_of_large_entries_is_cut_by_bytes(database: str) -> None:
    """S1-114."""
    async with plane(database) as one:
        await queue(database, 1)
        await sql(
            database,
            "INSERT INTO task_log SELECT 1, i, now(), 'note', json_build_object('x', repeat('y', 1000000))::text FROM generate_series(1, 20) AS i",
        )
        page = await one.supervision.log(1, limit=1000, before=None)
    assert (page.returned_count, page.total_count, page.truncated, page.cursor) == (4, 20, True, "17")
    assert page.entries[-1].sequence_num == 20


async def test_the_counts_are_of_one_moment_while_others_write(database: str) -> None:
    """S1-115."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        pages: list[Any] = []

        async def write() -> None:
            for number in range(40):
                await store(one, grant.task, "s", number, occurrence=number + 1)

        async def read() -> None:
            pages.extend([await one.supervision.log(grant.task, limit=3, before=None) for _ in range(40)])

        await asyncio.gather(write(), read())
    for page in pages:
        assert page.total_count == page.entries[-1].sequence_num
        assert page.withheld_count == page.total_count - page.returned_count


async def test_many_writers_of_one_task_are_numbered_without_a_gap(database: str) -> None:
    """S1-106, S1-107: 64 at once, at two control planes."""
    async with plane(database) as one, plane(database) as two:
        grant = await start_and_claim(one)
        await asyncio.gather(
            *(store((one, two)[n % 2], grant.task, "s", n, occurrence=n + 1) for n in range(64))
        )
        page = await one.supervision.log(grant.task, limit=1000, before=None)
    assert [entry.sequence_num for entry in page.entries] == list(range(1, 67))
    await check_whole(database)


async def test_every_kind_of_change_leaves_its_line(database: str) -> None:
    """S1-108: and people's changes say who."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await store(one, grant.task, "build", 1)
        await steer(one, "pause", grant.task)
        await park(one, grant.task)
        await steer(one, "resume", grant.task)
        await claim(one)
        await one.report(grant.task, Report(kind="failed", error="x", attempt=2, **HOLDER))
        await steer(one, "pause", grant.task)
        await steer(one, "resume", grant.task)
        await steer(one, "cancel", grant.task)
        retried = await steer(one, "retry", grant.task)
        entries = (await one.supervision.log(grant.task, limit=99, before=None)).entries
        assert await log_of(one, retried.task) == ["created"]
    assert [entry.kind for entry in entries] == [
        "created",
        "claimed",
        "checkpoint_written",
        "pause_requested",
        "paused",
        "resumed",
        "claimed",
        "attempt_failed",
        "pause_requested",
        "pause_withdrawn",
        "cancelled",
    ]
    assert json.loads(bytes(entries[3].data))["by"] == "ann"


async def test_notes_and_checkpoints_of_a_bundle_are_logged_in_order(database: str) -> None:
    """S1-108, S2-05: kind `checkpoint` of the messages answers the value that stands."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        said = [
            TaskMessage(task=1, attempt=1, kind="checkpoint", step="a", occurrence=1, value=raw(1)),
            TaskMessage(task=1, attempt=1, kind="checkpoint", step="a", occurrence=1, value=raw(2)),
            TaskMessage(
                task=1, attempt=1, kind="checkpoint", step="b", occurrence=1, version=9, value=raw(3)
            ),
        ]
        results = (await one.messages(TaskMessages(**HOLDER, messages=said))).results
        page = await one.supervision.checkpoints(grant.task, version=1, after=0, limit=10)
    assert [(each.status, each.code) for each in results] == [
        (200, None),
        (200, None),
        (422, "invalid_argument"),
    ]
    assert [bytes(each.value) for each in results[:2]] == [b"1", b"1"]  # type: ignore[arg-type]
    assert [(each.step, bytes(each.value)) for each in page.entries] == [("a", b"1")]


async def test_every_list_says_what_it_withheld_and_pages_bring_everything_once(database: str) -> None:
    """S1-116, BH-056."""
    async with plane(database) as one:
        await queue(database, 23)
        for task in range(1, 24):
            await claim(one)
            await ask(one, task)
        for read in ("tasks", "questions"):
            seen: list[int] = []
            cursor = None
            while True:
                await one.start_token(f"late-{read}-{len(seen)}", None)
                if read == "tasks":
                    page = await one.supervision.tasks(
                        TaskFilter(kind="awaiting_user_answer"), limit=5, cursor=cursor
                    )
                else:
                    page = await one.supervision.questions(
                        QuestionFilter(status="pending"), limit=5, cursor=cursor
                    )
                seen.extend(view.task for view in page.entries)
                assert (page.total_count, page.withheld_count) == (23, 23 - page.returned_count)
                assert page.truncated is (page.withheld_count > 0)
                cursor = page.cursor
                if cursor is None:
                    break
            assert sorted(seen) == list(range(1, 24))


async def test_checkpoints_that_do_not_fit_a_grant_are_read_page_by_page(database: str) -> None:
    """S1-116, S2-20: up to 256 KiB in the grant, the rest after the last `seq`."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        for number in range(1, 6):
            await store(one, grant.task, "s", "x" * 100_000, occurrence=number)
        await one.report(grant.task, Report(kind="released", reason="drain", attempt=1, **HOLDER))
        again = await claim(one)
        assert again.checkpoints is not None
        assert ([each.occurrence for each in again.checkpoints], again.checkpoints_more) == ([1, 2], True)
        last = again.checkpoints[-1].seq
        rest = await one.supervision.checkpoints(grant.task, version=1, after=last, limit=2)
        end = await one.supervision.checkpoints(grant.task, version=1, after=int(rest.cursor or 0), limit=2)
    assert [each.occurrence for each in (*rest.entries, *end.entries)] == [3, 4, 5]
    assert (rest.total_count, end.cursor) == (5, None)


@pytest.mark.parametrize("cursor", ["", "x", "dGFza3M6", "cXVlc3Rpb25zOjE", "é", "A" * 5000])
async def test_a_cursor_of_another_list_is_refused(database: str, cursor: str) -> None:
    """BH-056: the fourth is one of the list of questions."""
    async with plane(database) as one:
        call = one.supervision.tasks(TaskFilter(), limit=5, cursor=cursor)
        assert await code_of(call) is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "count", [1_000, pytest.param(1_000_000, marks=[pytest.mark.prove, pytest.mark.timeout(600)])]
)
async def test_the_last_page_of_a_long_list_counts_all_of_it_and_comes_soon(
    database: str, count: int
) -> None:
    """BH-056, S1-110."""
    async with plane(database) as one:
        await queue(database, 100)
        page = await one.supervision.tasks(TaskFilter(), limit=50, cursor=None)
        await queue(database, count - 100, first=101)
        await sql(database, "VACUUM (ANALYZE) tasks, tokens")
        began = time.monotonic()
        last = await one.supervision.tasks(TaskFilter(), limit=50, cursor=page.cursor)
        took_s = time.monotonic() - began
        assert (await one.supervision.tasks(TaskFilter(), limit=50, cursor=last.cursor)).entries == []
    assert [each.task for each in last.entries] == list(range(50, 0, -1))
    assert (last.returned_count, last.total_count, last.withheld_count) == (50, count, count - 50)
    print(f"the last page of {count:,} tasks came after {took_s:.2f} s")
    assert took_s < 2, "a page of a million, which takes 0.08 s where nothing else runs"
