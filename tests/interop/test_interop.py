"""Ours and the published package, each against the other over real HTTP: agent, control plane, command line."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from control.databases import fresh
from journeys import folders
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, Program, Words, wait_for

from stateous_control.graph.compiler import dump, load_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DONE_HAND = [
    "started", "event_accepted", "entered", "task_queued", "task_claimed", "memory_set", "note", "context_changed",
    "event_accepted", "task_done", "entered", "task_queued", "task_claimed", "event_accepted", "task_done", "completed",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journeys' workflow as a compiled graph file."""
    document = load_file(folders.WORKFLOW.read_bytes(), name="workflow.yaml").document
    path = tmp_path_factory.mktemp("graph") / "errand.json"
    path.write_text(dump(document), "utf-8")
    return path


def their_folder(stateous: Path, source: str, folder: Path) -> Path:
    """A folder made by their `init supervisor`, with the journeys' routines, which import from `stateous`."""
    subprocess.run([stateous, "init", "supervisor", source, folder], check=True, capture_output=True)
    for stub in folder.glob("*.py"):
        if stub.name != "contract.py":
            stub.unlink()
    texts = {"_shared": folders.SHARED, "hand": folders.HAND, "loop": folders.LOOP, "check": folders.CHECK}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(
            text.lstrip("\n").replace("stateous_supervisor", "stateous"), "utf-8"
        )
    return folder


@contextmanager
def our_agent_on_theirs(stateous: Path, graph: Path, home: Path) -> Iterator[ControlPlaneClient]:
    """A folder made by their `init supervisor`, unchanged, under our agent, on their control plane (A-10)."""
    at = f"127.0.0.1:{free_port()}"
    serve: Words = [stateous, "serve", graph, "--db", f"sqlite:///{home}/stateous.db", "--listen", at]
    with Program(serve) as served, ControlPlaneClient(f"http://{at}") as client:
        served.line("serving on")
        folder = their_folder(stateous, f"http://{at}", home / "box")
        with AgentProgram(folder, f"http://{at}") as agent:
            yield client
            assert agent.child.poll() is None, agent.told


@contextmanager
def theirs_on_our_control_plane(stateous: Path, our_url: str, home: Path) -> Iterator[ControlPlaneClient]:
    """Their `supervise` on our control plane."""
    folder = their_folder(stateous, our_url, home / "box")
    with Program([stateous, "supervise", folder]) as supervise, ControlPlaneClient(our_url) as client:
        yield client
        assert supervise.child.poll() is None, supervise.told


@pytest.fixture(scope="module")
def our_url(postgres: str, migrated_template: str, graph: Path) -> Iterator[str]:
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(graph, "--retry-delay", "0.1", "--database", database) as program,
    ):
        yield program.url


@pytest.fixture(scope="module", params=["our-agent", "our-control-plane"])
def plane(
    request: pytest.FixtureRequest,
    stateous: Path,
    graph: Path,
    our_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlaneClient]:
    """The errands are the same, whoever serves and whoever works."""
    home = tmp_path_factory.mktemp("interop")
    is_ours = request.param == "our-control-plane"
    pair = (
        theirs_on_our_control_plane(stateous, our_url, home)
        if is_ours
        else our_agent_on_theirs(stateous, graph, home)
    )
    with pair as client:
        yield client


def test_an_errand_is_run_and_its_history_is_the_same(plane: ControlPlaneClient) -> None:
    plane.start("one", size=7)

    assert plane.until("one", status="completed")["context"]["tries"] == 1
    assert plane.kinds("one") == DONE_HAND


def test_a_failure_is_tried_again_with_its_memory(plane: ControlPlaneClient) -> None:
    plane.start("again", fails=1)

    assert plane.until("again", status="completed")["context"]["tries"] == 2
    failed = [entry["data"]["error"] for entry in plane.history("again") if entry["kind"] == "task_failed"]
    assert failed == ["RuntimeError: told to fail, attempt 1"]


def test_a_coroutine_runs(plane: ControlPlaneClient) -> None:
    plane.start("loop", kind="loop", size=3)

    plane.until("loop", status="completed")


def test_a_waiting_task_is_ended_from_outside(plane: ControlPlaneClient) -> None:
    plane.start("ask", kind="asking")
    wait_for(lambda: "task_waiting" in plane.kinds("ask"), within_s=20, what="waiting task")

    plane.http.post("/tokens/ask/events/answered").raise_for_status()

    assert plane.token("ask")["status"] == "completed"


def test_their_token_commands_work_on_our_control_plane(stateous: Path, our_url: str) -> None:
    def token(*arguments: str) -> tuple[int, str]:
        asked: Words = [stateous, "token", *arguments, "--url", our_url]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    context = json.dumps({"kind": "asking"})
    assert token("start", "CLI-1", context) == (0, "CLI-1: asking, active\n")
    assert token("start", "CLI-1") == (0, "CLI-1: asking, active\n")
    assert token("pause", "CLI-1") == (0, "CLI-1: asking, paused\n")
    assert token("resume", "CLI-1") == (0, "CLI-1: asking, active\n")
    assert token("fire", "CLI-1", "answered", "--key", "k1") == (0, "CLI-1: asking, completed\n")
    assert token("fire", "CLI-1", "answered", "--key", "k1") == (0, "duplicate: CLI-1: asking, completed\n")
    code, told = token("show", "CLI-1")
    assert code == 0
    assert [line.split("  ")[-1] for line in told.splitlines()][1:3] == ["started", "__started__ in START"]
    code, told = token("cancel", "CLI-1")
    assert (code, "refused (409)" in told) == (1, True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
