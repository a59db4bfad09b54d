"""Versions of states' routines: who gets which tasks, and how those that nobody serves are shown. Real PostgreSQL."""

from __future__ import annotations

import copy
from typing import Any

from control.engine.planes import DOCUMENT, plane, sql
from control.engine.planes import ask as claim_of
from control.engine.supervised import HOLDER, code_of, finish, raw, store
from stateous_contract.codes import Code
from stateous_contract.messages import Grant, Report, Start

from stateous_control.engine.operations import ControlPlane
from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load
from stateous_control.rules.access import Access, Role
from stateous_control.store.people import TaskFilter


def graph_with(**states: dict[str, Any]) -> Graph:
    """The tests' workflow with more said about some of its states."""
    document = copy.deepcopy(DOCUMENT)
    for name, more in states.items():
        document["states"][name] |= more
    return load(document)


SECOND = graph_with(coding={"version": 2})


async def take(one: ControlPlane, *versions: int, **more: Any) -> list[Grant]:
    return await one.claim(claim_of("coding", versions={"coding": list(versions)}, **more))


async def test_a_task_keeps_the_version_it_was_created_with(database: str) -> None:
    """S2-52, S2-57, DX-22: old and new supervisors beside each other over a mixed queue; no attempt is lost."""
    async with plane(database) as one:
        await one.start_token("old", None)
    async with plane(database, graph=SECOND) as two:
        await two.start_token("new", None)
        (new,) = await take(two, 2, max=10)
        (old,) = await two.claim(claim_of("coding", max=10))
        assert (old.token, old.version, old.state) == ("old", 1, "coding")
        assert (new.token, new.version, new.state) == ("new", 2, "coding")
        await two.report(old.task, Report(kind="failed", error="x", attempt=1, **HOLDER))
        view = await two.supervision.task(old.task)
        assert (view.version, view.state, view.failures) == (1, "coding", 1)
        # The token moves by the graph that it was started on, so its later tasks are of that graph's version.
        await finish(two, new.task, 1, "again")
        (again,) = await take(two, 1, 2, max=10)
    assert (again.token, again.version) == ("new", 2)


async def test_versions_default_to_the_first(database: str) -> None:
    async with plane(database, graph=SECOND) as one:
        await one.start_token("T", None)
        assert await one.claim(claim_of("coding")) == []
        assert await take(one) == []
        assert await one.claim(claim_of("coding#2")) == []
        assert len(await take(one, 1, 2)) == 1


async def test_a_version_sees_the_memory_of_its_state_and_its_own_checkpoints(database: str) -> None:
    """S2-53: what was saved under the old version stays there; memory is the state's."""
    async with plane(database, graph=SECOND) as one:
        await one.start_token("T", None)
        (grant,) = await take(one, 2)
        await store(one, grant.task, "build", 7, version=2)
        await one.remember(grant.task, "place", raw(1), attempt=1)
        await one.report(grant.task, Report(kind="released", reason="drain", attempt=1, **HOLDER))
        (again,) = await take(one, 2)
        old = await one.supervision.checkpoints(grant.task, version=1, after=0, limit=10)
    assert [each.step for each in again.checkpoints or ()] == ["build"]
    assert bytes(again.memory) == b'{"place":1}'
    assert old.entries == []


async def test_what_nobody_serves_is_counted_and_shown(database: str) -> None:
    """S2-57, DX-22: in `/health`, in the queues, and on the task itself, until somebody serves it."""
    async with plane(database, graph=SECOND) as one:
        for number in range(3):
            await one.start_token(f"T{number}", None)
        await one.claim(claim_of("coding"))
        await one._attendance.write()
        await one._sweep.sweep()
        (queue,) = await one.queues()
        (first, *_) = (await one.supervision.tasks(every(), limit=10, cursor=None)).entries
        assert one.health().unroutable == 3
        assert (queue.state, queue.version, queue.is_served, queue.unroutable) == ("coding#2", 2, False, 3)
        assert (first.unroutable, first.attempt, first.state, first.version) == (True, 0, "coding", 2)

        assert len(await take(one, 2, supervisor="new", max=2)) == 2
        await one._attendance.write()
        one._sweep.chores._done_at.clear()
        await one._sweep.sweep()
        assert one.health().unroutable == 0
        assert [queue.unroutable for queue in await one.queues()] == [0]


def every() -> TaskFilter:
    return TaskFilter()


