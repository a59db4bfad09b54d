"""Lists and pages, supervisors, queues, health, and which graph is served."""

from __future__ import annotations

import asyncio
import copy
from datetime import datetime, timedelta
from typing import Any

import pytest
from control.engine.planes import DOCUMENT, ask, graph, held_by_another, ids, plane, queue, sql
from stateous_contract.codes import Code, Refused
from stateous_contract.health import FEATURES
from stateous_contract.messages import HeartbeatRequest

from stateous_control.engine.operations import ControlPlane
from stateous_control.graph.loading import load
from stateous_control.store.failures import StartRefused, Unavailable


async def test_the_baseline_list_has_the_token_that_moved_last_first(database: str) -> None:
    async with plane(database) as one:
        for name in ("A", "B", "C"):
            await one.start_token(name, None)
        await one.fire("A", "coded", None)
        assert [view.token for view in await one.list_tokens()] == ["A", "C", "B"]
        assert [view.token for view in await one.list_tokens(limit=1)] == ["A"]
        assert await one.list_tokens(status="paused") == []


async def test_pages_bring_every_token_once_while_tokens_come_and_move(database: str) -> None:
    """BH-056, S1-116: the union of the pages is what was there at the start, without a duplicate."""
    async with plane(database) as one:
        await queue(database, 53)
        seen: list[str] = []
        cursor = None
        for number in range(100):
            page = await one.page_tokens(limit=10, cursor=cursor)
            seen += [view.token for view in page.entries]
            assert page.returned_count == len(page.entries)
            assert page.withheld_count == page.total_count - page.returned_count
            assert page.truncated is (page.withheld_count > 0)
            await one.start_token(f"late-{number}", None)
            await one.fire(f"T-{number + 1}", "coded", None)
            cursor = page.cursor
            if cursor is None:
                break
    assert sorted(seen) == sorted(f"T-{n}" for n in range(1, 54))


async def test_a_filtered_page_counts_what_the_filter_leaves(database: str) -> None:
    """BH-056: the three oldest of many are found by the server, not by the page."""
    async with plane(database) as one:
        await queue(database, 500)
        await sql(database, "UPDATE tokens SET status = 'failed' WHERE id <= 3")
        page = await one.page_tokens(status="failed", limit=2)
        rest = await one.page_tokens(status="failed", limit=2, cursor=page.cursor)
    assert [view.token for view in (*page.entries, *rest.entries)] == ["T-3", "T-2", "T-1"]
    assert (page.total_count, page.withheld_count, page.truncated, rest.cursor) == (3, 1, True, None)


@pytest.mark.parametrize(
    "cursor", ["", "x", "MQ", "dG9rZW5zOg", "dG9rZW5zOi0x", "'; DROP TABLE tokens", "é", "A" * 5000]
)
async def test_a_cursor_that_is_none_of_ours_is_refused(database: str, cursor: str) -> None:
    """BH-054, BH-056."""
    async with plane(database) as one:
        with pytest.raises(Refused) as caught:
            await one.page_tokens(cursor=cursor)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "name", ["' OR 1=1 --", "T-1; select pg_sleep(5)", "%", "_", "$1", "\\", "../x", "a\x00b", ""]
)
async def test_a_name_that_no_token_can_have_is_not_found(database: str, name: str) -> None:
    """BH-054: a literal match or a 404, never slow, never a 500."""
    async with plane(database) as one:
        await queue(database, 1)
        for call in (one.token(name), one.history(name), one.fire(name, "coded", None), one.cancel(name)):
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.code is Code.TOKEN_NOT_FOUND


async def test_a_history_page_is_the_newest_one_in_order_with_true_counts(database: str) -> None:
    """S1-109 to S1-113."""
    async with plane(database) as one:
        await queue(database, 1)
        await sql(
            database,
            "INSERT INTO history SELECT 1, i, now(), 'note', '{}' FROM generate_series(1, 10423) AS i",
        )
        page = await one.page_history("T-1", limit=50)
        middle = await one.page_history("T-1", after=100, limit=2)
        whole = await one.history("T-1", after=10_420)
    assert (page.returned_count, page.total_count, page.withheld_count, page.truncated) == (
        50,
        10423,
        10373,
        True,
    )
    assert [page.entries[0].seq, page.entries[-1].seq] == [10374, 10423]
    assert [entry.seq for entry in middle.entries] == [101, 102]
    assert [entry.seq for entry in whole] == [10421, 10422, 10423]


