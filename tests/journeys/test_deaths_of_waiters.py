"""Agents die again and again while their tasks wait or work side by side: times stand, and nothing is done twice."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient

from journeys import flows

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1_800)]

TIMED = """
got = ctx.wait_for_signal("never", timeout=given)
ctx.step("after", lambda: wrote(ctx, "after"))
return bool(got)
"""
LATE_S = 2.0


def test_a_wait_times_out_at_its_first_deadline_although_its_worker_is_killed_every_ten_seconds(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """DX-11, as it was written: a wait of 60 s."""
    folder = flows.make(box, TIMED)
    with AgentProgram(folder, plane_url):
        tasks = [flows.start(plane, kind, 60) for kind in ("plain", "loop")]
        flows.until(plane, tasks, current_state="parked")
    kills = 0
    while any(flows.view(plane, task)["current_state"] == "parked" for task in tasks):
        with AgentProgram(folder, plane_url) as agent:
            time.sleep(10)
            agent.kill()
        kills += 1
        assert kills < 12
    with AgentProgram(folder, plane_url):
        views = flows.until(plane, tasks, current_state="completed")

    assert kills >= 5
    assert [(view["result"], view["failures"] <= 1) for view in views] == [(False, True)] * 2
    for task in tasks:
        began, over = _span(plane, task)
        assert 60 <= over - began <= 60 + LATE_S
        assert flows.count(folder, task, "after") >= 1


def _span(plane: ControlPlaneClient, task: int) -> tuple[float, float]:
    """When the task's one wait began, and when it was over, by the database's clock."""
    log = plane.http.get(f"/tasks/{task}/log").json()["entries"]
    [began] = [entry["at"] for entry in log if entry["kind"] == "wait_begun"]
    [over] = [entry["at"] for entry in log if entry["kind"] == "wait_over"]
    return datetime.fromisoformat(began).timestamp(), datetime.fromisoformat(over).timestamp()


SIDES = """
import random
import threading


@routine("sides", isolation="process")
async def sides(ctx, given):
    if ctx.attempt == 1:
        threading.Timer(given["lived_s"], os.kill, [os.getpid(), signal.SIGKILL]).start()

    async def side(name):
        async def work():
            await asyncio.sleep(random.random() * 0.2)
            return wrote(ctx, name)

        return await ctx.step(name, work)

    return await asyncio.gather(*(side(f"step {n}") for n in range(10)))
"""
ROUNDS = 100


def test_ten_steps_side_by_side_come_through_kills_in_the_middle(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """DX-20, S2-22: a hundred rounds; what was kept by the first attempt is not done by the second."""
    folder = flows.make(box, "return None", more=SIDES)
    with AgentProgram(folder, plane_url, "--tasks", "8"):
        tasks = [
            flows.start(plane, "sides", {"lived_s": 0.01 + 0.2 * number / ROUNDS}, retries=1)
            for number in range(ROUNDS)
        ]
        views = flows.until(plane, tasks, within_s=600, current_state="completed")

    names = [f"step {n}" for n in range(10)]
    died = 0
    for view in views:
        assert view["result"] == names
        died += view["failures"]
        kept = _kept(plane, view["task"])
        lines = [line for line in flows.ledger(folder) if line["task"] == view["task"]]
        assert Counter(step for step, _ in kept) == Counter(names), "each is kept once"
        assert not [line for line in lines if line["attempt"] > dict(kept)[line["phase"]]]
    assert died >= ROUNDS // 4, "the kills came in the middle"


def _kept(plane: ControlPlaneClient, task: int) -> list[tuple[str, int]]:
    """The steps that were kept, each with the attempt that did it."""
    log = plane.http.get(f"/tasks/{task}/log").json()["entries"]
    written = [entry["data"] for entry in log if entry["kind"] == "checkpoint_written"]
    return [(data["step"], data["attempt"]) for data in written]
