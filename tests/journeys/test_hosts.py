"""Faults of a whole process: a routine that ends its host, and an agent that sleeps through its own lease."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

ENDS = """
import builtins
import os
import resource
import sys
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    if ctx["kind"] == "ends":
        os._exit(3)
    if ctx["kind"] == "forgets":
        sys.modules.clear()
    if ctx["kind"] == "closes":
        os.closerange(0, 65_536)
    if ctx["kind"] == "lowers":
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
    if ctx["kind"] == "breaks":
        builtins.len = None
    return events.made(Made(size=0))
"""

APART = """
from contract import events, states
from stateous_supervisor import on_state


@on_state(states.rescue, isolation="process")
def rescue(ctx):
    return events.passed()
"""


def test_a_routine_that_ends_its_host_costs_its_own_attempts(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-009, A-23: retries + 1 runs, each a failure that names the exit code; the agent and other tasks go on."""
    folder = folders.make(box, plane_url, hand=ENDS)

    with AgentProgram(folder, plane_url) as agent:
        plane.start("ends", kind="ends")
        plane.until("ends", state="rescue", within_s=30)
        plane.start("works")
        plane.until("works", status="completed")
        assert agent.child.poll() is None

    failed = [entry["data"]["error"] for entry in plane.history("ends") if entry["kind"] == "task_failed"]
    assert len(failed) == 3
    assert all("3" in text for text in failed), failed
    assert folders.phases(folder, "ends") == [(1, "begin"), (2, "begin"), (3, "begin")]


def test_a_routine_that_closes_every_descriptor_costs_its_own_attempts(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-23: such a host cannot say anything any more, not even where it failed; it ends, and the box goes on."""
    folder = folders.make(box, plane_url, hand=ENDS)

    with AgentProgram(folder, plane_url) as agent:
        plane.start("closes", kind="closes")
        plane.until("closes", state="rescue", within_s=30)
        plane.start("works-after-that")
        plane.until("works-after-that", status="completed")
        assert agent.child.poll() is None

    assert plane.kinds("closes").count("task_failed") == 3


def test_a_routine_that_forgets_the_modules_of_its_host_costs_that_host_alone(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-23, A-24: a host that could start no isolated routine any more would keep their tasks for ever."""
    folder = folders.make(box, plane_url, hand=ENDS, rescue=APART)

    with AgentProgram(folder, plane_url) as agent:
        plane.start("forgets", kind="forgets")
        plane.until("forgets", status="completed", within_s=30)
        assert "out of sys.modules" in agent.line("host.unfit", within_s=30)
        plane.start("works-again")
        plane.until("works-again", status="completed")


def test_a_routine_that_takes_the_descriptors_of_its_host_costs_that_host_alone(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-23: what it leaves can run nothing more, and no other task is given to it."""
    folder = folders.make(box, plane_url, hand=ENDS, rescue=APART)

    with AgentProgram(folder, plane_url, "--tasks", "1") as agent:
        plane.start("lowers", kind="lowers")
        plane.start("works-beside")
        for name in ("lowers", "works-beside"):
            plane.until(name, status="completed", within_s=30)
        assert "Too many open files" in agent.line("host.unfit", within_s=30)

    assert plane.kinds("works-beside").count("task_failed") == 0


def test_a_routine_that_breaks_python_costs_its_own_attempts(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-23: each attempt names what was broken, and other tasks go on in the hosts that follow."""
    folder = folders.make(box, plane_url, hand=ENDS)

    with AgentProgram(folder, plane_url) as agent:
        plane.start("breaks", kind="breaks")
        plane.until("breaks", state="rescue", within_s=30)
        plane.start("works-unbroken")
        plane.until("works-unbroken", status="completed")
        assert agent.child.poll() is None

    failed = [entry["data"]["error"] for entry in plane.history("breaks") if entry["kind"] == "task_failed"]
    assert len(failed) == 3
    assert all("exit code 70: a routine replaced len in builtins" in text for text in failed), failed


def test_an_agent_that_slept_through_its_lease_lets_go(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-011: what it held runs elsewhere; it cancels its own and reports nothing into the newer attempt."""
    folder = folders.make(box, plane_url)
    plane.start("slept", kind="loop", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url, "--tasks", "1") as agent:
        wait_for(lambda: folders.phases(folder, "slept"), within_s=30, what="beginning")
        os.killpg(agent.child.pid, signal.SIGSTOP)
        host = folders.ledger(folder)[0]["pid"]
        os.kill(host, signal.SIGSTOP)
        wait_for(lambda: "task_retrying" in plane.kinds("slept"), within_s=30, what="ended lease")
        claim = {"supervisor": "elsewhere", "states": ["loop"]}
        task = plane.http.post("/tasks/claim", json=claim).json()
        assert task["attempt"] == 2
        os.kill(host, signal.SIGCONT)
        os.killpg(agent.child.pid, signal.SIGCONT)
        wait_for(
            lambda: (1, "cancelled") in folders.phases(folder, "slept"), within_s=30, what="cancellation"
        )

        report = {
            "kind": "event",
            "event": "made",
            "payload": {"size": 1},
            "attempt": 2,
            "supervisor": "elsewhere",
        }
        assert plane.http.post(f"/tasks/{task['task']}/report", json=report).status_code == 200
        plane.until("slept", status="completed")
        assert agent.child.poll() is None
