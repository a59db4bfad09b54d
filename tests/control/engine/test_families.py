"""Parallel states on a real PostgreSQL: families are locked, moved and swept as one, and nothing happens twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from control.engine import supervised
from control.engine.planes import ask, graph, held_by_another, plane, sql
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Grant, HeartbeatRequest, Report, TaskMessage, TaskMessages

from stateous_control.engine.operations import ControlPlane
from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load
from stateous_control.store import pool

WORKFLOW = Path(__file__).parents[3] / "contract/conformance/workflow.json"
ROUNDS = 40
OK = Raw(b'{"ok":true}')


@asynccontextmanager
async def press(url: str, **settings: Any) -> AsyncIterator[ControlPlane]:
    """A control plane that serves the workflow of the conformance suite."""
    async with plane(url, graph=load(json.loads(WORKFLOW.read_text("utf-8"))), **settings) as running:
        yield running


async def start(one: ControlPlane, name: str, path: str = "proofs") -> None:
    await one.start_token(name, Raw(json.dumps({"path": path}).encode()))


async def hold(one: ControlPlane, *states: str, most: int = 500) -> list[Grant]:
    return await one.claim(ask(*states, max=most))


def event(grant: Grant, name: str = "verdict", payload: Raw | None = OK) -> Report:
    return Report(
        kind="event", event=name, payload=payload, attempt=grant.attempt, supervisor="box", instance="i1"
    )


async def kinds(one: ControlPlane, name: str) -> list[str]:
    return [entry.kind for entry in await one.history(name)]


async def unfit(url: str) -> list[Any]:
    """Whatever breaks what always holds of families and histories."""
    return await sql(
        url,
        """SELECT 'a gap' AS what, h.token_id FROM history h JOIN tokens k ON k.id = h.token_id
             GROUP BY 2, k.seq HAVING count(*) <> k.seq OR max(h.seq) <> k.seq
           UNION ALL SELECT 'a child without its parent', c.id FROM tokens c JOIN tokens p ON p.id = c.parent_id
             WHERE c.status IN ('active', 'paused') AND (p.status <> c.status OR c.current_root IS NULL
               OR c.name NOT LIKE p.name || '.' || p.state || '.' || p.visit || '.%')
           UNION ALL SELECT 'nothing to wait for', p.id FROM tokens p WHERE p.state = 'proofs' AND p.status = 'active'
             AND NOT EXISTS (SELECT 1 FROM tokens c WHERE c.parent_id = p.id AND c.status = 'active')
           UNION ALL SELECT 'a task of an ended token', t.id FROM tasks t JOIN tokens k ON k.id = t.token_id
             WHERE t.current_state IN ('pending', 'running', 'parked') AND k.status NOT IN ('active', 'paused')
           UNION ALL SELECT 'joined twice', k.id FROM tokens k WHERE (k.events::json->>'joined')::int > 1""",
    )


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the database said each time that it stopped a transaction for another's sake: deadlocks, above all."""
    seen: list[str] = []
    whole = pool.translated

    def counting(error: Exception) -> Exception:
        meaning = whole(error)
        if isinstance(meaning, pool.Again):
            seen.append(str(error))
        return meaning

    monkeypatch.setattr(pool, "translated", counting)
    return seen