async def test_supervisors_are_listed_with_what_they_hold_and_twins_are_marked(database: str) -> None:
    """BH-010: two instances of one name show."""
    async with plane(database) as one:
        await queue(database, 3)
        await one.claim(ask("coding", "testing", instance="i1", max=2))
        await one.claim(ask("coding", instance="i2"))
        await one.heartbeat(HeartbeatRequest(supervisor="old", tasks=[1]))
        await one._attendance.write()
        await one.claim(ask("coding", "testing", instance="i1"), version="news are written at once")
        await one._attendance.write()
        await sql(database, "UPDATE supervisors SET last_seen = now() - interval '1 day' WHERE name = 'old'")
        views = await one.supervisors()
    rows = [(v.name, v.instance, v.running, v.states, v.is_live, v.is_duplicate) for v in views]
    assert rows == [
        ("box", "i1", 2, ["coding", "testing"], True, True),
        ("box", "i2", 1, ["coding"], True, True),
        ("old", None, 0, [], False, False),
    ]


async def test_who_took_the_place_of_one_that_stopped_is_no_twin(database: str) -> None:
    """BH-010: after a restart the last word of the old process was before the first of the new one."""
    async with plane(database) as one:
        for instance in ("i1", "i2", "i3"):
            await one.claim(ask("coding", instance=instance))
            if instance == "i2":  # what i1 said last is written when i2 is there already
                await one._attendance.write()
            await one.heartbeat(HeartbeatRequest(supervisor="box", instance=instance, tasks=[]))
        one._attendance._heard["box", "i2", "default"].written_at = float("-inf")
        await one._attendance.write()
        views = await one.supervisors()
    assert [(view.instance, view.is_live, view.is_duplicate) for view in views] == [
        ("i1", True, False),
        ("i2", True, False),
        ("i3", True, False),
    ]


async def test_supervisors_are_listed_with_the_version_that_their_claims_tell(database: str) -> None:
    """A beat, and a claim that tells none, leave it as it is; a newer agent under the same name shows at once."""
    async with plane(database) as one:
        for version in ("1.0", None, "1.1"):
            await one.claim(ask("coding"), version=version)
            await one.heartbeat(HeartbeatRequest(supervisor="box", instance="i1", tasks=[]))
            await one._attendance.write()
        await one.claim(ask("coding", supervisor="other"))
        await one._attendance.write()
        async with plane(database) as two:
            await two.heartbeat(HeartbeatRequest(supervisor="box", instance="i1", tasks=[]))
            await two._attendance.write()
        views = await one.supervisors()
    assert [(view.name, view.version) for view in views] == [("box", "1.1"), ("other", None)]


async def test_an_idle_supervisor_that_polls_writes_its_row_once_in_ten_seconds(database: str) -> None:
    async with plane(database) as one:
        for _ in range(5):
            await one.claim(ask("coding"))
            await one._attendance.write()
        rows = await sql(database, "SELECT xmin = xmax OR xmax = 0 AS is_first FROM supervisors")
    assert [row["is_first"] for row in rows] == [True]


async def test_queues_show_depth_wait_and_whether_anybody_serves_the_state(database: str) -> None:
    async with plane(database) as one:
        await queue(database, 3)
        await queue(database, 2, "testing", first=10)
        await sql(database, "UPDATE tasks SET ready_at = now() + interval '1 hour' WHERE id = 3")
        await one.claim(ask("coding"))
        await one._attendance.write()
        coding, testing = await one.queues()
    assert (coding.state, coding.depth, coding.delayed, coding.running, coding.is_served) == (
        "coding",
        1,
        1,
        1,
        True,
    )
    assert (testing.depth, testing.running, testing.is_served) == (2, 0, False)
    assert 50 < testing.oldest_wait_s < 120


async def test_health_never_asks_the_database(database: str) -> None:
    async with plane(database) as one:
        before = one._pool.transactions
        health = one.health()
        assert one._pool.transactions == before
    assert (health.workflow, health.checksum, health.protocol) == ("tickets", graph().checksum, 1)
    assert health.features == list(FEATURES)
    assert (health.lease_s, health.heartbeat_s) == (120, 30)
    assert health.as_of is not None


async def test_ready_asks_the_database_and_gives_up_after_a_second(database: str) -> None:
    async with plane(database, connections_max=1) as one:
        await one.ready()
        holding = asyncio.create_task(one._pool.run(lambda session: session.fetch("SELECT pg_sleep(1.3)")))
        await asyncio.sleep(0.05)
        with pytest.raises(Unavailable):
            await one.ready()
        await holding


async def test_without_a_workflow_the_graph_on_record_is_served(database: str) -> None:
    async with plane(database):
        pass
    async with ControlPlane(database) as one:
        assert one.graph.checksum == graph().checksum


async def test_without_a_workflow_and_a_record_the_start_is_refused(database: str) -> None:
    with pytest.raises(StartRefused, match="no workflow on record"):
        async with ControlPlane(database):
            pass


def changed(**state: object) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["states"]["coding"].update(state)
    return document


