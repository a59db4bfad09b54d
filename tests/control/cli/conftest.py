"""A control plane as users run it: the installed command, on a real database, once for the file that asks for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from control.databases import fresh

COMMAND = str(Path(sys.executable).with_name("stateous-control"))
WORKFLOW = Path(__file__).parents[3] / "contract" / "conformance" / "workflow.json"
_numbers = count(1)


def environment(**more: str) -> dict[str, str]:
    """An environment in which nothing of the outside matters."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | more


def stateous(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command to its end."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(**more),
        check=False,
    )


@contextlib.contextmanager
def serving(*arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `serve`; yield the process and its URL. Its log is in the process's stderr."""
    with launched("serve", *arguments, "--listen", "127.0.0.1:0", **more) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), process.stderr.read() if process.stderr else ""
        yield process, line.removeprefix("listening on ").strip()
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@contextlib.contextmanager
def launched(*arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command and make sure that it is gone afterwards."""
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Ask(Protocol):
    """Runs a client command: exit code, stdout, stderr."""

    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


@dataclass
class Live:
    """A running control plane, and what a supervisor would do to it."""

    url: str
    http: httpx.Client

    def name(self) -> str:
        return f"T-{next(_numbers)}"

    def start(self, path: str = "plain") -> str:
        name = self.name()
        assert self.http.post("/tokens", json={"token": name, "context": {"path": path}}).status_code == 201
        return name

    def claim(self, *states: str, supervisor: str = "sup") -> dict[str, Any]:
        response = self.http.post("/tasks/claim", json={"supervisor": supervisor, "states": states})
        assert response.status_code == 200
        grant: dict[str, Any] = response.json()
        return grant

    def claim_of(self, token: str, state: str) -> int:
        """Claim until the task of `token` is ours; those of other tests' tokens are nobody's."""
        while (grant := self.claim(state))["token"] != token:
            pass
        return int(grant["task"])

    def report(self, task: int, **outcome: object) -> None:
        response = self.http.post(f"/tasks/{task}/report", json={"supervisor": "sup"} | outcome)
        assert response.status_code == 200, response.text


@pytest.fixture(scope="module")
def live(postgres: str, migrated_template: str) -> Iterator[Live]:
    with (
        fresh(postgres, migrated_template) as url,
        serving(str(WORKFLOW), "--database", url) as (_process, here),
        httpx.Client(base_url=here, timeout=10) as http,
    ):
        yield Live(here, http)


@pytest.fixture
def ask(live: Live, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run a client command in this process: exit code, stdout, stderr."""
    from stateous_control.cli.main import run

    monkeypatch.setenv("STATEOUS_URL", live.url)

    def go(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return go


def lines(text: str) -> Sequence[str]:
    return text.strip().splitlines()
