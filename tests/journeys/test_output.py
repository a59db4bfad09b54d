"""What routines print, under a real agent: kept by task and attempt; and a log that nobody reads (A-21, A-28, A-63)."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import BIN, AgentProgram, ControlPlaneClient, Words, wait_for

from journeys import folders
from stateous_supervisor.agent.output import ATTEMPT_BYTES_MAX

pytestmark = pytest.mark.slow

PRINTS = """
import os, subprocess, sys, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand)
def hand(ctx):
    print("printed by", ctx.token, "attempt", ctx.attempt)
    subprocess.run(["echo", f"a program of {ctx.token}"])
    if ctx["fails"] >= ctx.attempt:
        raise RuntimeError("told to fail")
    for number in range(ctx["size"]):
        print(f"flood {number}", "x" * 2_000)
    wrote(ctx, "printed")
    while not is_open(ctx):
        time.sleep(0.02)
    return events.made(Made(size=0))
"""
APART = PRINTS.replace("on_state(states.hand)", 'on_state(states.hand, isolation="process")')


def task_log(folder: Path, *options: str) -> tuple[int, str, str]:
    state = folder.parent / f"{folder.name}-state"
    command: Words = [BIN / "stateous-supervisor", "task", "log", folder, *options, "--state-dir", state]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def printed(folder: Path, task: int) -> list[dict[str, Any]]:
    code, out, err = task_log(folder, str(task), "--json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


@pytest.mark.parametrize(
    "hand", [pytest.param(PRINTS, id="thread"), pytest.param(APART, id="process", marks=pytest.mark.prove)]
)
def test_output_is_kept_by_task_and_attempt_and_outlives_the_agent(
    hand: str, box: Path, plane_url: str, plane: ControlPlaneClient, request: pytest.FixtureRequest
) -> None:
    """A-63: its own and its programs' output, shown by `status` and `task log`, and in the agent's log."""
    mode = request.node.callspec.id
    folder = folders.make(box / mode, plane_url, hand=hand)
    loud, other, gate = f"loud-{mode}", f"other-{mode}", box / f"gate-{mode}"
    with AgentProgram(folder, plane_url) as agent:
        plane.start(loud, fails=1, gate=str(gate))
        plane.start(other, gate=str(gate))
        wait_for(
            lambda: {(1, "printed"), (2, "printed")} <= {*folders.phases(folder, other), *folders.phases(folder, loud)},
            within_s=30,
            what="output of both",
        )  # fmt: skip
        tasks = {line["token"]: line["task"] for line in folders.ledger(folder)}
        state = folder.parent / f"{folder.name}-state"
        asking: Words = [BIN / "stateous-supervisor", "status", folder, "--state-dir", state]

        def shown() -> str:
            said = subprocess.run(asking, capture_output=True, text=True).stdout
            return said if said.count("the last: a program of") == 2 else ""

        assert f"the last: a program of {other}" in wait_for(shown, within_s=15, what="the last lines")
        gate.touch()
        for token in (loud, other):
            plane.until(token, status="completed", within_s=30)
        agent.kill()
        logged = [json.loads(line) for line in agent.lines if '"routine.logged"' in line]

    first, second = printed(folder, tasks[loud])
    (single,) = printed(folder, tasks[other])
    for attempt, token in ((first, loud), (second, loud), (single, other)):
        said = [line["text"] for line in attempt["lines"]]
        assert said == [f"printed by {token} attempt {attempt['attempt']}", f"a program of {token}"]
    mine = [line for line in logged if line["text"] == f"a program of {other}"]
    assert [(line["task"], line["attempt"], line["token"]) for line in mine] == [(tasks[other], 1, other)]

    code, out, _ = task_log(folder, str(tasks[loud]), "--attempt", "2")
    assert code == 0
    assert out.splitlines()[0] == f"task {tasks[loud]}, attempt 2"
    assert out.splitlines()[1].endswith(f"printed by {loud} attempt 2")
    code, _, err = task_log(folder, "999999999")
    assert code == 69
    assert err.startswith("error: nothing that task 999999999 printed is kept in ")


def beats(folder: Path) -> list[int]:
    """How many heartbeats each attempt has had, asked at the socket: the log says nothing."""
    state = folder.parent / f"{folder.name}-state"
    asking: Words = [BIN / "stateous-supervisor", "status", folder, "--state-dir", state, "--json"]
    said = subprocess.run(asking, capture_output=True, text=True)
    return [task["heartbeats"] for task in json.loads(said.stdout)["tasks"]]


@pytest.mark.parametrize(
    "end", ["a pipe that nobody reads", pytest.param("/dev/full", marks=pytest.mark.prove)]
)
def test_a_log_that_takes_nothing_costs_no_lease(
    end: str, box: Path, plane_url: str, plane: ControlPlaneClient, request: pytest.FixtureRequest
) -> None:
    """A-28, BH-031, BH-033: routines that print 40 MB and heartbeats both go on, for longer than a lease."""
    name = "full" if end == "/dev/full" else "pipe"
    folder = folders.make(box / name, plane_url, hand=PRINTS)
    read, write = os.pipe()
    if name == "full":
        os.close(write)
        write = os.open(end, os.O_WRONLY)
    command = AgentProgram(folder, plane_url).command
    with subprocess.Popen(command, stdout=write, stderr=write, start_new_session=True) as agent:
        try:
            tokens = [f"{name}-{number}" for number in range(2)]
            gate = box / f"gate-{name}"
            for token in tokens:
                plane.start(token, size=10_000, gate=str(gate))
            for token in tokens:
                wait_for(partial(folders.phases, folder, token), within_s=45, what="all of its output")
            wait_for(lambda: min(beats(folder), default=0) >= 5, within_s=45, what="five heartbeats of each")
            gate.touch()
            for token in tokens:
                plane.until(token, status="completed", within_s=30)
                assert not {"task_failed", "task_released", "lease_expired"} & set(plane.kinds(token))
            task = folders.ledger(folder)[0]["task"]
            memory = psutil.Process(agent.pid).memory_info().rss
        finally:
            agent.kill()
            os.close(read)
            os.close(write)
    (kept,) = printed(folder, task)
    marks = [line for line in kept["lines"] if line.get("dropped") or "lines were dropped" in line["text"]]
    floods = [line["text"].split()[1] for line in kept["lines"] if line["text"].startswith("flood")]
    assert floods
    assert kept["earlier"] or marks
    assert sum(len(line["text"]) for line in kept["lines"]) <= ATTEMPT_BYTES_MAX
    assert memory < 300 * 1_048_576
