"""A box on which every command can run, and the warm processes that run them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from supervisor.folders import make_folder

from commands.matrix import Command
from commands.warm import Ended, Warm

WORKFLOW = Path(__file__).parents[2] / "contract/conformance/workflow.json"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with Warm(tmp_path_factory.mktemp("warm")) as ready:
        yield ready


@dataclass
class Box:
    """A good folder and good files, a port where nobody listens, and the environment of a person who works there."""

    warm: Warm
    places: dict[str, str]
    env: dict[str, str]

    def ask(self, url: str) -> None:
        """Let commands ask the control plane at `url`."""
        self.places["url"] = self.env["STATEOUS_URL"] = url

    def run(self, command: Command, *more: str, stdout: str = "file") -> Ended:
        """Run a command with all that it needs, as JSON where it can."""
        words = command.line(self.places, *more, *(["--json"] if command.has_json else []))
        return self.warm.run(words, stdout=stdout, env=self.env)

    def help(self, command: Command, *, stdout: str = "file", **env: str) -> Ended:
        return self.warm.run([*command.words, "--help"], stdout=stdout, env=self.env | env)


@pytest.fixture
def box(warm: Warm, tmp_path: Path) -> Box:
    folder, lines, workflow = make_folder(tmp_path / "folder"), tmp_path / "lines", tmp_path / "workflow.json"
    workflow.write_bytes(WORKFLOW.read_bytes())
    lines.write_text('{"token": "T-1"}\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    made = Box(
        warm,
        {"folder": str(folder), "file": str(workflow), "lines": str(lines)},
        kept | {"HOME": str(tmp_path / "home"), "NO_PROXY": "*"},
    )
    made.ask(url)
    return made
