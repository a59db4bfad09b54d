"""Claims on a real PostgreSQL: order, sets, repeats, waiting, and races."""

from __future__ import annotations

import asyncio

import asyncpg
from control.engine.planes import ask, graph, held_by_another, ids, plane, queue, sql

from stateous_control.rules.access import Access, Role
from stateous_control.store.pool import Mode, Pool, Session
from stateous_control.store.statements import statements


async def test_a_claim_gets_the_oldest_task_of_its_states(database: str) -> None:
    """S3-06, S3-07, S3-09, S3-10."""
    async with plane(database) as one:
        await queue(database, 3)
        await queue(database, 1, "testing", first=10)
        grants = await one.claim(ask("coding"))
    grant = grants[0]
    assert len(grants) == 1
    assert (grant.task, grant.token, grant.state, grant.visit, grant.attempt) == (1, "T-1", "coding", 1, 1)
    assert (bytes(grant.context), bytes(grant.memory)) == (b'{"n":1}', b"{}")
    assert grant.entered_by is not None
    assert grant.entered_by.name == "__started__"
    assert grant.lease_s == 120


async def test_a_claimed_task_runs_with_a_lease_a_line_of_history_and_a_new_generation(database: str) -> None:
    """S1-03, S1-31, S1-33, S3-47."""
    async with plane(database) as one:
        await queue(database, 1)
        await one.claim(ask("coding"))
    row = (
        await sql(
            database,
            "SELECT t.*, l.until, l.attempt AS leased FROM tasks t JOIN leases l ON l.task_id = t.id",
        )
    )[0]
    assert (row["current_state"], row["attempt"], row["leased"], row["generation"]) == ("running", 1, 1, 2)
    assert (row["supervisor"], row["instance"], row["ready_at"]) == ("box", "i1", None)
    lines = await sql(database, "SELECT seq, kind, data FROM history")
    assert [tuple(line) for line in lines] == [
        (5, "task_claimed", '{"task":1,"supervisor":"box","attempt":1}')
    ]
    assert (await sql(database, "SELECT seq FROM tokens"))[0]["seq"] == 5


async def test_one_task_and_200_claimers_have_one_winner(database: str) -> None:
    """S3-11, S1-83."""
    async with plane(database) as one, plane(database) as two:
        await queue(database, 1)
        answers = await asyncio.gather(
            *((one, two)[n % 2].claim(ask("coding", supervisor=f"box-{n}")) for n in range(200))
        )
    assert sum(map(len, answers)) == 1
    assert (await sql(database, "SELECT attempt FROM tasks"))[0]["attempt"] == 1


async def test_200_claimers_and_200_tasks_all_get_one(database: str) -> None:
    """Nobody is told that there is nothing while a task is free (peer limit 19)."""
    async with plane(database) as one, plane(database) as two:
        await queue(database, 200)
        answers = await asyncio.gather(
            *((one, two)[n % 2].claim(ask("coding", supervisor=f"box-{n}")) for n in range(200))
        )
    assert sorted(task for grants in answers for task in ids(grants)) == list(range(1, 201))


async def test_a_claim_with_max_gets_several_within_the_limit_of_each_state(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 5)
        await queue(database, 5, "testing", first=10)
        grants = await one.claim(ask("coding", "testing", max=6, max_by_state={"coding": 2, "testing": 5}))
    assert [grant.state for grant in grants].count("coding") == 2
    assert [grant.state for grant in grants].count("testing") == 4


async def test_a_claim_of_several_states_takes_the_oldest_of_all(database: str) -> None:
    """BH-012: no state starves another."""
    async with plane(database) as one:
        await queue(database, 3)
        await queue(database, 3, "testing", first=10)
        await sql(
            database, "UPDATE tasks SET ready_at = ready_at - interval '1 hour' WHERE id IN (2, 11, 12)"
        )
        grants = await one.claim(ask("coding", "testing", max=4))
    assert sorted(ids(grants)) == [1, 2, 11, 12]