async def test_another_structure_is_served_beside_the_old_one(database: str) -> None:
    """Tokens under way go on by the graph they started on; new ones start on the new one."""
    document = copy.deepcopy(DOCUMENT)
    document["events"]["more"] = {}
    document["transitions"].append({"from": "coding", "to": "__end__", "on": "more"})
    del document["states"]["testing"]
    document["transitions"] = [each for each in document["transitions"] if "testing" not in each.values()]
    document["states"]["coding"]["emits"] = ["again", "more"]
    async with plane(database) as one:
        await one.start_token("old", None)
    async with ControlPlane(database, graph=load(document), sweep_s=3600) as two, plane(database) as three:
        await two.start_token("new", None)
        assert (await two.fire("new", "more", None))[0].status == "completed"
        with pytest.raises(Refused):
            await two.fire("old", "more", None)
        assert (await two.fire("old", "coded", None))[0].state == "testing"
        assert (await two.claim(ask("testing")))[0].token == "old"
        assert three.graph.checksum == graph().checksum
    assert len(await sql(database, "SELECT 1 FROM graphs")) == 2


async def test_a_token_keeps_the_graph_it_started_on(database: str) -> None:
    """A change of settings alone is served at once, for new tokens."""
    async with plane(database) as one:
        await one.start_token("old", None)
    async with ControlPlane(database, graph=load(changed(retries=7)), sweep_s=3600) as two:
        await two.start_token("new", None)
        await two.fire("old", "again", None)
    rows = await sql(
        database,
        "SELECT k.name, t.retries FROM tasks t JOIN tokens k ON k.id = t.token_id ORDER BY t.id DESC LIMIT 2",
    )
    assert sorted(tuple(row) for row in rows) == [("new", 7), ("old", 2)]


async def test_claims_stay_quick_behind_a_queue_that_nobody_serves_and_dead_entries(database: str) -> None:
    """BH-012, short: what nobody serves stands in nobody's way, and an old snapshot does not slow claims without end."""
    async with plane(database) as one:
        await queue(database, 5_000, "testing")
        await queue(database, 3_000, first=10_001)
        snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tasks"
        async with held_by_another(database, snapshot):
            for _ in range(29):
                assert len(await one.claim(ask("coding", max=100))) == 100
            began = asyncio.get_running_loop().time()
            for _ in range(20):
                assert len(await one.claim(ask("coding"))) == 1
            took_s = (asyncio.get_running_loop().time() - began) / 20
    assert took_s < 0.1


async def test_a_slow_look_at_the_head_of_the_queue_is_not_repeated_at_every_claim(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BH-012: the next looks begin where the last whole one found the first task."""
    from stateous_control.engine import granting

    monkeypatch.setattr(granting, "SLOW_LOOK_S", 0.0)
    async with plane(database) as one:
        await queue(database, 10)
        first = await one.claim(ask("coding", max=5))
        await sql(database, "UPDATE tasks SET ready_at = ready_at - interval '1 hour' WHERE id = 10")
        later = await one.claim(ask("coding", max=4))
        last = await one.claim(ask("coding"))
    assert [grant.task for grant in (*first, *later, *last)] == list(range(1, 11))


async def test_a_queue_that_was_empty_at_the_last_whole_look_is_walked_once_and_no_more(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BH-012: the first look that finds something says where the next ones begin."""
    from stateous_control.engine import granting

    monkeypatch.setattr(granting, "SLOW_LOOK_S", -1.0)
    monkeypatch.setattr(granting, "WHOLE_LOOK_EVERY_S", 3600.0)
    async with plane(database) as one:
        assert await one.claim(ask("coding")) == []
        await queue(database, 3)
        assert ids(await one.claim(ask("coding"))) == [1]
        (desk,) = one._claims._desks.values()
        assert desk._granting._heads == {("default", "coding"): await head_of(database)}
        assert ids(await one.claim(ask("coding", max=2))) == [2, 3]


async def head_of(url: str) -> datetime:
    """When the first of three queued tasks became ready; the second is a microsecond younger."""
    return await ready_at(url, 2) - timedelta(microseconds=1)


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_resumed_task_has_its_old_place_back_at_once_however_slow_looks_are(
    database: str, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """BH-012: no look begins behind work that a resume gave its old place, here or at another control plane."""
    from stateous_control.engine import granting

    monkeypatch.setattr(granting, "SLOW_LOOK_S", -1.0)
    monkeypatch.setattr(granting, "WHOLE_LOOK_EVERY_S", 3600.0)
    async with plane(database) as one, plane(database) as two:
        while not one._notices.listener.is_listening:
            await asyncio.sleep(0.01)
        one._notices.others = two._notices.others = 1
        await queue(database, 6)
        await one.pause("T-1")
        assert ids(await one.claim(ask("coding"))) == [2]
        await (two if is_elsewhere else one).resume("T-1")
        (desk,) = one._claims._desks.values()
        async with asyncio.timeout(20):
            while desk._granting._heads["default", "coding"] > await ready_at(database, 1):
                await asyncio.sleep(0.01)
        assert ids(await one.claim(ask("coding", max=2))) == [1, 3]


async def ready_at(url: str, task: int) -> datetime:
    ready: datetime = (await sql(url, "SELECT ready_at FROM tasks WHERE id = $1", task))[0]["ready_at"]
    return ready