async def test_a_cap_holds_for_all_versions_of_a_state_and_for_a_routine(database: str) -> None:
    async with plane(database, graph=SECOND) as one:
        for number in range(4):
            await one.start_token(f"T{number}", None)
            await sql(
                database,
                "UPDATE tasks SET state = 'coding' WHERE id % 2 = 0 AND parent_id IS NULL AND input IS NULL",
            )
            await one.supervision.start(start_of(number), None)
        claimed = await one.claim(
            claim_of(
                "coding",
                versions={"coding": [1, 2]},
                routines={"publish": [1]},
                max=10,
                max_by_state={"coding": 3, "@publish": 2},
            )
        )
    assert sorted(grant.routine or grant.state for grant in claimed) == ["coding"] * 3 + ["publish"] * 2


def start_of(number: int) -> Start:
    return Start(routine="publish", input=raw(number))


async def test_a_key_for_states_serves_all_their_versions_and_named_routines(database: str) -> None:
    """A-15: `@` and a routine stand for it in the list of a key."""
    bound = Access(
        role=Role.SUPERVISOR, owners=frozenset({"default"}), states=frozenset({"coding", "@publish"})
    )
    async with plane(database, graph=SECOND) as one:
        await one.start_token("T", None)
        await one.supervision.start(start_of(1), None)
        seen = one.seen_by(bound)
        (grant,) = await take(seen, 2)
        (other,) = await seen.claim(claim_of(routines={"publish": [1]}))
        assert (grant.state, other.routine) == ("coding", "publish")
        await seen.report(grant.task, Report(kind="event", event="coded", attempt=1, **HOLDER))
        assert await code_of(seen.claim(claim_of(routines={"other": [1]}))) is Code.STATE_NOT_ALLOWED


async def test_a_retry_by_a_person_keeps_the_version(database: str) -> None:
    """S2-52: also where the workflow has gone on to another one."""
    async with plane(database, graph=graph_with(testing={"version": 3})) as one:
        await one.start_token("T", None)
        (grant,) = await one.claim(claim_of("coding"))
        await finish(one, grant.task, 1, "coded")
        (test,) = await one.claim(claim_of("testing", versions={"testing": [3]}))
        await one.report(test.task, Report(kind="failed", error="x", attempt=1, **HOLDER))
        view = await one.supervision.task(test.task)
        again = await one.supervision.retry(
            test.task, view.generation, token="again", is_copying=False, actor="ann"
        )
        assert (again.version, again.state) == (3, "testing")
        assert len(await one.claim(claim_of("testing", versions={"testing": [3]}))) == 1


async def test_a_task_keeps_the_policy_it_was_created_with(database: str) -> None:
    """S2-54, S2-56: a changed policy is for new tasks, at the same version or another."""
    first = graph_with(coding={"retries": 1, "backoff": "1s", "not_retryable": ["KeyError"]})
    async with plane(database, graph=first) as one:
        await one.start_token("old", None)
    async with plane(database, graph=graph_with(coding={"retries": 0})) as two:
        await two.start_token("new", None)
        old, new = sorted(await two.claim(claim_of("coding", max=2)), key=lambda grant: grant.task)
        for grant in (old, new):
            await two.report(grant.task, Report(kind="failed", error="ValueError: x", attempt=1, **HOLDER))
        views = [await two.supervision.task(grant.task) for grant in (old, new)]
    assert [view.current_state for view in views] == ["pending", "failed"]
    assert (views[0].retries, views[0].backoff_s, views[0].not_retryable) == (1, 1.0, ["KeyError"])


async def test_a_start_and_a_child_bring_their_policy(database: str) -> None:
    """S2-54: from whoever starts the routine."""
    async with plane(database) as one:
        said = Start(routine="publish", input=raw(1), retries=3, backoff_s=0.0, not_retryable=["KeyError"])
        view, _ = await one.supervision.start(said, None)
        assert (view.retries, view.backoff_s, view.not_retryable) == (3, 0.0, ["KeyError"])
        for error, state in (("ValueError: x", "pending"), ("KeyError: x", "failed")):
            (grant,) = await one.claim(claim_of(routines={"publish": [1]}))
            report = Report(kind="failed", error=error, attempt=grant.attempt, **HOLDER)
            await one.report(grant.task, report)
            assert (await one.supervision.task(view.task)).current_state == state