async def test_who_serves_two_states_gets_both_in_bounded_time_whatever_keeps_coming(database: str) -> None:
    """BH-012: what is newer never comes first, so as many claims as what is older takes bring both kinds."""
    async with plane(database) as one:
        await queue(database, 200)
        await queue(database, 10, "testing", first=1_000)
        got: list[str] = []
        for number in range(11):
            got += [grant.state for grant in await one.claim(ask("coding", "testing", max=20))]
            await queue(database, 40, first=10_000 + 40 * number)  # twice what was taken
    assert got == ["coding"] * 200 + ["testing"] * 10 + ["coding"] * 10


async def test_a_state_whose_head_is_locked_does_not_hide_another_state(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 1)
        await queue(database, 1, "testing", first=10)
        async with held_by_another(database, "SELECT 1 FROM tokens WHERE id = 1 FOR UPDATE"):
            grants = await one.claim(ask("coding", "testing"))
    assert ids(grants) == [10]


async def test_a_task_whose_token_is_busy_for_a_moment_is_not_missed(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 1)
        async with held_by_another(database, "SELECT 1 FROM tokens WHERE id = 1 FOR UPDATE"):
            claiming = asyncio.create_task(one.claim(ask("coding")))
            await asyncio.sleep(0.01)
        assert ids(await claiming) == [1]


async def test_a_task_that_is_ready_later_is_not_given_out_before(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 1)
        await sql(database, "UPDATE tasks SET ready_at = now() + interval '1 minute'")
        assert await one.claim(ask("coding")) == []


async def test_the_same_request_id_brings_the_same_set_again(database: str) -> None:
    """S3-13, S3-14, S3-15, S3-16: same tasks and attempts, lease renewed, no new line, no second task."""
    async with plane(database) as one:
        await queue(database, 5)
        request = ask("coding", max=3)
        first = await one.claim(request)
        await sql(database, "UPDATE leases SET until = now() - interval '1 second'")
        await sql(database, "UPDATE tokens SET context = '{\"n\":7}' WHERE id = 1")
        again = await one.claim(request)
        assert [(g.task, g.attempt) for g in again] == [(g.task, g.attempt) for g in first]
        assert bytes(again[0].context) == b'{"n":7}'
    rows = await sql(
        database, "SELECT count(*) AS held, min(until) > now() + interval '1 minute' AS renewed FROM leases"
    )
    assert tuple(rows[0]) == (3, True)
    assert (await sql(database, "SELECT count(*) AS n FROM history"))[0]["n"] == 3


async def test_a_repeat_brings_only_what_is_still_held_on_that_attempt(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 3)
        request = ask("coding", max=3)
        await one.claim(request)
        await sql(database, "DELETE FROM leases WHERE task_id = 2")
        await sql(database, "UPDATE leases SET attempt = 2 WHERE task_id = 3")
        assert ids(await one.claim(request)) == [1]


async def test_a_repeat_of_which_nothing_is_held_is_a_new_claim(database: str) -> None:
    """S3-17."""
    async with plane(database) as one:
        await queue(database, 2)
        request = ask("coding")
        await one.claim(request)
        await sql(database, "DELETE FROM leases")
        assert ids(await one.claim(request)) == [2]


async def test_an_instance_may_repeat_each_of_two_claims_in_flight(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 4)
        first, second = ask("coding", max=2), ask("coding", max=2)
        assert ids(await one.claim(first)) == [1, 2]
        assert ids(await one.claim(second)) == [3, 4]
        assert ids(await one.claim(first)) == [1, 2]
        assert ids(await one.claim(second)) == [3, 4]


async def test_of_a_supervisor_without_an_instance_the_newest_id_is_remembered(database: str) -> None:
    """A.3: an older id is then just a new claim."""
    async with plane(database) as one:
        await queue(database, 3)
        older, newer = (ask("coding", instance=None, request=name) for name in ("older", "newer"))
        assert ids(await one.claim(older)) == [1]
        assert ids(await one.claim(newer)) == [2]
        assert ids(await one.claim(newer)) == [2]
        assert ids(await one.claim(older)) == [3]


