"""Retries of routines without a graph by people, on a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, sql
from control.engine.supervised import HOLDER, check_whole, code_of, park, raw, steer, store
from stateous_contract.codes import Code
from stateous_contract.messages import Grant, Report, Spawn, Start, Wait

from stateous_control.engine.operations import ControlPlane


async def begun(one: ControlPlane, **more: Any) -> Grant:
    await one.supervision.start(Start(routine="publish", input=raw({"n": 2**70}), **more), None)
    return await taken(one)


async def taken(one: ControlPlane, routine: str = "publish") -> Grant:
    (grant,) = await one.claim(claim_of(routines={routine: [1, 2]}))
    return grant


async def failed(one: ControlPlane, grant: Grant) -> None:
    said = Report(kind="failed", error="boom", retryable=False, attempt=grant.attempt, **HOLDER)
    await one.report(grant.task, said)


async def spawned(one: ControlPlane, parent: Grant, step: str) -> int:
    said = Spawn(**HOLDER, attempt=parent.attempt, step=step, occurrence=1, routine="part", input=raw(step))
    return (await one.supervision.spawn(parent.task, said)).task


def passed(grant: Grant) -> dict[str, bytes]:
    return {each.step: bytes(each.value) for each in grant.checkpoints or ()}


@pytest.mark.parametrize("is_copying", [True, False])
async def test_a_routine_is_begun_again_with_what_it_was_given(database: str, is_copying: bool) -> None:
    """C14: a new task, linked both ways, with input, version, policy and, unless told otherwise, what was passed."""
    async with plane(database) as one:
        old = await begun(one, version=2, retries=3, backoff_s=7.0, not_retryable=["KeyError"])
        await store(one, old.task, "label", 7, version=2)
        await failed(one, old)
        fresh = await steer(one, "retry", old.task, is_copying=is_copying)
        again = await taken(one)
        view, before = await one.supervision.task(fresh.task), await one.supervision.task(old.task)
        assert await code_of(steer(one, "retry", old.task)) is Code.ALREADY_RETRIED
    assert (before.current_state, before.retried_as, view.retried_from) == ("failed", fresh.task, old.task)
    assert (again.task, again.attempt, again.version, again.routine) == (fresh.task, 1, 2, "publish")
    assert bytes(again.input or b"") == bytes(old.input or b"?")
    assert (view.retries, view.backoff_s, view.not_retryable) == (3, 7.0, ["KeyError"])
    assert passed(again) == ({"label": b"7"} if is_copying else {})
    await check_whole(database)


async def test_what_has_no_token_takes_none_and_a_child_is_its_parents(database: str) -> None:
    async with plane(database) as one:
        parent = await begun(one)
        child = await spawned(one, parent, "a")
        assert await code_of(steer(one, "retry", parent.task)) is Code.NOT_RETRYABLE
        await steer(one, "cancel", parent.task)
        assert await code_of(steer(one, "retry", parent.task, token="T")) is Code.INVALID_ARGUMENT
        assert await code_of(steer(one, "retry", child)) is Code.NOT_RETRYABLE
    assert (await sql(database, "SELECT count(*) AS n FROM tasks"))[0]["n"] == 2


async def test_a_retry_starts_the_children_again_that_failed_or_whose_end_was_not_taken(
    database: str,
) -> None:
    """What ended with the old task is nobody's child any more: a wait for it would be refused for ever."""
    async with plane(database) as one:
        old = await begun(one)
        done = await spawned(one, old, "done")
        first = await spawned(one, old, "first")
        broken = await spawned(one, old, "broken")
        lost = await spawned(one, old, "lost")
        for child in (done, first, broken):
            grant = await taken(one, "part")
            assert grant.task == child
            said = (
                {"kind": "failed", "error": "x"}
                if child == broken
                else {"kind": "returned", "result": raw(1)}
            )
            await one.report(grant.task, Report(**said, attempt=1, **HOLDER))
        for wait, step in (
            (Wait(kind="result", task=done), f"result:{done}"),
            (Wait(kind="result", task=broken), "how it went"),
            (Wait(kind="any", of=[Wait(kind="result", task=first)]), "decision"),
        ):
            await park(one, old.task, attempt=1, wait=wait, step=step, occurrence=1)
        await steer(one, "cancel", old.task)
        fresh = await steer(one, "retry", old.task)
        again = await taken(one)
        assert set(passed(again)) == {"done", "first", f"result:{done}", "decision"}
        anew = await spawned(one, again, "lost")
        assert await store(one, again.task, "more", 8) == 8
        page = await one.supervision.checkpoints(again.task, version=1, after=-(2**62), limit=100)
        assert [each.step for each in page.entries][-2:] == ["lost", "more"]
        wait = Wait(kind="result", task=anew)
        parked = await park(one, again.task, attempt=1, wait=wait, step=f"result:{anew}", occurrence=1)
    assert (again.task, parked.status) == (fresh.task, "parked")
    assert anew not in {done, first, lost}
    await check_whole(database)
