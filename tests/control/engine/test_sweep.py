"""What time brings about: ended leases, due timers, the grace after an outage; several sweepers, locks, races."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

import asyncpg
import pytest
from control.engine.invariants import check_histories
from control.engine.planes import ask, held_by_another, plane, queue, sql
from stateous_contract.codes import Refused
from stateous_contract.messages import HeartbeatRequest, Report, StartToken

from stateous_control.engine import gathering, sweep
from stateous_control.rules.book import Book, Task
from stateous_control.rules.leases import end_lease
from stateous_control.store.books import OpenBook
from stateous_control.store.pool import Session
from stateous_control.store.writing import write_back


async def end_leases(url: str) -> None:
    await sql(url, "UPDATE leases SET until = now() - interval '1 second'")


async def test_an_ended_lease_is_a_failed_attempt_and_the_task_is_tried_again(database: str) -> None:
    """S1-19, S3-26, S3-74 to S3-76."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        await end_leases(database)
        await one._sweep.sweep()
        again = await one.claim(ask("coding", supervisor="other"))
        tail = [(entry.kind, bytes(entry.data)) for entry in (await one.history("T"))[-3:]]
    assert (again[0].task, again[0].attempt) == (1, 2)
    assert [kind for kind, _ in tail] == ["task_failed", "task_retrying", "task_claimed"]
    assert b"box stopped answering: no heartbeat for 2 minutes" in tail[0][1]


async def test_a_lease_that_runs_is_never_ended_nor_is_a_task_without_one(database: str) -> None:
    """S1-20, S1-21."""
    async with plane(database) as one:
        await queue(database, 2)
        await one.claim(ask("coding"))
        await one._sweep.sweep()
        assert one._sweep.leases_ended == 0
    assert [
        row["current_state"] for row in await sql(database, "SELECT current_state FROM tasks ORDER BY id")
    ] == [
        "running",
        "pending",
    ]


async def test_three_sweepers_end_each_lease_once(database: str) -> None:
    """BH-007: each of 100 tasks loses exactly one attempt; after the third the token gets `error` once."""
    async with plane(database) as one, plane(database) as two, plane(database) as three:
        await queue(database, 100)
        for lost in (1, 2, 3):
            assert len(await one.claim(ask("coding", max=100))) == 100
            await end_leases(database)
            await asyncio.gather(*(p._sweep.sweep() for p in (one, two, three, one, two, three)))
            rows = await sql(
                database,
                "SELECT attempt, failures, count(*) AS n FROM tasks WHERE state = 'coding' GROUP BY 1, 2",
            )
            assert [tuple(row) for row in rows] == [(lost, lost, 100)]
    rows = await sql(
        database, "SELECT state, events::json->>'error' AS errors, count(*) AS n FROM tokens GROUP BY 1, 2"
    )
    assert [tuple(row) for row in rows] == [("failed", "1", 100)]
    rows = await sql(database, "SELECT count(*) AS n FROM history WHERE kind = 'task_failed'")
    assert rows[0]["n"] == 300


async def test_a_token_that_somebody_holds_does_not_keep_the_others_from_the_sweep(database: str) -> None:
    """BH-007: the other 99 are swept in time."""
    async with plane(database) as one:
        await queue(database, 100)
        await one.claim(ask("coding", max=100))
        await end_leases(database)
        async with held_by_another(database, "SELECT 1 FROM tokens WHERE id = 50 FOR UPDATE"):
            await one._sweep.sweep()
        rows = await sql(database, "SELECT id FROM tasks WHERE current_state = 'running'")
        assert [row["id"] for row in rows] == [50]
        await one._sweep.sweep()
        assert await sql(database, "SELECT 1 FROM leases") == []