async def test_a_family_lives_from_its_start_to_the_join(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        children = await one.list_tokens(parent="T")
        spelling, layout = await hold(one, "spelling/check", "layout/check")
        await one.report(spelling.task, event(spelling))
        assert (await one.token("T")).state == "proofs"
        await one.report(layout.task, event(layout))
        (accept,) = await hold(one, "spelling/accept")
        await one.report(accept.task, event(accept, "noted", None))
        (printing,) = await hold(one, "printing")
    assert [(child.token, child.parent, child.state) for child in children] == [
        ("T.proofs.1.layout", "T", "check"),
        ("T.proofs.1.spelling", "T", "check"),
    ]
    assert (spelling.state, spelling.token, layout.state) == (
        "spelling/check",
        "T.proofs.1.spelling",
        "layout/check",
    )
    assert printing.entered_by is not None
    branches = json.loads(bytes(printing.entered_by.payload))["branches"]  # type: ignore[arg-type]
    assert [(each["workflow"], each["final"], each["payload"]) for each in branches] == [
        ("spelling", "accept", {"ok": True}),
        ("layout", "check", None),
    ]
    assert await unfit(database) == []


async def test_a_name_without_a_slash_claims_no_childs_task(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        assert await hold(one, "check", "accept") == []


async def test_children_that_end_at_the_same_time_join_once(database: str, stopped: list[str]) -> None:
    """At two control planes, so that two transactions want the same family."""
    async with press(database) as one, press(database) as two:
        for number in range(ROUNDS):
            await start(one, f"T-{number}")
        grants = await hold(one, "spelling/check", "layout/check")
        await asyncio.gather(
            *(one.report(each.task, event(each)) for each in grants if "layout" in each.state)
        )
        await asyncio.gather(
            *(one.report(each.task, event(each)) for each in grants if "spell" in each.state)
        )
        accepts = await hold(one, "spelling/accept")
        for number in range(ROUNDS):
            await start(one, f"U-{number}")
        others = await hold(one, "spelling/check", "layout/check")
        await asyncio.gather(
            *(
                (one, two)[n % 2].report(each.task, event(each, "noted", None))
                for n, each in enumerate(accepts)
            ),
            *((one, two)["layout" in each.state].report(each.task, event(each)) for each in others),
        )
    states = await sql(
        database,
        "SELECT left(name, 1), state, count(*) FROM tokens WHERE parent IS NULL GROUP BY 1, 2 ORDER BY 1",
    )
    assert [tuple(row) for row in states] == [("T", "printing", ROUNDS), ("U", "proofs", ROUNDS)]
    assert await unfit(database) == []
    assert stopped == []


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.prove)])
async def test_children_whose_questions_are_answered_10_ms_apart_both_go_on(
    database: str, rounds: int
) -> None:
    """BH-043 (a): once all is answered nothing stays parked, each has its own answer, and the family joins once."""
    children = ("spelling/check", "layout/check")
    async with press(database) as one, press(database) as two:

        async def later(plane: ControlPlane, question: int, told: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await supervised.answer(plane, question, told)

        for number in range(rounds):
            await start(one, f"T-{number}")
            grants = await hold(one, *children)
            asked = [await supervised.ask(one, each.task) for each in grants]
            await asyncio.gather(
                later(one, asked[0].question, "first", 0), later(two, asked[1].question, "second", 0.01)
            )
            again = await hold(two, *children)
            assert {each.task for each in again} == {each.task for each in grants}
            answers = [(await one.supervision.question(each.question)).answer for each in asked]
            assert answers == [Raw(b'"first"'), Raw(b'"second"')]
            await asyncio.gather(*(one.report(each.task, event(each)) for each in again))
            (accept,) = await hold(one, "spelling/accept")
            await one.report(accept.task, event(accept, "noted", None))
            assert (await one.token(f"T-{number}")).state == "printing"
    assert await sql(database, "SELECT id FROM tasks WHERE current_state = 'parked'") == []
    assert await unfit(database) == []


async def test_of_two_children_that_race_the_first_joins_and_the_other_is_told(database: str) -> None:
    async with press(database) as one, press(database) as two:
        for number in range(ROUNDS):
            await start(one, f"T-{number}", "sprint")
        grants = await hold(one, "spelling/check", "layout/check")
        layouts = [each for each in grants if each.state == "layout/check"]
        spellings = [each for each in grants if each.state == "spelling/check"]
        answers = await asyncio.gather(
            *(one.report(each.task, event(each)) for each in layouts),
            *(two.report(each.task, event(each)) for each in spellings),
            return_exceptions=True,
        )
    refused = [each for each in answers if isinstance(each, BaseException)]
    assert {each.code for each in refused if isinstance(each, Refused)} <= {Code.TASK_NOT_HELD}
    assert all(isinstance(each, Refused) for each in refused)
    states = await sql(database, "SELECT state, count(*) FROM tokens WHERE parent IS NULL GROUP BY 1")
    assert [tuple(row) for row in states] == [("printing", ROUNDS)]
    assert await unfit(database) == []


async def test_a_parent_may_be_left_cancelled_or_paused_while_its_children_report(
    database: str, stopped: list[str]
) -> None:
    """Whatever comes first, the family goes together and every answer fits what became of it."""

    async def steer(plane_: ControlPlane, number: int) -> None:
        name, turn = f"T-{number}", number % 4
        if turn == 0:
            await plane_.fire(name, "flagged", Raw(b'{"level":1}'))
        elif turn == 1:
            await plane_.cancel(name)
        elif turn == 2:
            await plane_.fire(name, "again", None)
        else:
            await plane_.pause(name)
            await plane_.resume(name)

    async with press(database) as one, press(database) as two:
        for number in range(ROUNDS):
            await start(one, f"T-{number}")
        grants = await hold(one, "spelling/check", "layout/check")
        answers = await asyncio.gather(
            *(one.report(each.task, event(each)) for each in grants),
            *(steer(two, number) for number in range(ROUNDS)),
            *(one.note(each.task, "at work", attempt=1) for each in grants),
            *(two.claim(ask("spelling/accept", "layout/check", max=3, instance=f"c{n}")) for n in range(20)),
            return_exceptions=True,
        )
    faults = [each for each in answers if isinstance(each, BaseException)]
    assert all(isinstance(each, Refused) for each in faults), faults
    codes = {each.code for each in faults if isinstance(each, Refused)}
    assert codes <= {Code.TASK_NOT_HELD, Code.TOKEN_NOT_ACTIVE, Code.EVENT_NOT_ALLOWED}
    assert await unfit(database) == []
    assert stopped == []


async def test_a_paused_family_hands_out_nothing_and_keeps_what_its_children_report(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        (layout,) = await hold(one, "layout/check")
        assert (await one.pause("T")).status == "paused"
        beat = await one.heartbeat(HeartbeatRequest("box", [layout.task], "i1", {str(layout.task): 1}))
        assert (beat.lost, beat.pause) == ([], [layout.task])
        assert (await one.report(layout.task, event(layout))).status == "paused"
        assert await hold(one, "spelling/check") == []
        assert (await one.resume("T")).state == "proofs"
        (spelling,) = await hold(one, "spelling/check")
        assert (await one.token(layout.token)).status == "completed"
        assert await kinds(one, layout.token) == [
            "started", "event_accepted", "entered", "task_queued", "task_claimed", "paused", "event_deferred",
            "task_done", "resumed", "event_replayed", "event_accepted", "completed",
        ]  # fmt: skip
        assert spelling.attempt == 1
    assert await unfit(database) == []


async def test_an_ended_lease_of_a_child_is_swept_under_the_lock_of_its_root(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        (layout,) = await hold(one, "layout/check")
        await sql(database, "UPDATE leases SET until = now() - interval '1 second'")
        async with held_by_another(database, "SELECT 1 FROM tokens WHERE name = 'T' FOR UPDATE"):
            await one._sweep.sweep()
            assert (await one.token(layout.token)).status == "active"
        await one._sweep.sweep()
        assert (await one.token(layout.token)).status == "failed"
    assert await unfit(database) == []


async def test_a_timeout_of_the_parent_ends_its_children(database: str) -> None:
    async with press(database) as one:
        await start(one, "T", "sprint")
        await sql(database, "UPDATE timers SET due_at = now() - interval '1 second'")
        await one._sweep.sweep()
        assert (await one.token("T")).state == "late"
        assert {child.status for child in await one.list_tokens(parent="T")} == {"cancelled"}
    assert await sql(database, "SELECT 1 FROM tokens WHERE current_root IS NOT NULL") == []
    assert await unfit(database) == []


async def test_a_family_that_is_over_is_not_read_again(database: str) -> None:
    """The children of earlier visits cost a step nothing, however many they are."""
    async with press(database) as one:
        await start(one, "T")
        for _ in range(12):
            await one.fire("T", "again", None)
        opened: list[int] = []
        whole = one._shelf.open

        async def counting(session: Any, wanted: Any) -> Any:
            book = await whole(session, wanted)
            opened.append(len(book.book.tokens))
            return book

        one._shelf.open = counting  # type: ignore[method-assign]
        await one.fire("T", "again", None)
    assert opened == [3]
    assert len(await sql(database, "SELECT 1 FROM tokens")) == 29


async def test_a_child_of_an_earlier_visit_can_still_be_looked_for(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        (layout,) = await hold(one, "layout/check")
        await one.fire("T", "again", None)
        with pytest.raises(Refused) as late:
            await one.report(layout.task, event(layout))
        with pytest.raises(Refused) as fired:
            await one.fire(layout.token, "verdict", OK)
        again, is_new = await one.start_token(layout.token, None)
    assert (late.value.code, fired.value.code) == (Code.TASK_NOT_HELD, Code.TOKEN_NOT_ACTIVE)
    assert (again.parent, again.status, is_new) == ("T", "cancelled", False)


async def test_a_taken_name_keeps_a_token_out_of_a_parallel_state(database: str) -> None:
    async with press(database) as one:
        await start(one, "T")
        await start(one, "t.PROOFS.2.Layout", "plain")
        with pytest.raises(Refused) as fired:
            await one.fire("T", "again", None)
        await start(one, "U.proofs.1.layout", "plain")
        with pytest.raises(Refused) as started:
            await start(one, "U")
        assert (await kinds(one, "T"))[-1] == "event_rejected"
    assert (fired.value.code, started.value.code) == (Code.EVENT_NOT_ALLOWED, Code.INVALID_CONTEXT)


async def test_a_name_and_the_child_that_wants_it_may_come_at_once(database: str) -> None:
    async with press(database) as one, press(database) as two:
        answers = await asyncio.gather(
            *(start((one, two)[n % 2], f"T-{n // 2}") for n in range(ROUNDS)),
            *(start((two, one)[n % 2], f"T-{n}.proofs.1.layout", "plain") for n in range(ROUNDS // 2)),
            return_exceptions=True,
        )
    assert {each.code for each in answers if isinstance(each, Refused)} <= {Code.INVALID_CONTEXT}
    assert not [each for each in answers if isinstance(each, Exception) and not isinstance(each, Refused)]
    assert await unfit(database) == []


async def test_many_ends_in_one_bundle_join_each_family_once(database: str) -> None:
    async with press(database) as one:
        for number in range(20):
            await start(one, f"T-{number}")
        grants = await hold(one, "spelling/check", "layout/check")
        before = one._pool.statements
        results = await one.messages(
            TaskMessages(
                supervisor="box",
                instance="i1",
                messages=[
                    TaskMessage(
                        task=each.task, attempt=1, kind="report", outcome="event", event="verdict", payload=OK
                    )
                    for each in grants
                ],
            )
        )
        statements = one._pool.statements - before
    assert {result.status for result in results.results} == {200}
    assert statements < 16
    assert await unfit(database) == []


async def statements_of_a_report(url: str, state: str, served: Graph, said: Report) -> int:
    """How many statements one report takes; the least of three, because other loops have theirs now and then."""
    counts = []
    await sql(url, "DELETE FROM control_planes")  # one that has just stopped would be notified
    async with plane(url, graph=served) as one:
        for number in range(3):
            await one.start_token(f"{state}-{number}", Raw(json.dumps({"path": state}).encode()))
            (grant,) = await hold(one, state)
            before = one._pool.statements
            await one.report(grant.task, said)
            counts.append(one._pool.statements - before)
    return min(counts)


async def test_a_token_without_children_costs_no_statement_more(database: str) -> None:
    """The same report, of a workflow with parallel states and of one without."""
    parallel = load(json.loads(WORKFLOW.read_text("utf-8")))
    flagged = Report(kind="event", event="flagged", payload=Raw(b'{"level":1}'), attempt=1, supervisor="box")
    coded = Report(kind="event", event="coded", attempt=1, supervisor="box")

    with_it = await statements_of_a_report(database, "plain", parallel, flagged)
    without = await statements_of_a_report(database, "coding", graph(), coded)

    assert with_it == without
