"""Two at once, on real connections of two control planes: exactly one wins, everybody is told, and the rows agree.

A few rounds in every run, a thousand of each under `make prove`. The rounds share one database; each has tasks of its
own, and what must hold of all of it is looked at in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from control.engine.invariants import FAULTS, check_histories
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, sql
from control.engine.supervised import (
    HOLDER,
    answer,
    ask,
    code_of,
    park,
    start_and_claim,
    steer,
    store,
)
from stateous_contract.codes import Code
from stateous_contract.messages import Grant, HeartbeatRequest, Report

from stateous_control.engine.operations import ControlPlane

Round = Callable[[str, ControlPlane, ControlPlane, int], Awaitable[None]]
ROUNDS = [
    pytest.param(8, id="short"),
    pytest.param(1000, id="long", marks=[pytest.mark.prove, pytest.mark.timeout(1800)]),
]


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """Start all of them in a random order, a random moment apart, and return what became of each."""

    async def late(call: Awaitable[Any], delay_s: float) -> Any:
        await asyncio.sleep(delay_s)
        return await code_of(call)

    return list(
        await asyncio.gather(*(late(call, random.choice((0, 0, random.uniform(0, 0.004)))) for call in calls))
    )


async def answer_against_expiry(url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
    """S1-94: the task's state agrees with the winner."""
    grant = await start_and_claim(one, f"T{number}")
    asked = await ask(one, grant.task)
    due = random.uniform(-0.001, 0.004)
    await sql(
        url,
        "UPDATE questions SET expires_at = clock_timestamp() + $2 * interval '1 second' WHERE id = $1",
        asked.question,
        due,
    )
    code, _ = await together(answer(one, asked.question, generation=asked.generation), two._sweep.sweep())
    await asyncio.sleep(0.005)
    await two._sweep.sweep()
    task, question = await one.supervision.task(grant.task), await one.supervision.question(asked.question)
    if code is None:
        assert (question.status, task.watchdog_stop_reason) == (
            "answered",
            "resuming:awaiting_user_answer:go",
        )
    else:
        assert code in (Code.QUESTION_CLOSED, Code.STALE_GENERATION)
        assert (question.status, task.current_state) == ("expired", "expired")


