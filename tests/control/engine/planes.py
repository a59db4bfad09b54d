"""Control planes and tokens for the engine's tests: a small workflow, rows made by SQL, and time moved by SQL."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from stateous_contract.messages import ClaimRequest, Grant

from stateous_control.engine.operations import ControlPlane
from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load

DOCUMENT: dict[str, Any] = {
    "stateous": 1,
    "workflow": "tickets",
    "states": {
        "coding": {"retries": 2, "emits": ["coded", "again"]},
        "testing": {"emits": ["passed", "broken"]},
        "waiting": {"timeout": "1h", "emits": ["passed"]},
        "failed": {"emits": ["passed"]},
    },
    "events": {"coded": {}, "again": {}, "passed": {}, "broken": {}, "stopped": {}},
    "transitions": [
        {"from": "__start__", "to": "coding"},
        {"from": "coding", "to": "testing", "on": "coded"},
        {"from": "coding", "to": "coding", "on": "again"},
        {"from": "coding", "to": "failed", "on": "error"},
        {"from": "coding", "to": "waiting", "on": "stopped"},
        {"from": "testing", "to": "__end__", "on": "passed"},
        {"from": "testing", "to": "coding", "on": "broken"},
        {"from": "waiting", "to": "__end__", "on": "passed"},
        {"from": "waiting", "to": "coding", "on": "timeout"},
        {"from": "failed", "to": "__end__", "on": "passed"},
    ],
    "schemas": {},
}


def graph() -> Graph:
    return load(DOCUMENT)


@asynccontextmanager
async def plane(url: str, **settings: Any) -> AsyncIterator[ControlPlane]:
    """A control plane that sweeps only when it is told to, unless a test says otherwise."""
    settings.setdefault("sweep_s", 3600.0)
    settings.setdefault("graph", graph())
    async with ControlPlane(url, **settings) as running:
        yield running


async def sql(url: str, statement: str, *values: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement, *values)
    finally:
        await connection.close()


async def queue(url: str, count: int, state: str = "coding", *, first: int = 1) -> None:
    """Put tokens with one ready task each straight into the database; task ids and token ids are first…"""
    checksum = graph().checksum
    await sql(
        url,
        """WITH moment AS (SELECT clock_timestamp() - interval '1 minute' AS now), made AS (
             INSERT INTO tokens (id, owner, name, graph, workflow, state, status, visit, context, entered_at, entered_by,
               seq, visits, events)
             SELECT i, 'default', 'T-' || i, $3, 'tickets', $4, 'active', 1, '{"n":' || i || '}', now, '__started__', 4,
               '{"' || $4 || '":1}', '{"__started__":1}'
             FROM moment, generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS i)
           INSERT INTO tasks (id, token_id, state, visit, ready_at, retries)
           SELECT i, i, $4, 1, now + i * interval '1 microsecond', 2
           FROM moment, generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS i""",
        first,
        count,
        checksum,
        state,
    )
    await sql(url, "SELECT setval('task_ids', $1), setval('token_ids', $1)", first + count)


def ask(*states: str, supervisor: str = "box", instance: str | None = "i1", **more: Any) -> ClaimRequest:
    more.setdefault("request", uuid.uuid4().hex if instance is not None else None)
    return ClaimRequest(supervisor=supervisor, states=list(states), instance=instance, **more)


def ids(grants: list[Grant]) -> list[int]:
    return [grant.task for grant in grants]


class held_by_another:
    """A transaction of somebody else that holds what a statement locks."""

    def __init__(self, url: str, statement: str) -> None:
        self._url, self._statement = url, statement

    async def __aenter__(self) -> None:
        self._connection = await asyncpg.connect(self._url)
        await self._connection.execute("BEGIN")
        await self._connection.execute(self._statement)

    async def __aexit__(self, *_: object) -> None:
        await self._connection.execute("ROLLBACK")
        await self._connection.close()
