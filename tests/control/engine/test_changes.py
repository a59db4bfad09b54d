"""Starts, reports, notes, memory, steering and bundles of messages through the engine, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from control.engine.planes import ask, held_by_another, plane, queue, sql
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Grant, Report, TaskMessage, TaskMessages, TokenView

from stateous_control.engine import starting
from stateous_control.engine.gathering import Operation
from stateous_control.engine.operations import ControlPlane
from stateous_control.graph.document import Graph
from stateous_control.rules.book import Book, Token
from stateous_control.rules.moves import start_token
from stateous_control.store.books import Wanted
from stateous_control.store.failures import Unavailable


def event(name: str, attempt: int | None = 1, **more: Any) -> Report:
    more.setdefault("supervisor", "box")
    more.setdefault("instance", "i1")
    return Report(kind="event", event=name, attempt=attempt, **more)


def failed(error: str = "broken", attempt: int = 1) -> Report:
    return Report(kind="failed", error=error, attempt=attempt, supervisor="box", instance="i1")


async def kinds(one: ControlPlane, name: str) -> list[str]:
    return [entry.kind for entry in await one.history(name)]


async def test_a_token_starts_with_its_first_task_queued(database: str) -> None:
    """S3-01, S3-79, S1-02, S1-32."""
    async with plane(database) as one:
        view, is_new = await one.start_token("TICKET-1", Raw(b'{"a":1.0,"b":12345678901234567890123}'))
        assert (view.token, view.state, view.status, view.visit, is_new) == (
            "TICKET-1",
            "coding",
            "active",
            1,
            True,
        )
        assert bytes(view.context) == b'{"a":1.0,"b":12345678901234567890123}'
        assert await kinds(one, "TICKET-1") == ["started", "event_accepted", "entered", "task_queued"]
        assert (await one.token("TICKET-1")) == view
    task = (await sql(database, "SELECT * FROM tasks"))[0]
    assert (task["current_state"], task["generation"], task["supervisor"]) == ("pending", 1, None)


async def test_a_start_that_comes_again_changes_nothing(database: str) -> None:
    async with plane(database) as one:
        first, _ = await one.start_token("T", Raw(b'{"a":1}'))
        assert await one.start_token("T", Raw(b'{"a":2}')) == (first, False)


async def test_another_spelling_of_a_token_id_is_refused(database: str) -> None:
    """A.2: ids are unique without regard to case, and found only as they are spelled."""
    async with plane(database) as one:
        await one.start_token("Ticket", None)
        with pytest.raises(Refused) as start:
            await one.start_token("TICKET", None)
        with pytest.raises(Refused) as read:
            await one.token("TICKET")
        with pytest.raises(Refused) as fire:
            await one.fire("TICKET", "coded", None)
    assert [caught.value.code for caught in (start, read, fire)] == [
        Code.INVALID_TOKEN_ID,
        Code.TOKEN_NOT_FOUND,
        Code.TOKEN_NOT_FOUND,
    ]


async def test_one_token_is_started_once_by_many_at_two_control_planes(database: str) -> None:
    async with plane(database) as one, plane(database) as two:
        answers = await asyncio.gather(
            *((one, two)[n % 2].start_token(f"T-{n % 4 // 2}", None) for n in range(80)),
            return_exceptions=True,
        )
    assert [is_new for _, is_new in answers].count(True) == 2  # type: ignore[misc]
    assert (await sql(database, "SELECT count(*) AS n FROM tasks"))[0]["n"] == 2


async def test_a_report_moves_the_token_and_ends_the_task_and_its_lease(database: str) -> None:
    """S3-29, S3-41, S3-48."""
    async with plane(database) as one:
        await one.start_token("T", None)
        grant = (await one.claim(ask("coding")))[0]
        view = await one.report(grant.task, event("coded", context=Raw(b'{"branch":"b"}')))
        assert isinstance(view, TokenView)
        assert (view.state, view.visit, bytes(view.context)) == ("testing", 1, b'{"branch":"b"}')
    rows = await sql(database, "SELECT state, current_state FROM tasks ORDER BY id")
    assert [tuple(row) for row in rows] == [("coding", "completed"), ("testing", "pending")]
    assert await sql(database, "SELECT 1 FROM leases") == []


async def test_a_repeated_report_is_answered_as_before_and_a_late_one_is_refused(database: str) -> None:
    """S3-43, S3-45."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        first = await one.report(1, event("coded"))
        assert await one.report(1, event("coded")) == first
        with pytest.raises(Refused) as other:
            await one.report(1, event("again"))
    assert other.value.code is Code.TASK_NOT_HELD


