"""What dies in mid-task, and what is lost by it: nothing. `kill -9` of agent, control plane and PostgreSQL."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES

pytestmark = pytest.mark.slow


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def began(folder: Path, token: str, attempt: int = 1) -> None:
    wait_for(
        lambda: (attempt, "begin") in folders.phases(folder, token), within_s=40, what=f"attempt {attempt}"
    )


def test_a_task_of_a_killed_agent_is_attempt_2_elsewhere(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S3-05, S3-26, S3-74 … S3-76."""
    one, two = folders.make(box / "one", plane_url), folders.make(box / "two", plane_url)
    plane.start("killed", gate=str(box / "gate"))

    with AgentProgram(one, plane_url, name="box-1") as first:
        began(one, "killed")
        first.kill()
    with AgentProgram(two, plane_url, name="box-2"):
        began(two, "killed", attempt=2)
        (box / "gate").touch()
        plane.until("killed", status="completed")

    told = [(e["kind"], e["data"]) for e in plane.history("killed") if e["kind"].startswith("task_")]
    task = told[0][1]["task"]
    assert [kind for kind, _ in told[:5]] == [
        "task_queued",
        "task_claimed",
        "task_failed",
        "task_retrying",
        "task_claimed",
    ]
    assert "box-1" in told[2][1]["error"]
    assert told[3][1] == {"task": task, "attempt": 2}
    assert told[4][1] == {"task": task, "attempt": 2, "supervisor": "box-2"}


