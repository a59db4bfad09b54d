"""Questions are told at least once, tried again when it was in vain, given up in the end, and reminded of."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from control.engine.planes import plane, sql
from control.engine.supervised import answer, ask, check_whole, log_of, start_and_claim

from stateous_control.engine.telling import TRIES_MAX, NotDelivered


class Outside:
    """Somebody to tell, who may be away."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_away = False

    async def __call__(self, notice: bytes) -> None:
        if self.is_away:
            raise NotDelivered("nobody home")
        self.told.append(json.loads(notice))


async def due_now(url: str) -> None:
    await sql(url, "UPDATE questions SET notify_at = now() WHERE notify_at IS NOT NULL")


async def test_a_question_is_told_at_once_and_once(database: str) -> None:
    outside = Outside()
    async with plane(database, on_question=outside) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task)
        async with asyncio.timeout(5):
            while "question_told" not in await log_of(one, grant.task):
                await asyncio.sleep(0.01)
        generation = (await one.supervision.task(grant.task)).generation
    ((notice),) = outside.told
    assert (notice["kind"], notice["question"]["question"]) == ("question_asked", asked.question)
    assert generation == asked.generation, "telling somebody makes nobody's picture old (T22)"
    assert (await sql(database, "SELECT notify_at FROM questions"))[0]["notify_at"] is None
    await check_whole(database)


async def test_two_control_planes_tell_a_question_once(database: str) -> None:
    outside = Outside()
    async with plane(database) as one, plane(database) as two:
        await ask(one, (await start_and_claim(one)).task)
        await asyncio.gather(*(each._telling.tell(outside, each._gathering.run) for each in (one, two)))
    assert len(outside.told) == 1


async def test_a_delivery_in_vain_is_tried_again_with_a_growing_pause_and_given_up(database: str) -> None:
    outside = Outside()
    outside.is_away = True
    pauses = []
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task)
        for _ in range(TRIES_MAX + 3):
            await due_now(database)
            await one._telling.tell(outside, one._gathering.run)
            row = (
                await sql(
                    database, "SELECT extract(epoch FROM notify_at - now())::float8 AS s FROM questions"
                )
            )[0]
            pauses.append(row["s"])
        assert await log_of(one, grant.task) == ["created", "claimed", "question_asked", "question_untold"]
        assert (await one.supervision.question(asked.question)).status == "pending"
    assert 35 < pauses[0] < 41
    assert pauses[1] > 1.9 * pauses[0]
    assert pauses[TRIES_MAX - 1] is None


async def test_a_reminder_comes_after_its_time_until_somebody_answers(database: str) -> None:
    outside = Outside()
    async with plane(database) as one:
        grant = await start_and_claim(one)
        asked = await ask(one, grant.task, remind_s=1800.0)
        await one._telling.tell(outside, one._gathering.run)
        left = "SELECT extract(epoch FROM notify_at - now())::float8 AS s FROM questions"
        assert 1790 < (await sql(database, left))[0]["s"] <= 1800
        await one._telling.tell(outside, one._gathering.run)
        assert len(outside.told) == 1
        await due_now(database)
        await one._telling.tell(outside, one._gathering.run)
        assert (await one.supervision.question(asked.question)).reminders == 1
        await answer(one, asked.question)
        assert (await sql(database, "SELECT notify_at FROM questions"))[0]["notify_at"] is None
    assert [each["kind"] for each in outside.told] == ["question_asked", "question_reminder"]
    await check_whole(database)


async def test_what_was_taken_and_never_told_is_due_again(database: str) -> None:
    """Who dies between taking a question and telling it loses nothing but time."""
    outside = Outside()

    async def die(_notice: bytes) -> None:
        raise KeyError

    async with plane(database) as one:
        await ask(one, (await start_and_claim(one)).task)
        try:
            await one._telling.tell(die, one._gathering.run)
        except KeyError:
            await due_now(database)
        await one._telling.tell(outside, one._gathering.run)
    assert len(outside.told) == 1