async def test_a_failed_attempt_waits_before_it_is_tried_again(database: str) -> None:
    """S3-35; reported failures wait 1, 2, 4 … s."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        await one.report(1, failed())
        assert await one.claim(ask("coding")) == []
        rows = await sql(database, "SELECT extract(epoch FROM ready_at - now())::float8 AS wait_s FROM tasks")
        assert 0.3 < rows[0]["wait_s"] < 1.3


async def test_a_waiting_claim_wakes_when_a_retry_is_due(database: str) -> None:
    async with plane(database, retry_delay_s=0.1) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        claiming = asyncio.create_task(one.claim(ask("coding", wait=20)))
        await one.report(1, failed())
        grant = (await asyncio.wait_for(claiming, 0.8))[0]
    assert (grant.task, grant.attempt) == (1, 2)


async def test_a_start_wakes_a_waiting_claim_of_another_control_plane(database: str) -> None:
    """The notice goes through the database, well before the backstop."""
    async with plane(database) as one, plane(database) as two:
        while not (one._notices.listener.is_listening and two._notices.listener.is_listening):
            await asyncio.sleep(0.01)
        one._notices.others = 1
        claiming = asyncio.create_task(two.claim(ask("coding", wait=20)))
        await asyncio.sleep(0.05)
        await one.start_token("T", None)
        assert len(await asyncio.wait_for(claiming, 0.5)) == 1


async def test_nobody_is_notified_while_there_is_nobody_else(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        await asyncio.sleep(0.05)
        assert one._notices._is_due.is_set() is False


async def test_memory_comes_with_the_next_grant_and_a_null_deletes_it(database: str) -> None:
    """S3-77, A.8."""
    async with plane(database, retry_delay_s=0) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        await one.remember(1, 'k"é', Raw(b'{"deep":[1.0,null]}'), attempt=1)
        await one.remember(1, "gone", Raw(b"1"), attempt=1)
        await one.remember(1, "gone", None, attempt=1)
        await one.remember(1, "never", None, attempt=1)
        await one.note(1, "half way", attempt=1)
        await one.report(1, failed())
        grant = (await one.claim(ask("coding")))[0]
        assert json.loads(bytes(grant.memory)) == {'k"é': {"deep": [1.0, None]}}
        said = await kinds(one, "T")
    assert [kind for kind in said if "memory" in kind or kind == "note"] == [
        "memory_set",
        "memory_set",
        "memory_deleted",
        "note",
    ]


async def test_a_key_used_twice_fires_once(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        answers = await asyncio.gather(*(one.fire("T", "coded", None, key="k1") for _ in range(10)))
        assert [is_duplicate for _, is_duplicate in answers].count(False) == 1
        assert (await one.token("T")).state == "testing"
        assert (await one.fire("T", "passed", None, key="k1"))[1] is True


async def test_a_paused_token_keeps_its_task_its_timers_and_what_arrives_until_the_resume(
    database: str,
) -> None:
    """S3-08, S3-78."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.fire("T", "stopped", None)
        assert (await one.pause("T")).status == "paused"
        assert await one.claim(ask("waiting")) == []
        await sql(database, "UPDATE timers SET due_at = now() - interval '1 second'")
        await one._sweep.sweep()
        assert (await one.fire("T", "passed", None))[0].status == "paused"
        assert (await one.token("T")).state == "waiting"
        assert (await one.resume("T")).status == "completed"
    assert await sql(database, "SELECT 1 FROM timers") == []
    assert await sql(database, "SELECT 1 FROM held_events") == []


