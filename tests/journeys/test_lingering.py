"""Routines that will not end, against an agent that is to stop (A-34, A-43, A-44, A-48, BH-023)."""

from __future__ import annotations

import json
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

STUBBORN = """
import asyncio, atexit, subprocess, threading, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.loop)
async def swallows(ctx):
    wrote(ctx, "begin")
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass


@on_state(states.hand)
def hand(ctx):
    if ctx["kind"] == "sleeps":
        wrote(ctx, "begin")
        time.sleep(10**6)
    if ctx["kind"] == "child":
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        wrote(ctx, "begin", child=child.pid)
        child.wait()
    if ctx["kind"] == "thread":
        threading.Thread(target=time.sleep, args=(10**6,)).start()
    if ctx["kind"] == "atexit":
        atexit.register(time.sleep, 600)
    wrote(ctx, "begin")
    return events.made(Made(size=0))
"""
IDLE = '"""No routine is here."""'
STUCK = ("loop", "sleeps", "child")
ENDED = ("thread", "atexit")


def start(plane: ControlPlaneClient, folder: Path, how: str, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        plane.start(f"{how}-{kind}", kind=kind)
        wait_for(partial(folders.phases, folder, f"{how}-{kind}"), within_s=15, what=kind)
        if kind in ENDED:
            plane.until(f"{how}-{kind}", state="check")


def nothing_is_left(agent: AgentProgram, folder: Path) -> None:
    hosts = {line["pid"] for line in folders.ledger(folder)}
    children = {line["child"] for line in folders.ledger(folder) if "child" in line}
    wait_for(
        lambda: not any(psutil.pid_exists(pid) for pid in hosts | children), within_s=5, what="end of all"
    )


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.prove)])
def test_a_drain_at_its_limit_leaves_what_will_not_end_and_says_so(
    box: Path, plane_url: str, plane: ControlPlaneClient, together: bool
) -> None:
    """Exit at the limit and 10 s at the latest, 1 where work was abandoned, one line for each, each given back."""
    for number, kinds in enumerate([STUCK + ENDED] if together else [(kind,) for kind in STUCK + ENDED]):
        folder = folders.make(box / f"{number}", plane_url, hand=STUBBORN, loop=IDLE, check=IDLE)
        name = f"limit-{together}-{number}"
        stuck = [f"{name}-{kind}" for kind in kinds if kind in STUCK]
        with AgentProgram(folder, plane_url, "--drain-timeout", "1s", "--tasks", "5") as agent:
            start(plane, folder, name, kinds)
            began_at = time.monotonic()
            agent.signal(signal.SIGTERM)
            code = agent.ended()
            took_s = time.monotonic() - began_at
            nothing_is_left(agent, folder)
        lines = [json.loads(line) for line in agent.lines if line.startswith("{")]
        assert took_s < 11, kinds
        assert code == (1 if stuck else 0), kinds
        abandoned = [line["token"] for line in lines if line["event"] == "routine.abandoned"]
        assert sorted(abandoned) == sorted(stuck)
        for token in stuck:
            assert plane.kinds(token).count("task_released") == 1
            assert "task_failed" not in plane.kinds(token)
            plane.cancel(token)


@pytest.mark.prove
def test_a_second_signal_ends_it_whatever_routines_do(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-44: all of them together, exit 1 within 5 s."""
    folder = folders.make(box, plane_url, hand=STUBBORN, loop=IDLE, check=IDLE)
    with AgentProgram(folder, plane_url, "--tasks", "5") as agent:
        start(plane, folder, "twice", STUCK + ENDED)
        agent.signal(signal.SIGTERM)
        agent.line("supervisor.stopping")
        agent.signal(signal.SIGTERM)
        assert agent.ended(within_s=6) == 1
        nothing_is_left(agent, folder)
    for kind in STUCK:
        assert "task_failed" not in plane.kinds(f"twice-{kind}")
