"""A routine that never lets go of its host's interpreter, under a real agent: the box goes on (A-20, A-22, A-28, A-30)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders
from stateous_supervisor.agent.silence import OVERDUE_S

pytestmark = pytest.mark.slow

TIMEOUT_S = 2
HEARTBEAT_S = 1.0  # of the control plane of all journeys
SLACK_S = 0.3  # of a busy machine
HOG = f"""
import ctypes
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand, timeout="{TIMEOUT_S}s")
def hand(ctx):
    wrote(ctx, "begin")
    if ctx.attempt == 1 and ctx["kind"] == "hogs":
        # Unlike CDLL, PyDLL keeps the interpreter's lock while the call lasts.
        ctypes.PyDLL(None).sleep(600)
    return events.made(Made(size=0))
"""


def test_a_timeout_is_kept_by_an_agent_whose_host_is_held(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """The attempt fails within seconds, another state's task runs in a new host, and the held one is gone."""
    with (
        FaultProxy(plane_url) as proxy,
        AgentProgram(folder := folders.make(box, proxy.url, hand=HOG), proxy.url) as agent,
    ):
        plane.start("hog", kind="hogs")
        wait_for(lambda: folders.phases(folder, "hog"), within_s=30, what="the hog")
        (held,) = {line["pid"] for line in folders.ledger(folder)}
        wait_for(lambda: "task_failed" in plane.kinds("hog"), within_s=15, what="the timeout")
        beats = [at for at, _, name, _ in list(proxy.heard) if name == "POST /tasks/heartbeat"]
        plane.start("beside", kind="loop")
        plane.until("beside", status="completed", within_s=40)
        plane.until("hog", status="completed", within_s=40)
        wait_for(lambda: not psutil.pid_exists(held), within_s=40, what="the end of the held host")
        assert agent.child.poll() is None

    assert len(beats) >= TIMEOUT_S + OVERDUE_S - 2
    assert max(later - earlier for earlier, later in pairwise(beats)) < 1.1 * HEARTBEAT_S + SLACK_S
    failed = [entry["data"]["error"] for entry in plane.history("hog") if entry["kind"] == "task_failed"]
    assert failed == [
        f"the routine ran longer than its timeout of {TIMEOUT_S} s, and its host does not answer"
    ]