async def test_a_resumed_tokens_timer_goes_on_and_its_task_is_handed_out(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.fire("T", "stopped", None)
        await one.pause("T")
        await one.resume("T")
        assert len(await one.claim(ask("waiting"))) == 1
        await sql(database, "UPDATE timers SET due_at = now() - interval '1 second'")
        await one._sweep.sweep()
        assert (await one.token("T")).state == "coding"


async def test_a_refused_operation_leaves_the_others_of_its_transaction_alone(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        before = one._gathering.transactions
        answers = await asyncio.gather(
            *(one.start_token(f"N-{n}", None) for n in range(20)),
            one.fire("T", "nonsense", None),
            one.fire("nobody", "coded", None),
            *(one.start_token(f"M-{n}", None) for n in range(20)),
            return_exceptions=True,
        )
        assert one._gathering.transactions - before <= 4
        assert (await kinds(one, "T"))[-1] == "event_rejected"
    refusals = [answer.code for answer in answers if isinstance(answer, Refused)]
    assert refusals == [Code.EVENT_NOT_ALLOWED, Code.TOKEN_NOT_FOUND]
    assert (await sql(database, "SELECT count(*) AS n FROM tokens"))[0]["n"] == 41


async def test_an_operation_that_breaks_fails_alone(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(book: Book, graph: Graph, *, name: str, **more: Any) -> Token:
        token = start_token(book, graph, name=name, **more)
        if name == "bad":
            raise ZeroDivisionError("a fault of ours, half way")
        return token

    monkeypatch.setattr(starting, "start_token", start)
    async with plane(database) as one:
        names = [f"T-{n}" for n in range(10)] + ["bad"] + [f"U-{n}" for n in range(10)]
        answers = await asyncio.gather(
            *(one.start_token(name, None) for name in names), return_exceptions=True
        )
    assert [type(answer).__name__ for answer in answers if not isinstance(answer, tuple)] == [
        "ZeroDivisionError"
    ]
    assert (await sql(database, "SELECT count(*) AS n FROM tokens"))[0]["n"] == 20


async def test_data_that_the_database_refuses_fails_alone(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The door stops a NUL; should one come through, its neighbours do not pay."""
    async with plane(database) as one:
        answers = await asyncio.gather(
            one.start_token("A", Raw(b'{"a":1}')),
            one.start_token("B", Raw(b'{"a":"\x00"}')),
            one.start_token("C", Raw(b'{"a":1}')),
            return_exceptions=True,
        )
    assert [isinstance(answer, tuple) for answer in answers] == [True, False, True]


async def test_a_bundle_is_answered_in_order_and_a_refusal_stops_its_attempt_only(database: str) -> None:
    async with plane(database) as one:
        for n in range(3):
            await one.start_token(f"T-{n}", None)
        first, second, third = await one.claim(ask("coding", max=3))

        def say(grant: Grant, kind: str, **more: Any) -> TaskMessage:
            return TaskMessage(task=grant.task, attempt=grant.attempt, kind=kind, **more)

        bundle = [
            say(first, "note", text="one"),
            say(second, "note", text="two"),
            say(second, "report", outcome="event", event="nonsense"),
            say(second, "note", text="never"),
            say(first, "memory", key="k", value=Raw(b"1")),
            say(first, "report", outcome="event", event="coded"),
            say(third, "report", outcome="released", reason="drain"),
            TaskMessage(task=99, attempt=1, kind="note", text="nobody"),
        ]
        before = one._gathering.transactions
        answer = await one.messages(TaskMessages(supervisor="box", instance="i1", messages=bundle))
        assert one._gathering.transactions - before == 1
        assert [result.status for result in answer.results] == [204, 204, 409, 409, 204, 200, 200, 404]
        assert answer.results[5].token is not None
        assert answer.results[5].token.state == "testing"
        said = b"".join(bytes(entry.data) for entry in await one.history("T-1"))
        assert (b"two" in said, b"never" in said) == (True, False)


@pytest.mark.parametrize("count", [1, 60])
async def test_the_number_of_statements_does_not_depend_on_the_size_of_a_set(
    database: str, count: int
) -> None:
    """Sets, not rows: claim, notes, reports and beats."""
    async with plane(database) as one:
        await queue(database, 60)
        await one._gathering.run(_warm())
        before = one._pool.statements
        grants = await one.claim(ask("coding", max=count))
        claimed = one._pool.statements - before
        bundle = [
            TaskMessage(task=g.task, attempt=1, kind=kind, text="t", outcome="event", event="coded")
            for g in grants
            for kind in ("note", "report")
        ]
        await one.messages(TaskMessages(supervisor="box", instance="i1", messages=bundle))
        reported = one._pool.statements - before - claimed
    assert (len(grants), claimed, reported) == (count, 4, 7)


def _warm() -> Operation[None]:
    """An operation that only reserves ids, so that the count below is of the work alone."""
    return Operation(Wanted(moves=100), lambda opened: None, frozenset(), 1)


async def test_many_moves_of_one_token_in_one_transaction_each_get_a_task(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        await asyncio.gather(*(one.fire("T", "again", None) for _ in range(700)))
        assert (await one.token("T")).visit == 701
    rows = await sql(database, "SELECT current_state, count(*) AS n FROM tasks GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("cancelled", 700), ("pending", 1)]


async def test_a_row_that_somebody_holds_makes_only_those_wait_who_need_it(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 40)
        async with held_by_another(database, "SELECT 1 FROM tokens WHERE id = 20 FOR UPDATE"):
            began = asyncio.get_running_loop().time()
            fired = [asyncio.create_task(one.fire(f"T-{n}", "coded", None)) for n in range(1, 41)]
            others = [task for n, task in enumerate(fired, 1) if n != 20]
            await asyncio.gather(*others[:10])
            assert asyncio.get_running_loop().time() - began < 2.5
            with pytest.raises(Unavailable):
                await fired[19]
        await asyncio.gather(*others)


async def test_what_waits_at_the_end_is_answered(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 2)
        async with held_by_another(database, "SELECT 1 FROM tokens FOR UPDATE"):
            firing = [asyncio.create_task(one.fire(f"T-{n % 2 + 1}", "coded", None)) for n in range(6)]
            await asyncio.sleep(0.05)
            await one.__aexit__(None, None, None)
            answers = await asyncio.gather(*firing, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unavailable}


async def test_a_withdrawn_claim_gives_back_what_it_brought_and_ends_its_wait(database: str) -> None:
    async with plane(database) as one, plane(database) as two:
        await queue(database, 2)
        request = ask("coding", max=2, request="r1")
        assert len(await one.claim(request)) == 2
        waiting = asyncio.create_task(two.claim(ask("testing", request="r2", wait=20)))
        await asyncio.sleep(0.05)
        while not two._notices.listener.is_listening:
            await asyncio.sleep(0.01)
        one._notices.others = 1
        assert await one.claim(ask("coding", request="r1", withdraw=True)) == []
        assert await one.claim(ask("coding", request="r2", withdraw=True)) == []
        assert await asyncio.wait_for(waiting, 0.5) == []
        again = await one.claim(ask("coding", max=2))
    assert [(grant.task, grant.attempt) for grant in again] == [(1, 2), (2, 2)]
    rows = await sql(database, "SELECT failures FROM tasks")
    assert [row["failures"] for row in rows] == [0, 0]


async def test_operations_on_one_task_run_in_the_order_they_came(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        await asyncio.gather(*(one.note(1, str(n), attempt=1) for n in range(200)))
        notes = [json.loads(bytes(e.data))["text"] for e in await one.history("T") if e.kind == "note"]
    assert notes == [str(n) for n in range(200)]
