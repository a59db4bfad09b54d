"""Requests about the control plane itself: health, readiness, the graph, queues, supervisors, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateous_contract.messages import Message

from stateous_control.engine.operations import ControlPlane
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call
from stateous_control.http.metrics import CONTENT_TYPE, exposition
from stateous_control.store.failures import Unavailable


class Page(Message):
    """A whole list in the form that every list has."""

    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    entries: list[Any]


async def health(plane: ControlPlane, _call: Call) -> Answer:
    """Answer from memory alone: it says that this process lives, also while the database is away."""
    return answer(plane.health())


async def ready(plane: ControlPlane, _call: Call) -> Answer:
    await plane.ready()
    return Answer(200, b'{"ready":true}')


async def workflow(plane: ControlPlane, _call: Call) -> Answer:
    return Answer(200, plane.graph.text.encode())


async def supervisors(plane: ControlPlane, _call: Call) -> Answer:
    return _whole(await plane.supervisors())


async def queues(plane: ControlPlane, _call: Call) -> Answer:
    return _whole(await plane.queues())


async def metrics(plane: ControlPlane, _call: Call) -> Answer:
    """Prometheus text. Without a database the process's own counters are still told."""
    try:
        queued = await plane.queues()
    except Unavailable:
        queued = None
    return Answer(200, exposition(plane.statistics(), queued), media_type=CONTENT_TYPE.encode())


def _whole(entries: Sequence[Message]) -> Answer:
    count = len(entries)
    return answer(
        Page(
            returned_count=count, total_count=count, withheld_count=0, truncated=False, entries=list(entries)
        )
    )