async def test_a_newer_id_that_brings_nothing_makes_the_older_one_forgotten(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 1)
        assert ids(await one.claim(ask("coding", instance=None, request="older"))) == [1]
        assert await one.claim(ask("coding", instance=None, request="newer")) == []
        assert await one.claim(ask("coding", instance=None, request="older")) == []


async def test_a_claim_that_finds_nothing_writes_nothing(database: str) -> None:
    """A-11, A-13: an idle agent costs no row."""
    async with plane(database) as one:
        await one.claim(ask("coding"))
        await one.claim(ask("coding", instance=None, request="idle"))
    assert (await sql(database, "SELECT count(*) AS n FROM claim_requests"))[0]["n"] == 0


async def test_the_same_id_twice_at_once_claims_once(database: str) -> None:
    """S3-17: two first claims with one id take turns, also on two control planes."""
    async with plane(database) as one, plane(database) as two:
        await queue(database, 10)
        for _ in range(5):
            request = ask("coding", max=2)
            answers = await asyncio.gather(one.claim(request), two.claim(request), one.claim(request))
            assert len({tuple(ids(grants)) for grants in answers if grants}) == 1
    assert (await sql(database, "SELECT max(attempt) AS most FROM tasks"))[0]["most"] == 1


async def test_one_answer_stays_within_its_bytes(database: str) -> None:
    """`batch_bytes_max`: fewer tasks, never none."""
    async with plane(database) as one:
        await queue(database, 12)
        await sql(database, "UPDATE tokens SET context = '{\"t\":\"' || repeat('x', 1000000) || '\"}'")
        assert len(await one.claim(ask("coding", max=12))) == 8
        await sql(database, "UPDATE tokens SET context = '{\"t\":\"' || repeat('x', 9000000) || '\"}'")
        assert len(await one.claim(ask("coding", max=12))) == 1


async def test_a_waiting_claim_gets_work_the_moment_it_is_there(database: str) -> None:
    async with plane(database) as one:
        claiming = asyncio.create_task(one.claim(ask("coding", wait=20)))
        await asyncio.sleep(0.05)
        await queue(database, 1)
        began = asyncio.get_running_loop().time()
        one._claims.ready([("default", "coding")])
        assert ids(await claiming) == [1]
        assert asyncio.get_running_loop().time() - began < 0.3


async def test_work_that_nobody_told_of_is_found_within_a_second(database: str) -> None:
    async with plane(database) as one:
        claiming = asyncio.create_task(one.claim(ask("coding", wait=20)))
        await asyncio.sleep(0.05)
        await queue(database, 1)
        assert ids(await asyncio.wait_for(claiming, 3)) == [1]


async def test_one_new_task_and_many_who_wait_cost_one_transaction(database: str) -> None:
    async with plane(database) as one:
        waiting = [
            asyncio.create_task(one.claim(ask("coding", supervisor=f"b{n}", wait=20))) for n in range(50)
        ]
        while one._claims.waiting < 50:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await queue(database, 1)
        before = one._pool.transactions
        one._claims.ready([("default", "coding")])
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert one._pool.transactions - before <= 2
        one.begin_stop()
        assert sum(map(len, await asyncio.gather(*waiting))) == 1


async def test_waiting_claims_of_one_name_take_turns_and_do_not_spin(database: str) -> None:
    """Without an instance a name has one claim at a time; several that wait are asked one after the other."""
    async with plane(database) as one:
        waiting = [
            asyncio.create_task(one.claim(ask("coding", instance=None, request=f"r{n}", wait=20)))
            for n in range(3)
        ]
        await asyncio.sleep(0.2)
        before = one._pool.transactions
        one._claims.ready([("default", "coding")])
        await asyncio.sleep(0.2)
        assert one._pool.transactions - before == 3
        await queue(database, 3)
        one._claims.ready([("default", "coding")])
        assert sorted(task for grants in await asyncio.gather(*waiting) for task in ids(grants)) == [1, 2, 3]


