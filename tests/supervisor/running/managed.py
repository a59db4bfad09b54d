"""A real agent under a stand-in for systemd: a datagram socket that hears what it says."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from fakes import FakeControlPlane
from supervisor.folders import PLAIN

from stateous_supervisor.agent.logs import EVENTS
from stateous_supervisor.cli import main as cli

ON_EVERY_LINE = {"at", "level", "event", "supervisor"}
PROGRAM = [sys.executable, "-m", "stateous_supervisor"]


def wait_for(holds: Callable[[], Any], limit_s: float = 40.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)


HOLDING = PLAIN.replace(
    "    return events",
    """    import asyncio, pathlib
    here = pathlib.Path(__file__).parent
    (here / f"begun-{ctx.task}").write_text("")
    while not (here / "go").exists():
        await asyncio.sleep(0.02)
    return events""",
)


def hold(managed: Managed) -> None:
    """Have routines wait until there is a file `go`."""
    (managed.folder / "plain.py").write_text(HOLDING)


def let_go(managed: Managed) -> None:
    (managed.folder / "go").write_text("")


class Asked(NamedTuple):
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Manager:
    """Hears the notify protocol."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.bind(str(self.path))
        self.door.setblocking(False)
        self._heard: list[list[str]] = []

    @property
    def heard(self) -> list[list[str]]:
        """Every message so far, as its lines."""
        while True:
            try:
                self._heard.append(self.door.recv(8192).decode().split("\n"))
            except BlockingIOError:
                return self._heard

    def count(self, line: str) -> int:
        return sum(any(each.startswith(line) for each in message) for message in self.heard)

    @property
    def statuses(self) -> list[str]:
        return [line[7:] for message in self.heard for line in message if line.startswith("STATUS=")]


class Managed:
    """A folder, a control plane and an agent that systemd would have started."""

    def __init__(self, fake: FakeControlPlane, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        self.state = folder.parent / "state"
        self.log = folder.parent / "log"
        self.manager = Manager(folder.parent)

    @contextmanager
    def agent(self, *options: str, watchdog_s: float | None = None) -> Iterator[subprocess.Popen[str]]:
        command = [*PROGRAM, "run", str(self.folder), "--state-dir", str(self.state), *options]
        environment = {**os.environ, "NOTIFY_SOCKET": str(self.manager.path)}
        if watchdog_s is not None:
            environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            ) as agent,
        ):
            try:
                wait_for(lambda: self.manager.count("READY=1") or agent.poll() is not None)
                assert agent.poll() is None, self.log.read_text()
                yield agent
            finally:
                if agent.poll() is None:
                    agent.kill()

    def ask(self, command: str, *options: str) -> Asked:
        """Run a command that asks the agent; in this process, because a hundred children take their time."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run([command, str(self.folder), "--state-dir", str(self.state), *options])
        return Asked(code, out.getvalue(), err.getvalue())

    def status(self) -> Any:
        return json.loads(self.ask("status", "--json").stdout)

    def start(self, count: int = 1, path: str = "plain", prefix: str = "t") -> None:
        for number in range(count):
            self.fake.start(f"{prefix}{number}", path=path)

    @property
    def begun(self) -> int:
        """How many routines of `hold` have begun."""
        return len(list(self.folder.glob("begun-*")))

    @property
    def completed(self) -> int:
        return sum(token.status == "completed" for token in [*self.fake.tokens.values()])

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the agent has logged."""
        texts = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]

    @property
    def undocumented(self) -> list[tuple[str, set[str]]]:
        """The events with keys that are not in their rows of the table."""
        found = [(line["event"], line.keys() - ON_EVERY_LINE) for line in self.lines]
        return [
            (event, keys - {*EVENTS[event].keys}) for event, keys in found if keys - {*EVENTS[event].keys}
        ]
