"""`kill -9` at random moments, many times over one agent's work: nothing is lost, and nothing lands twice (A-23, A-46)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

BUSY = """
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    ctx.note(f"attempt {ctx.attempt}")
    time.sleep(ctx["size"] / 1000)
    wrote(ctx, "end")
    return events.made(Made(size=ctx.attempt))


@on_state(states.loop, isolation="process")
def apart(ctx):
    wrote(ctx, "begin", is_apart=True)
    time.sleep(ctx["size"] / 1000)
    wrote(ctx, "end")
    return events.made(Made(size=ctx.attempt))
"""
IDLE = '"""No routine is here."""'
WAYS = ("agent", "unit", "host", "routine")


class Box:
    """An agent that is started again whenever it died, as systemd does."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.starts = 0
        self.agent = self._begin()

    def _begin(self) -> AgentProgram:
        self.starts += 1
        return AgentProgram(self.folder, self.url, "--tasks", "6").begin()

    def kill(self, way: str, luck: random.Random) -> None:
        below = self._below()
        if way == "routine":
            apart = [line["pid"] for line in folders.ledger(self.folder)[-20:] if line.get("is_apart")]
            victims = [process for process in below if process.pid in apart]
        elif way == "host":
            victims = luck.sample(below, 1) if below else []
        else:
            victims = below if way == "unit" else []
            self.agent.child.kill()
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        if way in ("agent", "unit"):
            self.agent.kill()
            self.agent = self._begin()

    def _below(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.agent.child.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        self.agent.__exit__(None, None, None)


def start_some(plane: ControlPlaneClient, luck: random.Random, name: str) -> list[str]:
    tokens = [f"{name}-{number}" for number in range(3)]
    for number, token in enumerate(tokens):
        plane.start(token, kind="loop" if number == 0 else "hand", size=luck.randrange(0, 250))
    return tokens


def judge(plane: ControlPlaneClient, folder: Path, token: str) -> None:
    """Compare what the control plane says of one token with what its routines wrote down."""
    history = plane.history(token)
    seqs = [entry["seq"] for entry in history]
    assert seqs == list(range(1, len(seqs) + 1)), f"{token}: the history has a gap: {seqs}"
    wrote = folders.phases(folder, token)
    twice = [each for each, count in Counter(wrote).items() if count > 1]
    assert not twice, f"{token}: an attempt ran twice: {twice}"
    accepted = [entry["data"] for entry in history if entry["kind"] == "event_accepted"]
    made = [data for data in accepted if data["event"] == "made"]
    assert len(made) <= 1, f"{token}: landed {len(made)} times"
    if plane.token(token)["state"] == "check":
        assert len(made) == 1, f"{token}: moved without an outcome"
        attempt = made[0]["payload"]["size"]
        assert (attempt, "end") in wrote, f"{token}: attempt {attempt} landed, and never ended: {wrote}"
        assert attempt == max(number for number, _ in wrote), f"{token}: ran after it had landed: {wrote}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.prove)])
def test_kill_9_at_random_moments_loses_nothing_and_lands_nothing_twice(
    box: Path, plane_url: str, plane: ControlPlaneClient, rounds: int
) -> None:
    """A-23, A-24, A-35, A-46, BH-009: agent, whole unit, host or isolated routine, again and again."""
    seed = int(os.environ.get("STATEOUS_SEED") or random.randrange(1_000_000))
    print(f"STATEOUS_SEED={seed}")
    luck = random.Random(seed)
    folder = folders.make(box, plane_url, hand=BUSY, loop=IDLE, check=IDLE)
    place = Box(folder, plane_url)
    tokens: list[str] = []
    try:
        for number in range(rounds):
            tokens += start_some(plane, luck, f"kill-{rounds}-{number}")
            time.sleep(luck.random() * 0.5)
            place.kill(luck.choice(WAYS), luck)

        def unsettled() -> list[str]:
            waiting: list[Any] = plane.http.get("/tokens?status=active&limit=1000").json()
            return [each["token"] for each in waiting if each["state"] in ("hand", "loop")]

        wait_for(lambda: not unsettled(), within_s=60, what="the end of all work")
        assert "Traceback" not in place.agent.told
    finally:
        place.end()
    for token in tokens:
        judge(plane, folder, token)
    # A killed agent or host with company costs nobody an attempt; only `releases_max` and lone deaths do.
    landed = sum(plane.token(token)["state"] == "check" for token in tokens)
    assert landed >= len(tokens) * 0.6, f"{landed} of {len(tokens)} landed"


ENDING = """
import os, signal, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    if ctx["kind"] == "exits":
        os._exit(7)
    if ctx["kind"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does to a memory hog
    if ctx["kind"] == "fells":
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)
    while not is_open(ctx):
        time.sleep(0.02)
    return events.made(Made(size=0))
"""


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("exits", "exit code 7"), pytest.param("killed", "SIGKILL", marks=pytest.mark.prove)],
)
def test_a_poison_task_among_others_is_found_and_costs_them_no_failure(
    box: Path, plane_url: str, plane: ControlPlaneClient, kind: str, cause: str
) -> None:
    """BH-009, DX-18: given back once with its neighbours, then alone: retries + 1 runs, each a failure with its cause."""
    folder = folders.make(box, plane_url, hand=ENDING, check=IDLE)
    names = [f"{kind}-neighbour-{number}" for number in range(2)]
    with AgentProgram(folder, plane_url) as agent:
        for name in names:
            plane.start(name, gate=str(box / "gate"))
            wait_for(partial(folders.phases, folder, name), within_s=15, what="the neighbour")
        plane.start(kind, kind=kind)
        plane.until(kind, state="rescue", within_s=40)
        (box / "gate").touch()
        for name in names:
            plane.until(name, state="check")
        assert agent.child.poll() is None

    history = plane.history(kind)
    failed = [entry["data"]["error"] for entry in history if entry["kind"] == "task_failed"]
    released = [entry["data"]["reason"] for entry in history if entry["kind"] == "task_released"]
    assert len(failed) == 3
    assert all(cause in text for text in [*failed, *released]), (failed, released)
    assert released == [f"host_died: {released[0].removeprefix('host_died: ')}"]
    assert len(folders.phases(folder, kind)) == 4
    for name in names:
        assert "task_failed" not in plane.kinds(name)
        assert len(folders.phases(folder, name)) == 2


