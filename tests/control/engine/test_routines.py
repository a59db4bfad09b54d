"""Routines without a graph, and children, through the engine, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from control.engine.planes import ask as claim_of
from control.engine.planes import plane, sql
from control.engine.supervised import (
    HOLDER,
    check_whole,
    code_of,
    finish,
    park,
    raw,
    sleep,
    start_and_claim,
)
from msgspec import Raw
from stateous_contract.codes import Code
from stateous_contract.messages import Grant, Parked, Report, Spawn, Start, Wait

from stateous_control.engine.operations import ControlPlane

DUE = 'UPDATE waits SET parts = regexp_replace(parts, \'"at":"[^"]*"\', \'"at":"2020-01-01T00:00:00Z"\', \'g\'), due_at = \'2020-01-01\' WHERE due_at IS NOT NULL'


async def start(
    one: ControlPlane, routine: str = "publish", given: Any = 1, *, key: str | None = None, **more: Any
) -> int:
    view, _ = await one.supervision.start(Start(routine=routine, input=raw(given), **more), key)
    return view.task


async def take(one: ControlPlane, routine: str = "publish", *versions: int, **more: Any) -> Grant:
    (grant,) = await one.claim(claim_of(routines={routine: list(versions or (1,))}, **more))
    return grant


async def spawn(
    one: ControlPlane, parent: Grant, routine: str = "part", *, step: str = "spawn", given: Any = 2
) -> int:
    said = Spawn(**HOLDER, attempt=parent.attempt, step=step, occurrence=1, routine=routine, input=raw(given))
    return (await one.supervision.spawn(parent.task, said)).task


async def returned(one: ControlPlane, grant: Grant, value: Any = "done") -> Any:
    said = Report(kind="returned", result=raw(value), attempt=grant.attempt, **HOLDER)
    return await one.report(grant.task, said)


async def failed(one: ControlPlane, grant: Grant) -> Any:
    return await one.report(grant.task, Report(kind="failed", error="boom", attempt=grant.attempt, **HOLDER))


async def await_result(
    one: ControlPlane, parent: Grant, child: int, *, step: str = "result", **more: Any
) -> Parked:
    wait = Wait(kind="result", task=child, **more)
    return await park(one, parent.task, attempt=parent.attempt, wait=wait, step=step, occurrence=1)


async def state_of(one: ControlPlane, task: int) -> tuple[str, str | None]:
    view = await one.supervision.task(task)
    return view.current_state, view.watchdog_stop_reason


def value_of(grant: Grant, step: str) -> Any:
    (value,) = [bytes(each.value) for each in grant.checkpoints or () if each.step == step]
    return value


async def test_a_routine_lives_without_a_token(database: str) -> None:
    """S2-11: input in, result out, the same life, and no token to be seen."""
    async with plane(database) as one:
        task = await start(one, given={"n": 2**70})
        grant = await take(one)
        assert (grant.task, grant.routine, grant.version, grant.token, grant.state) == (
            task,
            "publish",
            1,
            "",
            "",
        )
        assert bytes(grant.input) == b'{"n": 1180591620717411303424}'  # type: ignore[arg-type]
        answer = await returned(one, grant, {"url": "x"})
        view = await one.supervision.task(task)
        assert await one.list_tokens() == []
        assert (await one.page_tokens()).total_count == 0
    assert (answer.task, answer.current_state) == (task, "completed")
    assert (view.current_state, bytes(view.result), view.token, view.routine) == (  # type: ignore[arg-type]
        "completed",
        b'{"url": "x"}',
        None,
        "publish",
    )
    assert await sql(database, "SELECT FROM history WHERE kind <> 'task_claimed'") == []
    await check_whole(database)


async def test_a_key_starts_one_task(database: str) -> None:
    """The same key and body: the same task, also at another control plane; another body: 409."""
    async with plane(database) as one, plane(database) as two:
        tasks = await asyncio.gather(
            *(
                (one, two)[n % 2].supervision.start(Start(routine="publish", input=raw(1)), "k")
                for n in range(10)
            )
        )
        assert len({view.task for view, _ in tasks}) == 1
        assert sum(is_new for _, is_new in tasks) == 1
        assert await code_of(start(one, given=2, key="k")) is Code.KEY_REUSED
        assert await code_of(start(one, "other", key="k")) is Code.KEY_REUSED


async def test_people_wait_for_the_end(database: str) -> None:
    async with plane(database) as one:
        task = await start(one)
        waiting = asyncio.create_task(one.supervision.task(task, wait_s=20.0))
        await returned(one, await take(one))
        assert (await waiting).current_state == "completed"


async def test_a_routine_is_retried_and_then_has_failed(database: str) -> None:
    async with plane(database, retry_delay_s=0.0) as one:
        task = await start(one, retries=1)
        for _ in range(2):
            await failed(one, await take(one))
        view = await one.supervision.task(task)
    assert (view.current_state, view.failures, view.error) == ("failed", 2, "boom")
    assert await sql(database, "SELECT FROM tokens WHERE status = 'active'") == []


@pytest.mark.parametrize("kind", ["event", "waiting"])
async def test_a_routine_moves_no_token(database: str, kind: str) -> None:
    async with plane(database) as one:
        await start(one)
        grant = await take(one)
        said = Report(kind=kind, event="coded", attempt=1, **HOLDER)
        assert await code_of(one.report(grant.task, said)) is Code.INVALID_BODY


async def test_a_task_of_a_token_returns_nothing(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        assert await code_of(returned(one, grant)) is Code.INVALID_BODY


async def test_versions_go_to_those_who_serve_them(database: str) -> None:
    """S2-52, S2-57, DX-22: no attempt is spent on what nobody serves, and it is shown."""
    async with plane(database) as one:
        old, new = await start(one), await start(one, version=2)
        strange = await start(one, version=3)
        assert (await take(one, "publish", 2)).task == new
        assert (await take(one, "publish", 1)).task == old
        assert await one.claim(claim_of(routines={"publish": [1, 2]})) == []
        assert (await one.supervision.task(strange)).attempt == 0
        await one._attendance.write()
        queues = {queue.state: queue.is_served for queue in await one.queues()}
    assert queues == {"@publish#1": True, "@publish#2": True, "@publish#3": False}


async def test_a_replay_adopts_its_child(database: str) -> None:
    """S2-34: one child for each step, whatever becomes of attempts."""
    async with plane(database, retry_delay_s=0.0) as one:
        await start(one, retries=1)
        parent = await take(one)
        child = await spawn(one, parent)
        assert await spawn(one, parent) == child
        await failed(one, parent)
        again = await take(one)
        assert value_of(again, "spawn") == b'{"task":%d}' % child
        assert await spawn(one, again) == child
        assert await spawn(one, again, step="another") != child
    assert (await sql(database, "SELECT count(*) AS n FROM tasks WHERE parent_id IS NOT NULL"))[0]["n"] == 2
    await check_whole(database)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_parent_gets_its_childs_end(database: str, end: str, is_first: bool) -> None:
    """S2-33: whether the child ended before the wait or during it."""
    async with plane(database) as one:
        await start(one)
        parent = await take(one)
        child = await spawn(one, parent)

        async def ended() -> None:
            if end == "cancelled":
                await one.supervision.cancel(child, (await one.supervision.task(child)).generation)
                return
            grant = await take(one, "part")
            await (returned(one, grant, [1]) if end == "completed" else failed(one, grant))

        if is_first:
            await ended()
            parked = await await_result(one, parent, child)
            value = bytes(parked.value)  # type: ignore[arg-type]
        else:
            assert (await await_result(one, parent, child)).status == "parked"
            assert await state_of(one, parent.task) == ("parked", f"awaiting_result:{child}")
            await ended()
            value = value_of(await take(one), "result")
    tail = {
        "completed": b'"result":[1]',
        "failed": b'"reason":"failed:exception","error":"boom"',
        "cancelled": b'"reason":"cancelled:user","error":null',
    }
    assert value == b'{"outcome":"result","task":%d,"state":"%s",%s}' % (child, end.encode(), tail[end])
    await check_whole(database)


async def test_only_a_direct_child_is_waited_for(database: str) -> None:
    """S2-35, S2-36, S2-37: not a grandchild, a sibling, the parent, itself, a stranger, or nobody."""
    async with plane(database) as one:
        stranger = await start(one, "other")
        root_id = await start(one)
        root = await take(one)
        child_id = await spawn(one, root)
        sibling = await spawn(one, root, "other", step="second")
        child = await take(one, "part")
        grandchild = await spawn(one, child, "other")
        for waiter, target in [
            (root, grandchild), (child, sibling), (child, root_id), (root, root_id), (root, stranger), (root, 10**12), (child, child_id)
        ]:  # fmt: skip
            assert await code_of(await_result(one, waiter, target)) is Code.NOT_A_CHILD
        assert (await await_result(one, root, child_id)).status == "parked"


@pytest.mark.parametrize("end", ["completed", "failed", "expired", "cancelled"])
async def test_a_parents_end_cancels_what_is_unfinished_below_it(database: str, end: str) -> None:
    """S2-38, S2-39, S2-42."""
    async with plane(database) as one:
        await start(one)
        root = await take(one)
        finished = await spawn(one, root, "other", step="early")
        await returned(one, await take(one, "other"), 7)
        child_id = await spawn(one, root)
        child = await take(one, "part")
        grandchild = await spawn(one, child)
        await sleep(one, child.task, 3600)
        if end == "completed":
            await returned(one, root)
        elif end == "failed":
            await failed(one, root)
        elif end == "cancelled":
            await one.supervision.cancel(root.task, (await one.supervision.task(root.task)).generation)
        else:
            await sql(database, "UPDATE tasks SET expires_at = '2020-01-01' WHERE id = $1", root.task)
            await one._sweep.sweep()
        assert (await state_of(one, root.task))[0] == end
        assert await state_of(one, child_id) == ("cancelled", f"cancelled:parent_{end}")
        assert await state_of(one, grandchild) == ("cancelled", "cancelled:parent_cancelled")
        assert await state_of(one, finished) == ("completed", None)
    await check_whole(database)


async def test_a_result_wait_that_times_out_cancels_that_subtree_alone(database: str) -> None:
    """S2-40, S2-41."""
    async with plane(database) as one:
        await start(one)
        root = await take(one)
        slow, other = await spawn(one, root), await spawn(one, root, "other", step="second")
        grandchild = await spawn(one, await take(one, "part"))
        await await_result(one, root, slow, timeout_s=60.0)
        await sql(database, DUE)
        await one._sweep.sweep()
        assert await state_of(one, slow) == ("cancelled", "cancelled:result_wait_timeout")
        assert (await state_of(one, grandchild))[0] == "cancelled"
        assert (await state_of(one, other))[0] == "pending"
        again = await take(one)
    assert value_of(again, "result") == b'{"outcome":"timeout"}'
    assert again.attempt == 2
    await check_whole(database)


async def test_a_state_has_children_too_and_they_move_no_token(database: str) -> None:
    """Children of a token's task end with it; its token stays where its own events lead."""
    async with plane(database) as one:
        grant = await start_and_claim(one)
        done, left = await spawn(one, grant), await spawn(one, grant, "other", step="second")
        await returned(one, await take(one, "part"))
        assert (await one.token("T")).state == "coding"
        await finish(one, grant.task, 1, "coded")
        assert (await one.token("T")).state == "testing"
        assert (await state_of(one, done))[0] == "completed"
        assert await state_of(one, left) == ("cancelled", "cancelled:parent_completed")
        assert (await one.claim(claim_of("testing")))[0].state == "testing"
    await check_whole(database)


