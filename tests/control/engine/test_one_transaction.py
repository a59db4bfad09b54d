"""A move and the task that it queues stand or fall together; and how long a lease lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from control.engine.planes import ask, plane, sql
from control.engine.supervised import HOLDER
from control.engine.test_cold_resume import BREAK, MEND, execute
from stateous_contract.messages import Report

from stateous_control.engine.operations import ControlPlane
from stateous_control.store.pool import Rejected

ROWS = """SELECT (SELECT array_agg(t.*::text ORDER BY t.id) FROM tokens t), (SELECT array_agg(t.*::text ORDER BY t.id) FROM tasks t),
  (SELECT array_agg(h.*::text ORDER BY h.token_id, h.seq) FROM history h)"""
MOVES: dict[str, Callable[[ControlPlane], Awaitable[Any]]] = {
    "start": lambda one: one.start_token("U", None),
    "report": lambda one: one.report(1, Report(kind="event", event="coded", attempt=1, **HOLDER)),
    "fire": lambda one: one.fire("T", "stopped", None),
}


@pytest.mark.parametrize("table", ["tasks", "tokens", "history"])
@pytest.mark.parametrize("move", MOVES)
async def test_a_token_moves_with_its_next_task_or_not_at_all(database: str, move: str, table: str) -> None:
    """S3-02: with the write of one of them broken, none is there; mended, all are."""
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        before = await sql(database, ROWS)
        await execute(database, BREAK.format(table=table))
        try:
            with pytest.raises(Rejected):
                await MOVES[move](one)
            assert await sql(database, ROWS) == before
        finally:
            await execute(database, MEND.format(table=table))
        await MOVES[move](one)
    stands = """SELECT k.name, k.state, array_agg(t.state ORDER BY t.id) FROM tokens k JOIN tasks t ON t.token_id = k.id
      GROUP BY k.id ORDER BY k.id"""
    assert [tuple(row) for row in await sql(database, stands)] == {
        "start": [("T", "coding", ["coding"]), ("U", "coding", ["coding"])],
        "report": [("T", "testing", ["coding", "testing"])],
        "fire": [("T", "waiting", ["coding", "waiting"])],
    }[move]


@pytest.mark.parametrize(("settings", "lease_s"), [({}, 120), ({"lease_s": 7.0}, 7)])
async def test_a_lease_lasts_two_minutes_or_what_is_set(
    database: str, settings: dict[str, float], lease_s: float
) -> None:
    """S3-18: what the grant says is what the row has, counted from the claim on the database's clock."""
    async with plane(database, **settings) as one:
        await one.start_token("T", None)
        (before,) = await sql(database, "SELECT clock_timestamp() AS at")
        (grant,) = await one.claim(ask("coding"))
        (row,) = await sql(database, "SELECT until, clock_timestamp() AS at FROM leases")
    assert grant.lease_s == lease_s
    assert (
        (row["until"] - row["at"]).total_seconds() <= lease_s <= (row["until"] - before["at"]).total_seconds()
    )