def _has_run(folder: Path, token: str, times: int) -> bool:
    return len(folders.phases(folder, token)) == times


@pytest.mark.prove
def test_a_task_that_kills_its_agent_ends_after_releases_max_with_a_reason_that_says_so(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-009: under a restart loop; one that is cancelled between two runs is over at once (DX-18)."""
    folder = folders.make(box, plane_url, hand=ENDING)
    plane.start("fells", kind="fells")
    for run in range(1, 7):
        with AgentProgram(folder, plane_url) as agent:
            wait_for(partial(_has_run, folder, "fells", run), within_s=15, what=f"run {run}")
            assert agent.ended() == -signal.SIGKILL
    plane.start("cancelled", kind="fells")
    with AgentProgram(folder, plane_url) as agent:
        plane.until("fells", state="rescue", within_s=15)
        wait_for(lambda: folders.phases(folder, "cancelled"), within_s=15, what="its run")
        agent.ended()
        plane.cancel("cancelled")
    plane.start("works")
    with AgentProgram(folder, plane_url):
        plane.until("works", status="completed")

    reasons = [e["data"]["error"] for e in plane.history("fells") if e["kind"] == "task_failed"]
    assert len(reasons) == 3
    assert all("agent_died" in reason and "at most 3" in reason for reason in reasons), reasons
    assert plane.kinds("fells").count("task_released") == 3
    assert len(folders.phases(folder, "fells")) == 6
    assert len(folders.phases(folder, "cancelled")) == 1
