"""Isolated routines under a real agent, and an agent that is process 1 (A-24, A-30, A-48, BH-022, BH-026, BH-027)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import BIN, AgentProgram, ControlPlaneClient, Program, Words, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

APART = """
import os, re, signal, subprocess, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand, isolation="process")
def hand(ctx):
    pids = [os.getpid(), subprocess.Popen(["setsid", "sleep", "600"]).pid, subprocess.Popen(["sleep", "600"]).pid]
    wrote(ctx, "begin", pids=pids)
    if ctx["size"] == 9:
        os.kill(os.getpid(), 9)
    if ctx["size"] == 23:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if ctx["size"] == 22:
        re.match(r"(a+)+$", "a" * 60 + "b")
    while not is_open(ctx):
        time.sleep(0.02)
    wrote(ctx, "end")
    return events.made(Made(size=ctx["size"]))
"""
HOG = """
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand, isolation="process")
def hand(ctx):
    wrote(ctx, "begin")
    held = []
    while ctx["kind"] == "hog":
        held.append(b"x" * 2**20)
    return events.made(Made(size=0))
"""
ORPHANS = """
import os, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand)
def hand(ctx):
    for _ in range(5):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.02)
            os._exit(0)
    for _ in range(5):
        os.wait()
    return events.made(Made(size=0))
"""


def pids_of(folder: Path, token: str) -> list[int]:
    def found() -> Any:
        return [line["pids"] for line in folders.ledger(folder) if line["token"] == token and "pids" in line]

    pids: list[int] = wait_for(found, within_s=15, what="the routine's processes")[-1]
    return pids


def alive(pids: list[int]) -> list[int]:
    return [
        pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


def events(agent: Program, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(agent.lines) if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def descriptors(pid: int) -> set[str]:
    """Where the descriptors of a process lead."""
    return {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}


def test_nothing_that_the_agent_holds_is_open_in_the_processes_of_routines(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-025: no socket to the control plane, no outbox, no lock; nor in what they start, nor in the host."""
    folder = folders.make(box, plane_url, hand=APART)
    with AgentProgram(folder, plane_url) as agent:
        plane.start("descriptors", gate=str(box / "gate"))
        pids = pids_of(folder, "descriptors")
        held = descriptors(agent.child.pid)
        ours = {to for to in held if to.startswith("socket:") or "-state/" in to}
        assert {Path(to).name for to in ours} >= {"outbox.db", "lock"}
        assert sum(to.startswith("socket:") for to in ours) >= 3
        (host,) = psutil.Process(agent.child.pid).children()
        for pid in [host.pid, *pids]:
            assert not descriptors(pid) & ours, psutil.Process(pid).cmdline()
        (box / "gate").touch()
        plane.until("descriptors", status="completed")


