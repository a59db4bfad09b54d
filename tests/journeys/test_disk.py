"""A state folder without room: what runs is reported, nothing more is claimed, and it goes on by itself (A-41, BH-031)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults import FaultProxy
from programs import BIN, AgentProgram, ControlPlaneClient, Program, Words, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

LEASE_S = 3.0


def told(agent: Program, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(agent.lines) if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def status(folder: Path, state: Path) -> dict[str, Any]:
    command: Words = [BIN / "stateous-supervisor", "status", folder, "--state-dir", state, "--json"]
    seen: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    return seen


def outlive_a_full_disk(
    agent: Program,
    plane: ControlPlaneClient,
    box: Path,
    *,
    name: str,
    fill: Callable[[], object],
    drain: Callable[[], object],
) -> Iterator[None]:
    """The course of both tests; it stops once where the disk is full, for what only one of them can look at."""
    plane.start(name, gate=str(box / "gate"))
    wait_for(lambda: folders.phases(box, name), within_s=20, what="the routine")
    fill()
    (box / "gate").touch()
    plane.until(name, state="check")
    wait_for(lambda: told(agent, "outbox.failed"), within_s=10, what="the word of the disk")
    plane.start(f"{name}-later")
    time.sleep(1.0)
    yield
    assert "task_claimed" not in plane.kinds(f"{name}-later")
    drain()
    plane.until(name, status="completed")
    plane.until(f"{name}-later", status="completed")
    assert told(agent, "outbox.mended")
    assert "task_failed" not in plane.kinds(name)


def test_a_disk_that_takes_no_writes_costs_no_outcome_and_is_said(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """By a limit on the size of files, which every file of the state folder has reached."""
    folder = folders.make(box, plane_url)
    state = box.parent / "state"
    with AgentProgram(folder, plane_url, "--tasks", "1", "--state-dir", state) as agent:
        most = resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE)[1]

        def limit(size: int) -> None:
            resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE, (size, most))

        course = outlive_a_full_disk(
            agent, plane, box, name="limited", fill=lambda: limit(0), drain=lambda: limit(most)
        )
        next(course)
        seen = status(folder, state)
        assert (seen["outbox_is_writable"], seen["is_claiming"]) == (False, False)
        assert next(course, None) is None
        assert status(folder, state)["outbox_is_writable"]


def test_a_drain_ends_while_the_disk_takes_no_writes(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-41, A-43: the outcome is delivered straight away, and nobody waits for the disk."""
    folder = folders.make(box, plane_url)
    with AgentProgram(folder, plane_url, "--tasks", "1") as agent:
        plane.start("drains", gate=str(box / "gate"))
        wait_for(lambda: folders.phases(box, "drains"), within_s=20, what="the routine")
        most = resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE, (0, most))
        agent.signal(signal.SIGTERM)
        (box / "gate").touch()
        assert agent.ended() == 0
    assert plane.token("drains")["state"] == "check"


def test_a_commit_that_hangs_does_not_keep_the_second_signal_waiting(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-44: somebody else holds the outbox's lock, and each try to write waits for 15 s in a call that nobody can cancel."""
    folder = folders.make(box, plane_url)
    state = box.parent / "state"
    with AgentProgram(folder, plane_url, "--tasks", "1", "--state-dir", state) as agent:
        plane.start("hangs", gate=str(box / "gate"))
        wait_for(lambda: folders.phases(box, "hangs"), within_s=40, what="the routine")
        with contextlib.closing(sqlite3.connect(state / "outbox.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            (box / "gate").touch()
            wait_for(lambda: (1, "end") in folders.phases(box, "hangs"), within_s=40, what="its end")
            agent.signal(signal.SIGTERM)
            agent.line("supervisor.stopping")
            began_at = time.monotonic()
            agent.signal(signal.SIGTERM)
            assert agent.ended() == 1
            assert time.monotonic() - began_at < 9


@contextlib.contextmanager
def refusing(agent: AgentProgram, _state: Path) -> Iterator[None]:
    most = resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE, (0, most))
    yield
    resource.prlimit(agent.child.pid, resource.RLIMIT_FSIZE, (most, most))


@contextlib.contextmanager
def hanging(_agent: AgentProgram, state: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(state / "outbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("disk", [refusing, hanging])
def test_heartbeats_keep_their_time_while_the_disk_does_not_take_what_is_written(
    box: Path, plane_url: str, plane: ControlPlaneClient, disk: Callable[..., Any]
) -> None:
    """A-28: for twice a lease, while an outcome cannot be kept; what is held stays held."""
    name, state = disk.__name__, box.parent / "state"
    with (
        FaultProxy(plane_url) as proxy,
        AgentProgram(folders.make(box, proxy.url), proxy.url, "--state-dir", state) as agent,
    ):
        for token in ("held", "ended"):
            plane.start(f"{token}-{name}", gate=str(box / token))
            wait_for(partial(folders.phases, box, f"{token}-{name}"), within_s=40, what=token)
        with disk(agent, state):
            (box / "ended").touch()
            wait_for(lambda: (1, "end") in folders.phases(box, f"ended-{name}"), within_s=40, what="its end")
            before = proxy.times_heard("POST /tasks/heartbeat")
            time.sleep(2 * LEASE_S)
            beats = proxy.times_heard("POST /tasks/heartbeat") - before
        (box / "held").touch()
        plane.until(f"held-{name}", status="completed", within_s=40)
    assert beats >= 4  # of six
    assert not {"task_failed", "task_retrying"} & set(plane.kinds(f"held-{name}"))


@pytest.fixture
def in_namespace() -> list[str]:
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    probe = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("NAMESPACES ARE FORBIDDEN HERE: a state folder of 1 MB is not tested")
    return command


@pytest.mark.prove
def test_a_state_folder_of_1_mb_is_filled_and_emptied(
    box: Path, plane_url: str, plane: ControlPlaneClient, in_namespace: list[str]
) -> None:
    folder = folders.make(box, plane_url)
    state = box.parent / "small"
    state.mkdir()
    run = f'mount -t tmpfs -o size=1m,mode=700 none {state} && exec "$@"'
    serve: Words = [
        "run",
        folder,
        "--url",
        plane_url,
        "--state-dir",
        state,
        "--tasks",
        "1",
        "--log-format",
        "json",
    ]
    with Program([*in_namespace, "sh", "-c", run, "sh", BIN / "stateous-supervisor", *serve]) as agent:
        inside = Path(f"/proc/{agent.child.pid}/root{state}")
        filler = inside / "filler"

        def fill() -> None:
            with filler.open("wb", buffering=0) as file:
                for size in (65_536, 4_096, 512, 1):
                    try:
                        while True:
                            file.write(b"\0" * size)
                    except OSError:
                        continue

        course = outlive_a_full_disk(agent, plane, box, name="small", fill=fill, drain=filler.unlink)
        next(course)
        assert next(course, None) is None
