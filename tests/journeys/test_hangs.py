"""Routines that hang their host, under a real agent: leases are kept, and the log names the line (A-22, A-28, BH-022)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

HOG = """
import ctypes
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


def hold(seconds):
    # Unlike CDLL, PyDLL keeps the interpreter's lock while the call lasts.
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    hold(ctx["size"])
    return events.made(Made(size=0))
"""
BLOCKING = """
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    time.sleep(ctx["size"])
    return events.made(Made(size=0))
"""


def told(agent: AgentProgram, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(agent.lines) if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_a_thread_routine_that_holds_the_interpreter_costs_no_lease(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-022, thread mode: longer than the lease, and its neighbour keeps its own; one line names the place."""
    folder = folders.make(box, plane_url, hand=HOG)
    with AgentProgram(folder, plane_url) as agent:
        plane.start("neighbour", kind="loop", gate=str(box / "gate"))
        wait_for(lambda: folders.phases(folder, "neighbour"), within_s=15, what="the neighbour")
        plane.start("gil-hog", size=6)
        wait_for(lambda: told(agent, "host.blocked"), within_s=15, what="the warning")
        plane.until("gil-hog", status="completed", within_s=40)
        (box / "gate").touch()
        plane.until("neighbour", status="completed")
        wait_for(lambda: told(agent, "host.unblocked"), within_s=15, what="the end of it")
        blocked = told(agent, "host.blocked")[0]
    assert blocked["what"] == "host"
    assert blocked["place"] == "hand.py:9 (hold)"
    assert blocked["token"] == "gil-hog"
    assert blocked["blocked_s"] < 6
    for token in ("gil-hog", "neighbour"):
        assert not {"task_failed", "task_released"} & set(plane.kinds(token))


def test_an_async_routine_that_blocks_the_loop_is_named_and_only_async_claims_pause(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-22, DX-17: it blocks for longer than the lease, and is not run again: heartbeats go on."""
    folder = folders.make(box, plane_url, loop=BLOCKING)
    with AgentProgram(folder, plane_url) as agent:
        plane.start("blocks", kind="loop", size=6)
        wait_for(lambda: told(agent, "host.blocked"), within_s=15, what="the warning")
        plane.start("by-hand")
        plane.until("by-hand", status="completed", within_s=4)
        assert not told(agent, "host.unblocked")
        plane.until("blocks", status="completed")
        blocked = told(agent, "host.blocked")[0]
    assert (blocked["what"], blocked["place"], blocked["token"]) == ("loop", "loop.py:10 (loop)", "blocks")
    assert not {"task_failed", "task_released"} & set(plane.kinds("blocks"))
    assert [attempt for attempt, _ in folders.phases(folder, "blocks")][:1] == [1]
    assert plane.kinds("blocks").count("task_claimed") == 2  # its own, and that of the next state