def test_a_cancelled_isolated_routine_is_really_stopped_and_its_neighbours_go_on(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-30, BH-022: it holds its interpreter's lock."""
    folder = folders.make(box, plane_url, hand=APART)
    with AgentProgram(folder, plane_url) as agent:
        plane.start("hog", size=22)
        plane.start("other", gate=str(box / "gate"))
        plane.start("loop", kind="loop", gate=str(box / "gate"))
        pids = pids_of(folder, "hog")
        pids_of(folder, "other")
        plane.cancel("hog")
        wait_for(lambda: events(agent, "lease.lost"), within_s=15, what="the loss")
        wait_for(lambda: not alive(pids), within_s=15, what="the end of its processes")
        (box / "gate").touch()
        for token in ("other", "loop"):
            plane.until(token, status="completed")
            assert "task_failed" not in plane.kinds(token)
        finished = {line["token"]: line for line in events(agent, "task.finished") if line["state"] == "hand"}
        assert not events(agent, "host.blocked")
    assert finished["other"]["cpu_s"] > 0
    assert finished["other"]["peak_mb"] > 5


def test_a_killed_isolated_routine_is_a_failed_attempt_that_says_so(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-24, BH-026."""
    folder = folders.make(box, plane_url, hand=APART)
    with AgentProgram(folder, plane_url):
        plane.start("dies", size=9)
        plane.until("dies", state="rescue")
        failed = [e["data"]["error"] for e in plane.history("dies") if e["kind"] == "task_failed"]
    assert failed == ["the routine's process was killed by signal 9 (SIGKILL), maybe out of memory"] * len(
        failed
    )
    assert len(failed) == 3


def test_a_memory_hog_fails_alone_by_its_limit_and_says_so(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-24, BH-026: `memory_mb`, a real limit of its process; the agent, its host and other tasks go on."""
    folder = folders.make(box, plane_url, hand=HOG)
    with (folder / "stateous.yaml").open("a") as file:
        file.write("routines: {hand: {memory_mb: 600}}\n")
    with AgentProgram(folder, plane_url) as agent:
        plane.start("spared", kind="loop", gate=str(box / "gate"))
        plane.start("memory-hog", kind="hog")
        plane.until("memory-hog", state="rescue")
        (box / "gate").touch()
        plane.until("spared", status="completed")
        plane.start("fits-in")
        plane.until("fits-in", status="completed")
        assert len(events(agent, "host.started")) == 1
    failed = [e["data"]["error"] for e in plane.history("memory-hog") if e["kind"] == "task_failed"]
    assert len(failed) == 3
    assert all("memory" in text.lower() for text in failed), failed
    for token in ("spared", "fits-in"):
        assert "task_failed" not in plane.kinds(token)


def test_nothing_of_an_isolated_routine_outlives_a_killed_agent(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-48, BH-027: also not what left its session."""
    folder = folders.make(box, plane_url, hand=APART)
    with AgentProgram(folder, plane_url) as agent:
        plane.start("held", gate=str(box / "gate"))
        pids = pids_of(folder, "held")
        os.kill(agent.child.pid, signal.SIGKILL)
        wait_for(lambda: not alive(pids), within_s=3, what="the end of its processes")


def test_a_drain_that_reaches_its_limit_ends_isolated_routines_that_ignore_it(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-43, BH-023: exit at the limit and 10 s at the latest, the task is given back, nothing is left."""
    folder = folders.make(box, plane_url, hand=APART)
    with AgentProgram(folder, plane_url, "--drain-timeout", "1s") as agent:
        plane.start("stubborn", size=23, gate=str(box / "gate"))
        pids = pids_of(folder, "stubborn")
        began_at = time.monotonic()
        agent.signal(signal.SIGTERM)
        agent.ended()
        assert time.monotonic() - began_at < 11
        assert not alive(pids)
    assert "task_released" in plane.kinds("stubborn")


@pytest.fixture
def in_namespace() -> list[str]:
    command = ["unshare", "-pf", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("NAMESPACES ARE FORBIDDEN HERE: an agent as process 1 is not tested")
    return command


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.prove)])
def test_an_agent_that_is_process_1_collects_orphans_and_no_child_of_others(
    box: Path, plane_url: str, plane: ControlPlaneClient, in_namespace: list[str], count: int
) -> None:
    """BH-027: under ten zombies, every task done, exit code 0 after SIGTERM."""
    folder = folders.make(box, plane_url, hand=ORPHANS)
    state = str(box.parent / "state")
    run: Words = [BIN / "stateous-supervisor", "run", folder, "--state-dir", state, "--log-format", "json"]
    for number in range(count):
        plane.start(f"orphan-{number}")
    most = 0
    with Program([*in_namespace, *run]) as program:
        first = wait_for(lambda: psutil.Process(program.child.pid).children(), within_s=10, what="process 1")[
            0
        ]

        def zombies() -> int:
            return sum(p.status() == psutil.STATUS_ZOMBIE for p in first.children())

        for number in range(count):
            plane.until(f"orphan-{number}", status="completed", within_s=60)
            most = max(most, zombies())
        wait_for(lambda: zombies() == 0, within_s=5, what="the end of the last zombie")
        assert most < 10
        os.kill(first.pid, signal.SIGTERM)
        assert program.ended() == 0
