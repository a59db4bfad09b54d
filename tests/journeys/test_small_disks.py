"""State folders that are too small, without inodes, read-only or gone: one sentence or no loss, and no litter (BH-031)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import BIN, AgentProgram, ControlPlaneClient, Program, Words, wait_for

from journeys import folders

pytestmark = pytest.mark.slow


@pytest.fixture
def in_namespace() -> list[str]:
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    probe = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("NAMESPACES ARE FORBIDDEN HERE: small state folders are not tested")
    return command


def said_of(agent: Program, event: str) -> list[str]:
    return [line for line in list(agent.lines) if f'"event":"{event}"' in line]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param("size=64k", "disk is full", id="64 kB", marks=pytest.mark.prove),
        pytest.param("size=4m,nr_inodes=2", "0 files", id="no inodes"),
        pytest.param("size=4m,ro", "read-only file system", id="read-only", marks=pytest.mark.prove),
    ],
)
def test_a_state_folder_that_holds_no_outbox_is_one_sentence_and_leaves_no_litter(
    options: str, why: str, box: Path, plane_url: str, in_namespace: list[str]
) -> None:
    """BH-031: 73 and a sentence, twice alike; with room the same folder is used, and nothing was set aside."""
    folder, state = folders.make(box, plane_url), box.parent / "small"
    state.mkdir()
    more = "size=4m,nr_inodes=100" if "ro" not in options.split(",") else "rw"
    script = (
        f'mount -t tmpfs -o {options},mode=700 none {state}; for _ in 1 2; do "$@"; echo ended $?; done; '
        f'mount -o remount,{more} {state}; "$@" & agent=$!; '
        f'until "$0" status {folder} --state-dir {state} >/dev/null 2>&1; do kill -0 $agent || break; done; '
        f"ls {state}; kill $agent; wait $agent; echo ended $?"
    )
    program = BIN / "stateous-supervisor"
    run: Words = [program, "run", folder, "--url", plane_url, "--state-dir", state, "--log-format", "json"]
    with Program([*in_namespace, "sh", "-c", script, program, *run]) as agent:
        assert agent.ended(within_s=50) == 0
    lines = [line.rstrip() for line in agent.lines]
    first, second = lines[0:2], lines[2:4]
    assert first == second
    assert first[0].startswith(f"error: {state}")
    assert why in first[0]
    assert first[1] == "ended 73"
    assert lines[-1] == "ended 0"
    assert not [line for line in lines if "aside" in line]


def test_a_state_folder_that_is_removed_under_the_agent_costs_no_outcome_and_is_said(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-031 (missing): what runs is reported all the same, and nothing is claimed for a file that no start would find."""
    folder = folders.make(box, plane_url)
    state = box.parent / f"{box.name}-state"
    with AgentProgram(folder, plane_url) as agent:
        plane.start("gone-1", gate=str(box / "gate"))
        wait_for(lambda: folders.phases(box, "gone-1"), within_s=20, what="the routine")
        shutil.rmtree(state)
        (box / "gate").touch()
        plane.until("gone-1", state="check")
        wait_for(lambda: said_of(agent, "outbox.failed"), within_s=15, what="the word of the outbox")
        assert "was removed or replaced; only a restart makes it anew" in said_of(agent, "outbox.failed")[0]
        agent.child.terminate()
        assert agent.ended(within_s=30) == 0
    assert "task_failed" not in plane.kinds("gone-1")
    with AgentProgram(folder, plane_url):
        plane.until("gone-1", status="completed", within_s=40)


def test_a_routine_folder_that_takes_no_writes_is_no_error(
    box: Path, plane_url: str, plane: ControlPlaneClient, in_namespace: list[str]
) -> None:
    """BH-031: not even a folder for compiled files is made there."""
    folder, state = folders.make(box, plane_url), box.parent / "state"
    script = f'mount --bind {box} {box} && mount -o remount,bind,ro {box} && exec "$@"'
    run: Words = [BIN / "stateous-supervisor", "run", folder, "--url", plane_url, "--state-dir", state]
    with Program([*in_namespace, "sh", "-c", script, "sh", *run, "--log-format", "json"]) as agent:
        plane.start("read-only")
        plane.until("read-only", status="completed", within_s=40)
        levels = {json.loads(line)["level"] for line in list(agent.lines) if line.startswith("{")}
        assert levels == {"info"}
        agent.child.terminate()
        assert agent.ended() == 0
    assert not (box / "__pycache__").exists()