async def test_a_stop_answers_every_waiting_claim_at_once_and_later_ones_too(database: str) -> None:
    async with plane(database) as one:
        waiting = [asyncio.create_task(one.claim(ask("coding", wait=20))) for _ in range(20)]
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        one.begin_stop()
        assert await asyncio.gather(*waiting) == [[]] * 20
        assert await one.claim(ask("coding", wait=20)) == []
        assert asyncio.get_running_loop().time() - began < 0.2


async def test_a_newer_claim_with_the_id_of_a_waiting_one_takes_its_place(database: str) -> None:
    async with plane(database) as one:
        request = ask("coding", wait=20)
        older = asyncio.create_task(one.claim(request))
        await asyncio.sleep(0.05)
        newer = asyncio.create_task(one.claim(request))
        assert await asyncio.wait_for(older, 1) == []
        await queue(database, 1)
        one._claims.ready([("default", "coding")])
        assert ids(await newer) == [1]


async def test_nothing_is_granted_to_a_client_that_has_left(database: str) -> None:
    async with plane(database) as one:
        has_left = False
        claiming = asyncio.create_task(one.claim(ask("coding", wait=20), lambda: has_left))
        await asyncio.sleep(0.05)
        has_left = True
        await queue(database, 1)
        one._claims.ready([("default", "coding")])
        assert await claiming == []
    assert (await sql(database, "SELECT current_state FROM tasks"))[0]["current_state"] == "pending"


async def test_a_cancelled_claim_leaves_the_line(database: str) -> None:
    async with plane(database) as one:
        claiming = asyncio.create_task(one.claim(ask("coding", wait=20)))
        await asyncio.sleep(0.05)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        assert one._claims.waiting == 0


async def test_the_plan_of_a_claim_follows_the_index_whatever_the_planner_believes(database: str) -> None:
    """S3-07 at any size: with no statistics at all, the claim reads the oldest entries and nothing else."""
    await sql(database, "INSERT INTO graphs VALUES ($1, '', '', '{}')", graph().checksum)
    await queue(database, 3000)
    pool = Pool(database)

    async def explain(session: Session) -> list[asyncpg.Record]:
        await session.execute("PREPARE pick AS " + statements.pick)
        return await session.fetch(
            "EXPLAIN EXECUTE pick (ARRAY['coding', 'testing'], ARRAY[10, 10],"
            " ARRAY['1970-01-01', '1970-01-01']::timestamptz[], 10, 8000000, ARRAY['default', 'default'])"
        )

    lines = [row[0].strip() for row in await pool.run(explain, Mode.CLAIM)]
    await pool.close()
    text = "\n".join(lines)
    assert text.count("using tasks_claimable on tasks") == 2
    assert "Seq Scan" not in text
    assert "Hash" not in text.replace("HashAggregate", "")
    # Locks are taken one by one behind the limit, never for a sorted whole.
    after_limit = lines[next(i for i, line in enumerate(lines) if "LockRows" in line) - 1]
    assert after_limit.startswith("->  Limit")


async def test_work_of_one_owner_wakes_nobody_who_waits_for_anothers(database: str) -> None:
    async with plane(database) as one:
        other = one.seen_by(Access(role=Role.SUPERVISOR, own=("other",), owners=frozenset({"other"})))
        theirs = asyncio.create_task(other.claim(ask("coding", wait=20, supervisor="theirs")))
        mine = asyncio.create_task(one.claim(ask("coding", wait=20)))
        while one._claims.waiting < 2:
            await asyncio.sleep(0.01)
        one._claims.ready([("default", "coding")])
        woken = [desk for desk in one._claims._desks.values() if desk._is_woken]
        assert [desk.queues for desk in woken] == [{("default", "coding")}]
        await one.start_token("T-1", None)
        assert [grant.token for grant in await mine] == ["T-1"]
        assert not theirs.done()
