"""Names and ids from the other side that would be paths, under a real agent and routines in processes of their own
(BH-054): files are named by numbers, so none of them leads anywhere, and the tasks run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes import FakeControlPlane, Fault, serving
from supervisor.folders import PLAIN, make_folder
from supervisor.running.managed import Managed, wait_for

NAMES = ["../../x", "CON", "x" * 300, ".", "..", "a/b", "/x", "a\0b", "..\\..\\x", "%2e%2e%2fx", "é" * 200]
CANARY = "canary-of-a-file-outside"
PRINTS = PLAIN.replace(
    "    return events",
    """    print("printed by", ctx.token)
    ctx.memory["../../x"] = ctx.token[:40].replace("\\0", "")
    ctx.note(f"seen: {dict(ctx.memory)}")
    return events""",
)


def granted(task: object, attempt: object, state: str = "plain") -> dict[str, object]:
    return {
        "task": task,
        "attempt": attempt,
        "token": "../../x",
        "state": state,
        "visit": 1,
        "context": {},
        "memory": {},
    }


BAD_IDS = [
    granted("../../x", 1),
    granted(901, "../x"),
    granted(-1, 1),
    granted(2**63, 1),
    granted(902.5, 1),
    granted(903, 1, state="../../x"),
    granted(904, 1, state="x" * 300),
]


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize("isolation", ["process", pytest.param("thread", marks=pytest.mark.prove)])
def test_names_that_would_be_paths_lead_to_no_file_and_their_tasks_run_bh_054(
    tmp_path: Path, isolation: str
) -> None:
    box = tmp_path / "above" / "box"
    box.mkdir(parents=True)
    for outside in (tmp_path / "x", tmp_path / "above" / "x", box / "x"):
        outside.write_text(CANARY)
    fake = FakeControlPlane()
    with serving(fake) as url:
        text = PRINTS.replace("(states.plain)", f'(states.plain, isolation="{isolation}")')
        folder = make_folder(box / "folder", url=url, checksum=fake.graph.checksum, plain=text)
        managed = Managed(fake, folder)
        managed.start(len(NAMES))
        for number, name in enumerate(NAMES):
            fake.tokens[f"t{number}"].name = name
        fake.faults.append(
            Fault("POST /tasks/claim", status=200, body=json.dumps({"tasks": BAD_IDS}).encode())
        )
        before = files(tmp_path)
        with managed.agent("--name", "../../x", "--tasks", "4"):
            wait_for(lambda: managed.completed == len(NAMES))
            tasks = sorted(task.id for task in fake.tasks.values())
            kept = {f"above/box/state/output/{task}-1.log" for task in tasks}
            assert managed.status()["supervisor"] == "../../x"
            wait_for(lambda: kept <= files(tmp_path))  # what is printed is written a moment later
        managed.manager.door.close()

    made = files(tmp_path) - before
    ours = re.compile(
        r"above/box/(log|state(/(lock|outbox\.db(-wal|-shm)?|agent\.sock|output(/\d+-\d+\.log)?))?)"
    )
    assert all(ours.fullmatch(name) for name in made), made
    assert kept <= made
    printed = [json.loads(line)["text"] for task in tasks for line in lines(managed.state, task)]
    assert printed == [f"printed by {name}".replace("\0", "\\x00") for name in NAMES]
    assert all(place.read_text() == CANARY for place in (tmp_path / "x", tmp_path / "above" / "x", box / "x"))
    assert CANARY not in managed.log.read_text() + str(fake.heard)
    assert not managed.events("loop.failed")


def lines(state: Path, task: int) -> list[str]:
    return (state / "output" / f"{task}-1.log").read_text().splitlines()