async def two_answers(_url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
    """S1-65."""
    grant = await start_and_claim(one, f"T{number}")
    asked = await ask(one, grant.task)
    codes = await together(
        *(
            answer(each, asked.question, text, generation=asked.generation, actor=text)
            for each, text in ((one, "a"), (two, "b"))
        )
    )
    assert sorted(codes, key=str) == sorted([None, Code.ALREADY_ANSWERED], key=str)
    stored = await one.supervision.question(asked.question)
    assert stored.answered_by == "ab"[codes.index(None)]


async def two_resumes(_url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
    """S1-79, S1-80: and one worker drives."""
    grant = await start_and_claim(one, f"T{number}")
    view = await steer(one, "pause", grant.task)
    await park(one, grant.task)
    generation = (await one.supervision.task(grant.task)).generation
    assert generation == view.generation + 1
    codes = await together(*(steer(each, "resume", grant.task, generation) for each in (one, two)))
    assert sorted(codes, key=str) == sorted([None, Code.ALREADY_RESUMED], key=str)
    grants = await asyncio.gather(
        *(each.claim(claim_of("coding", instance=f"w{number}")) for each in (one, two))
    )
    assert [each.attempt for some in grants for each in some] == [2]


async def pause_against_completion(_url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
    """S1-73: the task completes, and a pause that came too late is told so."""
    grant = await start_and_claim(one, f"T{number}")
    generation = (await one.supervision.task(grant.task)).generation
    paused, ended = await together(
        steer(one, "pause", grant.task, generation),
        two.report(grant.task, Report(kind="event", event="coded", attempt=1, **HOLDER)),
    )
    assert ended is None
    assert paused in (None, Code.STALE_GENERATION)
    assert (await one.supervision.task(grant.task)).current_state == "completed"


async def _rival(kind: str, url: str, one: ControlPlane, grant: Grant) -> Any:
    """Bring the task where the rival can act, and return its call."""
    if kind in ("answer", "claim"):
        asked = await ask(one, grant.task)
        if kind == "answer":
            return answer(one, asked.question, generation=asked.generation)
        await answer(one, asked.question)
        return one.claim(claim_of("coding", instance=f"w{grant.task}"))
    if kind == "resume":
        await steer(one, "pause", grant.task)
        await park(one, grant.task)
        return steer(one, "resume", grant.task)
    if kind in DUE:
        await sql(url, DUE[kind], grant.task)
        return one._sweep.sweep()
    beat = HeartbeatRequest(tasks=[grant.task], attempts={str(grant.task): 1}, **HOLDER)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "ask": lambda: ask(one, grant.task),
        "checkpoint": lambda: store(one, grant.task, "s", 1),
        "pause": lambda: steer(one, "pause", grant.task),
        "report": lambda: one.report(grant.task, Report(kind="event", event="coded", attempt=1, **HOLDER)),
        "fail": lambda: one.report(grant.task, Report(kind="failed", error="x", attempt=1, **HOLDER)),
        "release": lambda: one.report(
            grant.task, Report(kind="released", reason="drain", attempt=1, **HOLDER)
        ),
        "park": lambda: park(one, grant.task),
        "heartbeat": lambda: one.heartbeat(beat),
        "an event from outside": lambda: one.fire(grant.token, "stopped", None),
        "another cancel": lambda: steer(one, "cancel", grant.task),
    }
    return calls[kind]()


async def cancel_against(kind: str, url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
    """S2-50: of a cancel and anything else either came first, and a cancelled task stays cancelled."""
    grant = await start_and_claim(one, f"T{number}")
    rival = await _rival(kind, url, one, grant)
    generation = (await one.supervision.task(grant.task)).generation
    cancelled, other = await together(steer(two, "cancel", grant.task, generation), rival)
    view, token = await one.supervision.task(grant.task), await one.token(grant.token)
    if cancelled is None:
        assert (view.current_state, token.status) == ("cancelled", "cancelled")
    else:
        assert cancelled in (Code.STALE_GENERATION, Code.TASK_OVER)
        assert other is None
        assert (token.status == "cancelled") is (kind == "another cancel")
    await _clear(url)


async def _clear(url: str) -> None:
    """Whatever is left ready must not be the next round's claim."""
    await sql(url, "UPDATE tasks SET ready_at = NULL, held_ready_at = ready_at WHERE ready_at IS NOT NULL")


RACES: dict[str, Round] = {
    "answer against expiry": answer_against_expiry,
    "two answers": two_answers,
    "two resumes": two_resumes,
    "pause against completion": pause_against_completion,
}
DUE = {
    "expiry": "UPDATE tasks SET expires_at = clock_timestamp() - interval '1 ms' WHERE id = $1",
    "the watchdog": "UPDATE leases SET until = clock_timestamp() - interval '1 ms' WHERE task_id = $1",
}
RIVALS = (
    *(
        "ask",
        "answer",
        "checkpoint",
        "pause",
        "resume",
        "claim",
        "report",
        "fail",
        "release",
        "park",
        "heartbeat",
    ),
    *("an event from outside", "another cancel", *DUE),
)


async def run(url: str, race: Round, rounds: int) -> None:
    async with plane(url) as one, plane(url) as two:
        for number in range(rounds):
            await race(url, one, two, number)
            await _clear(url)
    await check_histories(url)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("race", RACES)
async def test_exactly_one_wins_and_the_other_is_told(database: str, race: str, rounds: int) -> None:
    """S1-15, S1-18, S1-84."""
    await run(database, RACES[race], rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("rival", RIVALS)
async def test_a_cancel_and_anything_else_leave_one_truth(database: str, rival: str, rounds: int) -> None:
    """S1-10, S1-15, S1-98."""

    async def race(url: str, one: ControlPlane, two: ControlPlane, number: int) -> None:
        await cancel_against(rival, url, one, two, number)

    await run(database, race, rounds)


# A history that was spoilt by hand, so that each of the statements is seen to find something.

SPOILT = {
    "a task ended twice": "INSERT INTO task_log SELECT task_id, 99, at, kind, data FROM task_log WHERE kind = 'completed'",
    "a task ended twice in the history": "UPDATE history SET kind = 'task_done' WHERE kind = 'task_claimed'",
    "something happened to a task after its end": "UPDATE history SET seq = 99 WHERE kind = 'task_claimed'",
    "an attempt was claimed twice": "INSERT INTO history SELECT token_id, 99, at, kind, data FROM history WHERE kind = 'task_claimed'",
    "the history has a gap": "DELETE FROM history WHERE kind = 'task_claimed'",
    "history and row disagree on what is done": "DELETE FROM history WHERE kind = 'task_done'",
    "a token entered its states another time than it was given tasks": "UPDATE history SET kind = 'entered' WHERE kind = 'task_done'",
    "history and row disagree on how a token ended": "UPDATE history SET kind = 'completed' WHERE kind = 'task_done'",
    "a token moved without its task's end": "UPDATE tasks SET current_state = 'running', supervisor = 'box' WHERE current_state = 'completed'",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_a_history_must_never_show_is_found(database: str, fault: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await one.report(grant.task, Report(kind="event", event="coded", attempt=1, **HOLDER))
    assert await sql(database, FAULTS[fault]) == []
    await sql(database, SPOILT[fault])
    assert await sql(database, FAULTS[fault]) != []
