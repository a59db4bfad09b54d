"""Walking a list while it grows and its rows change: everything that was there at the start, once (BH-056)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest
from control.engine.planes import plane, queue, sql
from control.engine.supervised import ask, claim, code_of
from stateous_contract.codes import Code

from stateous_control.engine import retention
from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.retention import Windows
from stateous_control.store.people import QuestionFilter, TaskFilter

SAME = (
    "UPDATE tokens SET entered_at = '2026-01-01'",
    "UPDATE tasks SET queued_at = '2026-01-01'",
    "UPDATE questions SET asked_at = '2026-01-01'",
)
Read = Callable[[ControlPlane, int, str | None], Awaitable[Any]]
LISTS: dict[str, Read] = {
    "tokens": lambda one, limit, cursor: one.page_tokens(limit=limit, cursor=cursor),
    "tasks": lambda one, limit, cursor: one.supervision.tasks(TaskFilter(), limit=limit, cursor=cursor),
    "questions": lambda one, limit, cursor: one.supervision.questions(
        QuestionFilter(), limit=limit, cursor=cursor
    ),
}
KEYS: dict[str, Callable[[Any], Any]] = {
    "tokens": lambda view: view.token,
    "tasks": lambda view: view.task,
    "questions": lambda view: view.question,
}


async def walk(
    one: ControlPlane, which: str, limit: int, between: Callable[[], Awaitable[None]]
) -> list[Any]:
    """Return the keys of all pages; each has true counts."""
    seen: list[Any] = []
    cursor = None
    while True:
        page = await LISTS[which](one, limit, cursor)
        assert page.returned_count == len(page.entries) <= limit
        assert page.withheld_count == page.total_count - page.returned_count
        assert page.truncated is (page.withheld_count > 0)
        seen += map(KEYS[which], page.entries)
        cursor = page.cursor
        if cursor is None:
            return seen
        await between()


class Growing:
    """Meanwhile tokens are started, moved and cancelled, and questions asked: with a pause of 0.05 s twenty a second."""

    def __init__(self, one: ControlPlane, pause_s: float) -> None:
        self._one, self._pause_s = one, pause_s
        self._more = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._grow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _grow(self) -> None:
        for number in itertools.count(1):
            await self._one.start_token(f"late-{number}", None)
            await ask(self._one, (await claim(self._one)).task)
            await code_of(self._one.fire(f"T-{number}", "coded", None))
            await code_of(self._one.cancel(f"T-{number + 250}"))
            self._more.set()
            await asyncio.sleep(self._pause_s)

    async def more(self) -> None:
        """Wait until something has come."""
        self._more.clear()
        await asyncio.wait(
            [self._task, asyncio.create_task(self._more.wait())], return_when="FIRST_COMPLETED"
        )
        assert not self._task.done(), self._task.exception()


@pytest.mark.parametrize("pause_s", [0.0, pytest.param(0.05, marks=pytest.mark.prove)])
@pytest.mark.parametrize("which", LISTS)
async def test_five_hundred_rows_of_one_moment_are_walked_while_the_list_grows(
    database: str, which: str, pause_s: float
) -> None:
    """BH-056, S1-116: no time orders them, and none is left out or seen twice."""
    count = 60 if which == "questions" else 500
    async with plane(database) as one:
        await queue(database, count)
        if which == "questions":
            for _ in range(count):
                await ask(one, (await claim(one)).task)
        for statement in SAME:
            await sql(database, statement)
        there = await walk(one, which, 1000, lambda: asyncio.sleep(0))
        assert len(there) == count
        async with Growing(one, pause_s) as growing:
            seen = await walk(one, which, count // 10, growing.more)
        assert len(await walk(one, which, 1000, lambda: asyncio.sleep(0))) > count, "nothing came meanwhile"
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(there)


async def test_a_cursor_whose_row_is_gone_leads_on_to_the_rest(database: str) -> None:
    """BH-056: retention has removed the token that the last page ended on."""
    async with plane(database) as one:
        await queue(database, 9)
        first = await one.page_tokens(limit=3)
        tasks = await one.supervision.tasks(TaskFilter(), limit=3, cursor=None)
        await sql(
            database,
            "UPDATE tasks SET current_state = 'cancelled', ready_at = NULL, ended_at = now() - interval '2 days' WHERE id = 7",
        )
        await sql(
            database,
            "UPDATE tokens SET status = 'cancelled', ended_at = now() - interval '2 days' WHERE id = 7",
        )
        assert (await retention.forget(one._pool, Windows(tokens_s=86_400.0), batches_max=9)).tokens == 1
        assert first.entries[-1].token == "T-7"
        assert await code_of(one.token("T-7")) is Code.TOKEN_NOT_FOUND
        rest = await one.page_tokens(limit=10, cursor=first.cursor)
        others = await one.supervision.tasks(TaskFilter(), limit=10, cursor=tasks.cursor)
    assert [view.token for view in rest.entries] == [f"T-{n}" for n in range(6, 0, -1)]
    assert [view.task for view in others.entries] == list(range(6, 0, -1))
    assert (rest.total_count, others.total_count) == (8, 8)


@pytest.mark.parametrize("taker", LISTS)
@pytest.mark.parametrize("giver", LISTS)
async def test_a_cursor_is_taken_by_the_list_that_gave_it_and_by_no_other(
    database: str, giver: str, taker: str
) -> None:
    """BH-056."""
    async with plane(database) as one:
        await queue(database, 3)
        for _ in range(3):
            await ask(one, (await claim(one)).task)
        cursor = (await LISTS[giver](one, 1, None)).cursor
        assert cursor is not None
        expected = None if giver == taker else Code.INVALID_ARGUMENT
        assert await code_of(LISTS[taker](one, 1, cursor)) is expected


async def test_filters_find_the_oldest_of_many_on_the_server(database: str) -> None:
    """BH-056: three of 5,000 tokens match, and the first page says so; so does the list of tasks."""
    async with plane(database) as one:
        await queue(database, 5_000)
        await sql(database, "UPDATE tokens SET status = 'paused', paused_at = now() WHERE id <= 3")
        await sql(
            database,
            "UPDATE tasks SET current_state = 'parked', ready_at = NULL, watchdog_stop_reason = 'user_paused' WHERE id <= 3",
        )
        tokens = await one.page_tokens(status="paused", limit=50)
        tasks = await one.supervision.tasks(TaskFilter(kind="user_paused"), limit=50, cursor=None)
        everything = await one.page_tokens(limit=50)
    assert [view.token for view in tokens.entries] == ["T-3", "T-2", "T-1"]
    assert [view.task for view in tasks.entries] == [3, 2, 1]
    assert (tokens.total_count, tokens.truncated, tasks.total_count, tasks.truncated) == (3, False, 3, False)
    assert (everything.returned_count, everything.total_count, everything.withheld_count) == (
        50,
        5_000,
        4_950,
    )


async def test_a_long_history_is_walked_from_its_first_line_while_it_grows(database: str) -> None:
    """BH-056: 10,423 lines and what comes meanwhile, as lists and as pages with counts."""
    async with plane(database) as one:
        await queue(database, 1)
        await sql(
            database,
            "INSERT INTO history SELECT 1, i, now(), 'note', '{}' FROM generate_series(1, 10423) AS i",
        )
        await sql(database, "UPDATE tokens SET seq = 10423")
        for is_paged in (False, True):
            seen: list[int] = []
            while True:
                after = seen[-1] if seen else 0
                if is_paged:
                    page = await one.page_history("T-1", after=after, limit=1000)
                    assert page.total_count >= 10_423
                    entries = page.entries
                else:
                    entries = await one.history("T-1", after=after, limit=1000)
                seen += [entry.seq for entry in entries]
                if len(entries) < 1000:
                    break
                await one.fire("T-1", "again", None)
            assert seen == list(range(1, len(seen) + 1))
            assert len(seen) > 10_423
