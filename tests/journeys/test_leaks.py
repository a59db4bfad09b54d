"""Many short tasks leave memory, threads, descriptors and the state folder where they were (A-62, BH-030)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders
from stateous_supervisor.agent import output

pytestmark = pytest.mark.slow

MIXED = """
import subprocess
from contract import Made, events, states
from stateous_supervisor import on_state


@on_state(states.hand)
def hand(ctx):
    large = bytearray(1_000_000)
    if ctx.task % 20 == 0:
        subprocess.run(["echo", "from a program"])
    if ctx.task % 3 == 0:
        print("printed")
    if ctx["fails"] >= ctx.attempt:
        raise RuntimeError("with a megabyte in its frame")
    return events.made(Made(size=len(large)))


@on_state(states.loop, isolation="process")
async def loop(ctx):
    return events.made(Made(size=0))
"""
BATCH = 50


class Sizes(NamedTuple):
    """What an agent, its host and its nursery take."""

    descriptors: int
    threads: int
    processes: int
    kb: int
    outbox_bytes: int


def sizes(pid: int, state: Path) -> Sizes:
    agent = psutil.Process(pid)
    all_of_it = [agent, *agent.children(recursive=True)]
    dirty = 0
    for process in all_of_it:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        dirty += sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
    return Sizes(
        descriptors=sum(process.num_fds() for process in all_of_it),
        threads=sum(process.num_threads() for process in all_of_it),
        processes=len(all_of_it),
        kb=dirty,
        outbox_bytes=sum(file.stat().st_size for file in state.iterdir() if file.is_file()),
    )


def run_many(plane: ControlPlaneClient, way: FaultProxy, name: str, count: int) -> None:
    """Run tokens in batches; two of five fail once, one of twenty runs in a process of its own, and in each batch
    all connections are cut.
    """
    asking = "/tokens?status=active&limit=1"
    for first in range(0, count, BATCH):
        for number in range(first, first + BATCH):
            kind = "loop" if number % 20 == 7 else "hand"
            plane.start(f"{name}-{number}", kind=kind, fails=int(number % 5 < 2))
        way.cut()
        wait_for(lambda: plane.http.get(asking).json() == [], within_s=90, what="end of a batch")
        way.heard.clear()


def compare(box: Path, url: str, plane: ControlPlaneClient, *, warm: int, count: int, kb_max: int) -> None:
    folder = folders.make(box / "leaks", url, hand=MIXED, loop="")
    state = box / "leaks-state"
    with FaultProxy(url) as way, AgentProgram(folder, way.url, "--tasks", "20") as agent:
        run_many(plane, way, "warm", warm)
        before = sizes(agent.child.pid, state)
        run_many(plane, way, "counted", count)
        wait_for(
            lambda: sizes(agent.child.pid, state).processes <= before.processes,
            within_s=20,
            what="end of the last isolated routine",
        )
        after = sizes(agent.child.pid, state)
    print(f"before {before}, after {after}")
    assert after.descriptors <= before.descriptors + 10
    assert after.threads <= before.threads + 15
    assert after.kb - before.kb < kb_max
    assert after.outbox_bytes < 16 * 1_048_576  # a file that SQLite uses again, and its log
    assert len(list((state / output.FOLDER).iterdir())) <= output.ATTEMPTS_MAX


def test_short_tasks_leave_an_agent_as_it_was(box: Path, plane_url: str, plane: ControlPlaneClient) -> None:
    compare(box, plane_url, plane, warm=50, count=100, kb_max=8_000)


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_a_hundred_thousand_short_tasks_leave_an_agent_as_it_was(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """Two tasks a token, and more where one fails."""
    compare(box, plane_url, plane, warm=5_000, count=45_000, kb_max=45_000)
