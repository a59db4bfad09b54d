"""The publish example, as it is run: each step once, over a crash of the supervisor while the routine sleeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from programs import BIN, AgentProgram, ControlPlaneProgram, Program, wait_for

ROOT = Path(__file__).parents[2]
REQUEST = '{"report_id": 7, "email": "ada@example.org", "cool_off": "2s"}'
URL = "https://reports.example/7.pdf"


def control(url: str, *words: str) -> Any:
    """Ask as people do, and read the answer."""
    with Program([BIN / "stateous-control", *words, "--url", url]) as asked:
        assert asked.ended(within_s=40) == 0, asked.told
        asked._reader.join(10)
        return json.loads(asked.told)


def view(url: str, task: int) -> Any:
    return httpx.get(f"{url}/tasks/{task}", trust_env=False).json()


@pytest.mark.slow
def test_a_report_is_rendered_once_and_announced_once_s2_08_s2_11(database: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "examples" / "publish", tmp_path / "publish"))
    work = tmp_path / "work"
    work.mkdir()
    serve = [ROOT / "examples/approval/workflow.yaml", "--sweep", "0.2", "--database", database]
    with ControlPlaneProgram(*serve) as program:  # type: ignore[arg-type]
        url = program.url

        def agent(name: str) -> AgentProgram:
            made = AgentProgram(folder, url, "--state-dir", tmp_path / name, name=name)
            made.cwd = work
            return made

        with agent("box-1") as first:
            task = control(url, "task", "start", "reports.publish", REQUEST, "--json")["task"]
            wait_for(lambda: view(url, task)["current_state"] == "parked", within_s=30, what="sleep")
            first.kill()
        with agent("box-2"):
            assert control(url, "task", "wait", str(task)) == {"url": URL}
        after = view(url, task)

    assert (after["attempt"], after["failures"], after["result"]) == (2, 0, {"url": URL})
    told = (work / "printed.txt").read_text().splitlines()
    assert told == [f"rendered {URL}", f"told ada@example.org of {URL}"]
