"""The approval example, with a control plane and a supervisor as they are run: it waits, reminds, and is answered."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateous_supervisor.demo.programs import Stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "approval"
CONTROL = str(Path(sys.executable).with_name("stateous-control"))
AGENT = str(Path(sys.executable).with_name("stateous-supervisor"))
WAIT_S = 90.0


def wait_for(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def kinds(history: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in history if entry["kind"] == kind]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_release_waits_reminds_of_itself_and_goes_out_when_a_person_says_so(database: str) -> None:
    with Stage(os.environ) as stage:
        folder = Path(shutil.copytree(EXAMPLE, stage.folder / "approval"))
        serve = [
            CONTROL,
            "serve",
            str(folder / "workflow.yaml"),
            "--listen",
            "127.0.0.1:0",
            "--database",
            database,
        ]
        stage.start("control-plane", serve)
        url = wait_for(lambda: re.search(r"listening on (\S+)", stage.said("control-plane")), "it listens")[1]
        (folder / "stateous.yaml").write_text(f"url: {url}\nstate_dir: {stage.folder / 'state'}\n")
        stage.start("supervisor", [AGENT, "run", str(folder)])

        def token(*arguments: str) -> Any:
            return json.loads(stage.run([CONTROL, "token", *arguments, "--url", url, "--json"]))

        def history() -> Any:
            return token("history", "r-1")

        token("start", "r-1", '{"version": "1.2.0", "remind_after": "1s"}')
        wait_for(lambda: len(kinds(history(), "entered")) >= 2, "the timer leads back to asking")
        wait_for(lambda: len(kinds(history(), "task_waiting")) >= 2, "the routine asks again and waits")
        token("fire", "r-1", "approved", '{"by": "Ada"}')
        wait_for(lambda: kinds(history(), "completed"), "the release is published")

        notes = [data["text"] for data in kinds(history(), "note")]
        assert notes[0] == "may 1.2.0 go out? fire approved or rejected"
        assert notes[1].endswith("(reminder 1)")
        assert notes[-1] == "publishing 1.2.0, approved by Ada"
        assert kinds(history(), "task_failed") == []