async def test_a_task_that_breaks_the_rules_does_not_keep_the_others_from_the_sweep(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaking(book: Book, task: Task, lease_s: float) -> bool:
        is_over = end_lease(book, task, lease_s)
        if task.id == 2:
            raise ZeroDivisionError("a fault of ours, half way")
        return is_over

    monkeypatch.setattr(sweep, "end_lease", breaking)
    async with plane(database) as one:
        await queue(database, 3)
        await one.claim(ask("coding", max=3))
        await end_leases(database)
        await one._sweep.sweep()
    rows = await sql(database, "SELECT id FROM tasks WHERE current_state = 'running'")
    assert [row["id"] for row in rows] == [2]


async def test_an_outage_costs_nobody_an_attempt(database: str) -> None:
    """BH-008: what ended while nobody looked is judged only after everybody had the time for a beat."""
    async with plane(database, heartbeat_s=30) as one:
        await queue(database, 20)
        await one.claim(ask("coding", max=20))
        await end_leases(database)
        await sql(database, "UPDATE settings SET seen_at = now() - interval '6 hours'")
        # A second pass, and another control plane, know of it too.
        for _ in range(2):
            await one._sweep.sweep()
        rows = await sql(
            database, "SELECT extract(epoch FROM no_sweep_before - now())::float8 AS s FROM settings"
        )
        assert 44 < rows[0]["s"] <= 45
        async with plane(database) as two:
            await two._sweep.sweep()
        assert (await sql(database, "SELECT count(*) AS n FROM leases"))[0]["n"] == 20
        # One agent beats, the other is gone: after the grace only the latter's tasks end.
        await one.heartbeat(HeartbeatRequest(supervisor="box", instance="i1", tasks=list(range(1, 11))))
        await sql(database, "UPDATE settings SET no_sweep_before = now()")
        await one._sweep.sweep()
    rows = await sql(
        database, "SELECT min(id) AS first, count(*) AS n FROM tasks WHERE current_state = 'running'"
    )
    assert tuple(rows[0]) == (1, 10)


async def test_a_sweeper_that_was_frozen_between_its_look_and_its_judgement_judges_nobody(
    database: str,
) -> None:
    """The judgement itself asks once more when somebody last looked."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding"))
        await end_leases(database)
        await one._sweep.observe()
        await sql(database, "UPDATE settings SET seen_at = now() - interval '6 hours'")
        await one._sweep._repeat(one._sweep._end_leases)
    assert (await sql(database, "SELECT count(*) AS n FROM leases"))[0]["n"] == 1


async def test_a_control_plane_that_only_just_missed_a_sweep_gives_no_grace(database: str) -> None:
    async with plane(database, sweep_s=3600) as one:
        one._sweep._outage_s = 5.0
        await sql(database, "UPDATE settings SET seen_at = now() - interval '4 seconds'")
        await one._sweep.sweep()
        assert one._sweep.seen.is_grace is False


async def test_a_heartbeat_at_the_moment_of_the_sweep_is_either_renewed_or_lost(database: str) -> None:
    """S3-27: never both, and the lease agrees with the answer."""
    async with plane(database) as one, plane(database) as two:
        await queue(database, 60)
        await one.claim(ask("coding", max=60))
        await end_leases(database)
        beats = [
            two.heartbeat(HeartbeatRequest(supervisor="box", instance="i1", tasks=[n], attempts={str(n): 1}))
            for n in range(1, 61)
        ]
        answers = await asyncio.gather(*beats[:30], one._sweep.sweep(), *beats[30:])
        lost = {task for answer in answers if answer is not None for task in answer.lost}
    rows = await sql(database, "SELECT task_id FROM leases")
    assert {row["task_id"] for row in rows} == set(range(1, 61)) - lost
    rows = await sql(database, "SELECT id FROM tasks WHERE failures = 1")
    assert {row["id"] for row in rows} == lost


async def test_a_report_and_a_cancel_at_once_have_one_winner(database: str) -> None:
    """S1-15: the second sees what the first did."""
    async with plane(database) as one, plane(database) as two:
        for n in range(10):
            await one.start_token(f"T-{n}", None)
        grants = await one.claim(ask("coding", max=10))
        said = Report(kind="event", event="coded", attempt=1, supervisor="box", instance="i1")
        await asyncio.gather(
            *(one.report(grant.task, said) for grant in grants),
            *(two.cancel(grant.token) for grant in grants),
            return_exceptions=True,
        )
        rows = await sql(
            database,
            "SELECT k.status, t.current_state, count(*) OVER (PARTITION BY k.id) AS tasks FROM tokens k JOIN tasks t ON t.token_id = k.id AND t.state = 'coding'",
        )
    assert {row["status"] for row in rows} == {"cancelled"}
    assert {row["current_state"] for row in rows} <= {"completed", "cancelled"}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_beats_reports_cancels_and_sweeps_in_any_order_never_fail(
    database: str, isolation: str
) -> None:
    """BH-006, short: nothing but refusals reaches a client, PostgreSQL saw no deadlock, and what was taken is done."""
    name = (await sql(database, "SELECT current_database() AS name"))[0]["name"]
    await sql(database, f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    taken: dict[str, list[int]] = {"report": [], "cancel": []}
    async with plane(database) as one, plane(database) as two:
        await one.start_tokens([StartToken(token=f"T-{n}") for n in range(1, 201)])
        tokens = {grant.task: grant.token for grant in await one.claim(ask("coding", max=200))}
        tasks = list(tokens)
        said = Report(kind="event", event="again", attempt=1, supervisor="box", instance="i1")

        async def taking(what: str, task: int, call: Awaitable[object]) -> None:
            await call
            taken[what].append(task)

        def beat() -> HeartbeatRequest:
            return HeartbeatRequest(supervisor="box", instance="i1", tasks=random.sample(tasks, 200))

        calls: list[Awaitable[object]] = [two.heartbeat(beat()) for _ in range(20)]
        calls += [taking("report", task, one.report(task, said)) for task in random.sample(tasks, 150)]
        calls += [taking("cancel", task, two.cancel(tokens[task])) for task in random.sample(tasks, 60)]
        calls += [p._sweep.sweep() for p in (one, two) for _ in range(5)]
        calls += [two.claim(ask("coding", max=20)) for _ in range(10)]
        random.shuffle(calls)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    unexpected = [
        answer for answer in answers if isinstance(answer, Exception) and not isinstance(answer, Refused)
    ]
    assert unexpected == []
    assert {answer.code.status for answer in answers if isinstance(answer, Refused)} <= {409}
    rows = await sql(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert rows[0]["deadlocks"] == 0
    rows = await sql(
        database, "SELECT t.id, t.current_state, k.status FROM tasks t JOIN tokens k ON k.id = t.token_id"
    )
    ends = {row["id"]: (row["current_state"], row["status"]) for row in rows}
    assert taken["report"]
    assert {ends[task][0] for task in taken["report"]} == {"completed"}
    assert {ends[task][1] for task in taken["cancel"]} == {"cancelled"}
    await check_histories(database)


async def test_a_due_timer_moves_its_token_and_fires_once(database: str) -> None:
    async with plane(database) as one, plane(database) as two:
        await one.start_token("T", None)
        await one.fire("T", "stopped", None)
        await sql(database, "UPDATE timers SET due_at = now() - interval '1 second'")
        await asyncio.gather(one._sweep.sweep(), two._sweep.sweep(), one._sweep.sweep())
        kinds = [entry.kind for entry in await one.history("T")]
        assert (await one.token("T")).state == "coding"
    assert kinds.count("timer_fired") == 1


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
async def test_the_database_alone_says_what_time_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    """S1-86, S1-88: with a clock that is wrong by an hour what is due ends, and nothing else."""
    import time

    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off_s)
    async with plane(database) as one:
        await queue(database, 4)
        await one.claim(ask("coding", max=2))
        await sql(database, "UPDATE leases SET until = now() - interval '1 second' WHERE task_id = 1")
        for task, minutes in ((3, -1), (4, 30)):
            expires = (
                f"UPDATE tasks SET expires_at = now() + {minutes} * interval '1 minute' WHERE id = {task}"
            )
            await sql(database, expires)
        await one._sweep.sweep()
    assert [row["task_id"] for row in await sql(database, "SELECT task_id FROM leases")] == [2]
    states = [
        row["current_state"] for row in await sql(database, "SELECT current_state FROM tasks ORDER BY id")
    ]
    assert states == ["pending", "running", "expired", "pending"]


async def test_a_control_plane_killed_in_mid_transaction_leaves_the_old_state(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-16, S1-17, S1-18: neither half of a move is ever seen."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))

        async def ending(session: Session, opened: OpenBook) -> None:
            await write_back(session, opened)
            seen = await sql(database, "SELECT state, visit FROM tokens")
            assert [tuple(row) for row in seen] == [("coding", 1)]
            await session.fetch("SELECT pg_terminate_backend(pg_backend_pid())")

        with monkeypatch.context() as patched:
            patched.setattr(gathering, "write_back", ending)
            with pytest.raises(Refused, match="does not answer"):
                await one.report(
                    1, Report(kind="event", event="coded", attempt=1, supervisor="box", instance="i1")
                )
        before = [tuple(row) for row in await sql(database, "SELECT current_state, generation FROM tasks")]
        view = await one.report(
            1, Report(kind="event", event="coded", attempt=1, supervisor="box", instance="i1")
        )
    assert before == [("running", 2)]
    assert view.state == "testing"


async def test_a_sweep_goes_on_after_the_database_was_away(database: str) -> None:
    """BH-049: every connection of the control plane is cut; the loop, the listener and the claims come back."""
    async with plane(database, sweep_s=0.05, heartbeat_s=0.01) as one:
        await queue(database, 1)
        waiting = asyncio.create_task(one.claim(ask("testing", wait=20)))
        await asyncio.sleep(0.1)
        connection = await asyncpg.connect(database)
        await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await connection.close()
        await one.ready()
        await one.claim(ask("coding"))
        await end_leases(database)
        async with asyncio.timeout(5):
            while one._sweep.leases_ended == 0 or not one._notices.listener.is_listening:
                await asyncio.sleep(0.02)
        await queue(database, 1, "testing", first=50)
        assert len(await asyncio.wait_for(waiting, 3)) == 1


async def test_what_is_remembered_for_a_while_is_forgotten(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 2)
        await one.claim(ask("coding", request="old"))
        await sql(database, "UPDATE claim_requests SET claimed_at = now() - interval '2 hours'")
        await one.claim(ask("coding", request="new"))
        one._sweep.chores._done_at.clear()
        await one._sweep.sweep()
    assert [row["request"] for row in await sql(database, "SELECT request FROM claim_requests")] == ["new"]


async def test_a_task_parked_without_a_reason_raises_an_alarm(database: str) -> None:
    """S1-25, S1-26."""
    async with plane(database) as one:
        await queue(database, 1)
        assert one.health().alarms == []
        await sql(database, "UPDATE tasks SET current_state = 'parked', ready_at = NULL")
        await one._sweep.sweep()
        assert one.health().alarms == ["task 1 is parked without a reason"]


@pytest.mark.parametrize(("count", "told"), [(10, 10), (11, 11), (50, 11)])
async def test_alarms_that_are_not_all_named_say_so(database: str, count: int, told: int) -> None:
    """BH-056: ten by name, and that there are more."""
    async with plane(database) as one:
        await queue(database, count)
        await sql(database, "UPDATE tasks SET current_state = 'parked', ready_at = NULL")
        await one._sweep.sweep()
        alarms = one.health().alarms
    assert alarms is not None
    assert len(alarms) == told
    assert (alarms[-1] == "more tasks than these 10 are parked without a reason") is (count > 10)


@pytest.mark.parametrize("count", [1, 50])
async def test_a_sweep_takes_the_same_number_of_statements_for_any_number_of_leases(
    database: str, count: int
) -> None:
    async with plane(database) as one:
        await queue(database, 50)
        await one.claim(ask("coding", max=count))
        await end_leases(database)
        await one._sweep.sweep()
        before = one._pool.statements
        await one.claim(ask("coding", max=count))
        await end_leases(database)
        await one._sweep.sweep()
        swept = one._pool.statements - before
    assert swept == 13


async def test_a_pass_with_nothing_due_is_two_statements(database: str) -> None:
    """One look for everything that a time stands in an index for, one at the leases."""
    async with plane(database) as one:
        await queue(database, 3)
        await one._sweep.sweep()
        before = one._pool.statements
        await one._sweep.sweep()
        assert one._pool.statements - before == 2
