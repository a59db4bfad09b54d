"""Folders with a fault (BH-029, A-05, A-06). A fault of one file takes only its own states; a fault of the folder ends it."""

from __future__ import annotations

import subprocess
import time
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

# Each with the line that it must be named with; none where there is none to name.
OF_ONE_FILE = {
    "does_not_parse.py": (b"def broken(:\n", 1),
    "import_fails.py": (b"\nimport there_is_no_such_module\n", 2),
    "raises.py": (b"raise RuntimeError('at import')\n", 1),
    "exits.py": (b"import sys\nsys.exit(0)\n", 2),
    "exits_at_once.py": (b"import os\nos._exit(0)\n", None),
    "not_utf_8.py": (b"name = '\xff\xfe'\n", None),
    "circle.py": (b"import _circle\nx = 1\n", 1),
    "leads_nowhere.py": (None, None),
}
# They look like the ones above and are none.
OF_NOBODY = {
    "begins_with_a_bom.py": b"\xef\xbb\xbf" + b"x = 1\n",
    "starts_a_thread.py": b"import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n",
    "brings_another_here.py": b"from hand import hand\nagain = hand\n",
}
HANGS = "import time\ntime.sleep(600)\n"
LIMIT_S = 20  # of A-05
OF_THE_FOLDER = {
    "two routines for one state": ({"second": DOUBLE}, ["hand.py", "second.py"]),
    "a state that nobody knows": ({"unknown": UNKNOWN}, ["unknown.py", "nowhere"]),
    "a wrong signature": ({"wrong": SIGNATURE}, ["wrong.py", "rescue"]),
    "a generator": ({"wrong": GENERATOR}, ["wrong.py", "rescue"]),
    "a shadowed standard module": ({"json": "x = 1\n"}, ["json.py"]),
    "a shadowed asyncio": ({"asyncio": "x = 1\n"}, ["asyncio.py"]),
}


def check(folder: Path, *, within_s: float = 40) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "stateous-supervisor", "check", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


def break_everything(folder: Path) -> None:
    for name, (content, _) in OF_ONE_FILE.items():
        if content is not None:
            (folder / name).write_bytes(content)
    (folder / "leads_nowhere.py").symlink_to("nowhere.py")
    (folder / "_circle.py").write_text("from circle import x\n")
    for name, content in OF_NOBODY.items():
        (folder / name).write_bytes(content)


def claims(fake: FakeControlPlane) -> list[str]:
    """The requests that a control plane had about tasks; whether it is there at all may be asked while files load."""
    return [heard.path for heard in fake.heard if heard.method != "GET"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `run`, `run --strict` and `check` said of a folder with every broken file there is.

    `run` served its other states meanwhile; the strict one claimed nothing.
    """
    folder = folders.make(tmp_path_factory.mktemp("broken") / "box", "http://127.0.0.1:9")
    break_everything(folder)
    fake = FakeControlPlane(graph_document())
    with serving(fake) as url:
        with AgentProgram(folder, url, "--strict") as strict:
            assert strict.ended(within_s=60) == 78
        assert claims(fake) == []
        with AgentProgram(folder, url) as agent, ControlPlaneClient(url) as client:
            client.start("works")
            client.until("works", status="completed", within_s=40)
    done = check(folder)
    assert done.returncode == 78
    return {"run": agent.told, "run --strict": strict.told, "check": done.stdout + done.stderr}


@pytest.mark.parametrize("command", ["run", "run --strict", "check"])
@pytest.mark.parametrize("name", OF_ONE_FILE)
def test_a_broken_file_is_named_with_its_line_and_the_others_work(
    told: dict[str, str], command: str, name: str
) -> None:
    line = OF_ONE_FILE[name][1]
    of_it = [each for each in told[command].splitlines() if name in each]

    assert of_it
    if line is not None:
        assert any(f"{name}:{line}" in each or f'"line":{line},' in each for each in of_it), of_it


@pytest.mark.parametrize("command", ["run --strict", "check"])
@pytest.mark.parametrize("name", OF_NOBODY)
def test_what_only_looks_broken_is_not_named(told: dict[str, str], command: str, name: str) -> None:
    assert f"error: {name}" not in told[command]


@pytest.mark.prove
@pytest.mark.timeout(180)
def test_an_import_that_blocks_is_named_after_the_limit_that_is_shipped(box: Path) -> None:
    """Ten minutes it would take; the others are served after twenty seconds, and who is strict ends then."""
    folder = folders.make(box, "http://127.0.0.1:9", hangs=HANGS)
    fake = FakeControlPlane(graph_document())
    sentence = f"did not end its import within {LIMIT_S} s"

    began = time.monotonic()
    done = check(folder, within_s=100)
    assert time.monotonic() - began >= LIMIT_S
    with serving(fake) as url:
        with AgentProgram(folder, url, "--strict") as strict:
            assert strict.ended(within_s=100) == 78
        assert claims(fake) == []
        with AgentProgram(folder, url) as agent, ControlPlaneClient(url) as client:
            client.start("works")
            client.until("works", status="completed", within_s=100)

    assert done.returncode == 78
    for said in (done.stderr, strict.told, agent.told):
        assert any("hangs.py" in line and sentence in line for line in said.splitlines()), said


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
    assert claims(fake) == []


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
    done = check(box / "nowhere")

    assert done.returncode == 78
    assert all("nowhere" in said for said in (agent.told, done.stderr))


def graph_document() -> dict[str, Any]:
    return load_file(folders.WORKFLOW.read_bytes(), name="workflow.yaml").document
