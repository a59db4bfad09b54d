"""Folders with a fault (BH-029, A-05, A-06). A fault of one file takes only its own states; a fault of the folder ends it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeControlPlane, serving
from programs import BIN, AgentProgram, ControlPlaneClient

from journeys import folders
from stateous_control.graph.compiler import load_file

DOUBLE = folders.CHECK.replace("states.check", "states.hand").replace("states.asking", "states.rescue")
UNKNOWN = """
from stateous_supervisor import StateRef, on_state


@on_state(StateRef("nowhere", emits=()))
def nowhere(ctx):
    return None
"""
SIGNATURE = """
from contract import states
from stateous_supervisor import on_state


@on_state(states.rescue)
def rescue():
    return None
"""
GENERATOR = SIGNATURE.replace("def rescue():\n    return None", "def rescue(ctx):\n    yield 1")

OF_ONE_FILE = {
    "does_not_parse.py": b"def broken(:\n",
    "import_fails.py": b"import there_is_no_such_module\n",
    "raises.py": b"raise RuntimeError('at import')\n",
    "exits.py": b"import sys\nsys.exit(0)\n",
    "exits_at_once.py": b"import os\nos._exit(0)\n",
    "not_utf_8.py": b"name = '\xff\xfe'\n",
}
OF_THE_FOLDER = {
    "two routines for one state": ({"second": DOUBLE}, ["hand.py", "second.py"]),
    "a state that nobody knows": ({"unknown": UNKNOWN}, ["unknown.py", "nowhere"]),
    "a wrong signature": ({"wrong": SIGNATURE}, ["wrong.py", "rescue"]),
    "a generator": ({"wrong": GENERATOR}, ["wrong.py", "rescue"]),
    "a shadowed standard module": ({"json": "x = 1\n"}, ["json.py"]),
}


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "stateous-supervisor", "check", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `run` and `check` said of a folder with every broken file there is; meanwhile `run` served its other states."""
    folder = folders.make(tmp_path_factory.mktemp("broken") / "box", "http://127.0.0.1:9")
    for name, content in OF_ONE_FILE.items():
        (folder / name).write_bytes(content)
    with serving(FakeControlPlane(graph_document())) as url, AgentProgram(folder, url) as agent:
        with ControlPlaneClient(url) as client:
            client.start("works")
            client.until("works", status="completed", within_s=40)
        ran = agent.told
    done = check(folder)
    assert done.returncode == 78
    return {"run": ran, "check": done.stdout + done.stderr}


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("name", OF_ONE_FILE)
def test_a_broken_file_is_named_and_the_others_work(told: dict[str, str], command: str, name: str) -> None:
    assert name in told[command]


def test_check_shows_sentences_and_no_traceback(told: dict[str, str]) -> None:
    assert "Traceback" not in told["check"]


@pytest.mark.parametrize("fault", OF_THE_FOLDER)
def test_a_fault_of_the_folder_ends_it_before_any_claim(box: Path, fault: str) -> None:
    files, words = OF_THE_FOLDER[fault]
    folder = folders.make(box, "http://127.0.0.1:9", **files)
    fake = FakeControlPlane(graph_document())

    with serving(fake) as url, AgentProgram(folder, url) as agent:
        assert agent.ended(within_s=30) == 78
    done = check(folder)

    assert done.returncode == 78
    assert all(word in done.stdout + done.stderr for word in words), done.stdout + done.stderr
    assert all(word in agent.told for word in words), agent.told
    assert not [heard for heard in fake.heard if heard.path == "/tasks/claim"]


def test_strict_refuses_to_start_with_a_broken_file(box: Path) -> None:
    folder = folders.make(box, "http://127.0.0.1:9", broken="def broken(:\n")
    fake = FakeControlPlane(graph_document())

    with serving(fake) as url, AgentProgram(folder, url, "--strict") as agent:
        assert agent.ended(within_s=30) == 78

    assert "broken.py" in agent.told
    assert not [heard for heard in fake.heard if heard.path == "/tasks/claim"]


def unreadable(folder: Path) -> None:
    (folder / "contract.py").unlink()


def empty(folder: Path) -> None:
    for name in ("hand", "loop", "check"):
        (folder / f"{name}.py").unlink()


@pytest.mark.parametrize("spoil", [unreadable, empty], ids=["no contract", "no routine"])
def test_a_folder_that_cannot_serve_is_refused_in_one_sentence(
    box: Path, spoil: Callable[[Path], None]
) -> None:
    folder = folders.make(box, "http://127.0.0.1:9")
    spoil(folder)

    with AgentProgram(folder, "http://127.0.0.1:9") as agent:
        assert agent.ended(within_s=30) == 78

    assert "Traceback" not in agent.told


def test_a_folder_that_is_not_there_is_refused(box: Path) -> None:
    with AgentProgram(box / "nowhere", "http://127.0.0.1:9") as agent:
        assert agent.ended() == 78

    assert "nowhere" in agent.told


def graph_document() -> dict[str, Any]:
    return load_file(folders.WORKFLOW.read_bytes(), name="workflow.yaml").document