def test_an_agent_that_comes_back_settles_what_it_held_at_once(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-46: within 5 s of the first contact; no lease is waited for, and no failure is counted."""
    folder = folders.make(box, plane_url)
    plane.start("back", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url) as first:
        began(folder, "back")
        first.kill()
    with AgentProgram(folder, plane_url) as second:
        began(folder, "back", attempt=2)
        (box / "gate").touch()
        plane.until("back", status="completed")
        second.line('"control_plane.reached"')

    (released_at,) = (moment(e["at"]) for e in plane.history("back") if e["kind"] == "task_released")
    (reached,) = (json.loads(line) for line in second.lines if '"control_plane.reached"' in line)
    assert released_at - moment(reached["at"]) <= timedelta(seconds=5)
    assert "task_failed" not in plane.kinds("back")


def test_an_outcome_of_a_killed_agent_is_delivered_by_the_next(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-35: the routine had returned, but nobody could be told."""
    from faults import FaultProxy

    with FaultProxy(plane_url) as proxy:
        folder = folders.make(box, proxy.url)
        plane.start("kept", gate=str(box / "gate"))
        with AgentProgram(folder, proxy.url) as first:
            began(folder, "kept")
            proxy.is_down = True
            proxy.cut()
            (box / "gate").touch()
            wait_for(
                lambda: (1, "end") in folders.phases(folder, "kept"), within_s=5, what="end of the routine"
            )
            time.sleep(0.3)
            first.kill()
        proxy.is_down = False
        with AgentProgram(folder, proxy.url):
            plane.until("kept", status="completed")

    assert folders.phases(folder, "kept")[:2] == [(1, "begin"), (1, "end")]
    assert plane.kinds("kept").count("task_claimed") == 2


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A data folder for a control plane that brings its own PostgreSQL."""
    return tmp_path / "data"


@contextmanager
def serving(data: Path, *, at: str = "127.0.0.1:0") -> Iterator[ControlPlaneProgram]:
    with ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--data", data, listen=at) as program:
        yield program


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_control_plane_that_was_away_longer_than_a_lease_loses_nothing(
    box: Path, own_data: Path, how: str
) -> None:
    """BH-008: the first heartbeats save what runs, and no attempt is spent. PostgreSQL goes and comes with it."""
    with serving(own_data) as first:
        url = first.url
        folder = folders.make(box, url)
        with AgentProgram(folder, url) as agent:
            with ControlPlaneClient(url) as client:
                client.start("long", gate=str(box / "gate"))
                client.start("short", gate=str(box / "half"), kind="loop")
                began(folder, "long")
                began(folder, "short")
            if how == "killed":
                first.kill()
            else:
                first.signal(signal.SIGTERM)
                assert first.ended() == 0
            (box / "half").touch()
            time.sleep(4.5)
            with serving(own_data, at=url.removeprefix("http://")), ControlPlaneClient(url) as client:
                client.until("short", status="completed")
                time.sleep(1.0)
                (box / "gate").touch()
                client.until("long", status="completed")

                for token in ("long", "short"):
                    assert "task_failed" not in client.kinds(token)
                    assert folders.phases(folder, token)[:2] == [(1, "begin"), (1, "end")]
                assert "Traceback" not in agent.told


def test_a_postgresql_that_was_away_costs_no_attempt(box: Path, own_data: Path) -> None:
    """BH-008, BH-049: only the database ends, at once and hard; the control plane goes on by itself."""
    with serving(own_data) as program, ControlPlaneClient(program.url) as client:
        folder = folders.make(box, program.url)
        with AgentProgram(folder, program.url):
            client.start("held", gate=str(box / "gate"))
            began(folder, "held")
            postgres = [
                p
                for p in psutil.Process(program.child.pid).children(recursive=True)
                if "postgres" in p.name()
            ]
            backends = [p for p in postgres if any(q in p.parents() for q in postgres)]
            assert backends
            for process in backends:
                with_no_mercy(process)
            wait_for(lambda: client.http.get("/ready").status_code == 200, within_s=30, what="readiness")
            (box / "gate").touch()
            client.until("held", status="completed")

        assert client.kinds("held").count("task_claimed") == 2
        assert "task_failed" not in client.kinds("held")


def with_no_mercy(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


PROGRAMS = """
import re, subprocess, time
from contract import events, states
from stateous_supervisor import on_state
from _shared import wrote

def work(ctx):
    deaf = "trap '' TERM INT HUP; sleep 600 & wait; sleep 600"
    own_group = "set -m; sleep 600 & echo $!; wait"
    programs = [subprocess.Popen(["sh", "-c", script], process_group=group) for script, group in
                [(deaf, None), ("sleep 600", None), (own_group, None), ("sleep 600", 0)]]
    wrote(ctx, "begin", programs=[program.pid for program in programs])
    if ctx["gate"] == "held":
        re.match(r"(a+)+$", "a" * 60 + "b")
    time.sleep(600)

@on_state(states.hand)
def hand(ctx):
    work(ctx)

@on_state(states.loop, isolation="process")
def loop(ctx):
    work(ctx)
"""


@pytest.mark.parametrize("gate", ["", "held"])
def test_no_program_of_a_routine_outlives_a_killed_agent(
    box: Path, plane_url: str, plane: ControlPlaneClient, gate: str
) -> None:
    """A-48: also one that ignores signals, and one in a process group of its own, as long as it stays in the session.

    So also where routines hold the interpreters of the host and of an isolated process, which end too.
    """
    folder = folders.make(box, plane_url, hand=PROGRAMS, loop='"""No routine is here."""')
    tokens = [f"programs-{gate}-{kind}" for kind in ("loop", "hand")]

    with AgentProgram(folder, plane_url) as agent:
        for token in tokens:  # the isolated one first: a held host starts nothing
            plane.start(token, kind=token.rpartition("-")[2], gate=gate)
            began(folder, token)
        lines = folders.ledger(folder)
        roots = [psutil.Process(pid) for line in lines for pid in (line["pid"], *line["programs"])]
        wait_for(lambda: len(every(roots)) >= 14, within_s=15, what="programs of programs")
        started = every(roots)
        agent.child.kill()
        _, alive = psutil.wait_procs(started, timeout=20)
    for token in tokens:
        plane.cancel(token)
    assert alive == []


def every(roots: list[psutil.Process]) -> list[psutil.Process]:
    return list({process for root in roots for process in (root, *root.children(recursive=True))})


def test_nothing_of_an_agent_outlives_it(box: Path, plane_url: str, plane: ControlPlaneClient) -> None:
    """A-48: kill -9 of the agent process alone ends its host too."""
    folder = folders.make(box, plane_url)
    plane.start("host", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url) as agent:
        began(folder, "host")
        host = json.loads(folder.with_suffix(".ledger").read_text().splitlines()[0])["pid"]
        assert host != agent.child.pid
        agent.child.kill()
        wait_for(lambda: not psutil.pid_exists(host), within_s=10, what="end of the host")