async def test_a_paused_token_keeps_its_children_back(database: str) -> None:
    async with plane(database) as one:
        grant = await start_and_claim(one)
        await spawn(one, grant)
        await one.pause("T")
        assert await one.claim(claim_of(routines={"part": [1]})) == []
        await one.resume("T")
        assert (await take(one, "part")).routine == "part"


async def rounds(database: str, count: int) -> None:
    """A child ends at a random moment around its parent's wait; the parent always goes on."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def later(call: Any) -> Any:
        await asyncio.sleep(chance.random() * 0.004)
        return await call

    async with plane(database) as one, plane(database) as two:
        for _ in range(count):
            await start(one)
            parent = await take(one)
            child_id = await spawn(one, parent)
            child = await take(one, "part")
            parked, _ = await asyncio.gather(
                later(await_result(one, parent, child_id)), later(returned(two, child))
            )
            if parked.status == "parked":
                parent = await take(one)
            await returned(one, parent)
    await check_whole(database)


async def test_no_result_is_missed(database: str) -> None:
    """DX-02, in short."""
    await rounds(database, 6)


@pytest.mark.prove
@pytest.mark.timeout(1800)
async def test_no_result_is_missed_in_a_thousand_rounds(database: str) -> None:
    """DX-02."""
    await rounds(database, 1000)


async def test_an_input_of_a_mebibyte_goes_through(database: str) -> None:
    """DX-24: nothing large is ever in a notification."""
    async with plane(database) as one, plane(database) as two:
        text = "x" * 1_000_000
        waiting = asyncio.create_task(two.claim(claim_of(routines={"publish": [1]}, wait=20.0, max=1)))
        await start(one, given=text)
        (grant,) = await waiting
        assert isinstance(grant.input, Raw)
        assert len(bytes(grant.input)) == 1_000_002


async def test_a_listener_that_was_killed_costs_a_look_and_nothing_else(database: str) -> None:
    """DX-24: with the connection that listens gone, a claim at another control plane still gets the work."""
    listening = "SELECT pg_terminate_backend(pid) AS is_over FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'"
    async with plane(database) as one, plane(database) as two:
        waiting = asyncio.create_task(two.claim(claim_of(routines={"publish": [1]}, wait=20.0, max=1)))
        await until_listening(database, listening)
        task = await start(one)
        assert [grant.task for grant in await waiting] == [task]


async def until_listening(database: str, listening: str) -> None:
    """End the connections that listen, once there are two of them."""
    seen = listening.replace("pg_terminate_backend(pid) AS is_over", "pid")
    for _ in range(2_000):
        if len(await sql(database, seen)) >= 2:
            assert all(row["is_over"] for row in await sql(database, listening))
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody listens")
