"""What is installed, and what it must be able to do where there is no checkout."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from programs import ControlPlaneClient, Program

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / "tests/journeys/workflow.yaml"
ASK_HELP = """
import sys
import typer
from {module}.cli import main as program

def ask(command, *words):
    for name, below in getattr(command, "commands", {{}}).items():
        ask(below, *words, name)
    assert program.run([*words, "--help"]) == 0, words

ask(typer.main.get_command(program.build() if hasattr(program, "build") else program.app))
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None, within_s: float = 120) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=within_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unprivileged() -> list[str]:
    """Return what goes before a command line, so that it runs as a user who can write only what modes allow.

    For root that is another uid in a namespace of its own, where paths below a root-only folder stay in reach; where
    namespaces are forbidden, a root without the right to override modes.
    """
    if os.geteuid() != 0:
        return []
    namespace = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
    tried = subprocess.run([*namespace, "true"], capture_output=True, check=False)
    without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
    return namespace if tried.returncode == 0 else without


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it. Nothing of the checkout is on its path.

    Args:
        home: a folder of its own; `env` in it is the environment.
        variables: more of the environment that its programs get.
        before: what goes before each command line.
    """

    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)

    @property
    def bins(self) -> Path:
        return self.home / "env/bin"

    @property
    def site(self) -> Path:
        return next(self.home.glob("env/lib/python*/site-packages"))

    @property
    def env(self) -> dict[str, str]:
        hidden = ("PYTHON", "STATEOUS", "VIRTUAL", "PIP_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        state = {"XDG_STATE_HOME": str(self.home / "state"), "NO_COLOR": "1", "COLUMNS": "100"}
        return {**kept, **state, **self.variables}

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run an installed program that must succeed, and return what it printed."""
        return run(*self.before, self.bins / program, *arguments, cwd=self.home, env=self.env)

    def began(self, program: str, *arguments: str | Path) -> Program:
        return Program([*self.before, self.bins / program, *arguments], whole_env=self.env, cwd=self.home)


def check_help(installed: Installed, program: str) -> None:
    """Ask every command for its help, in one process: starting one for each would only test the interpreter."""
    told = installed.run("python", "-c", ASK_HELP.format(module=program.replace("-", "_")))

    assert told.count("Usage:") > 10


def check_work(installed: Installed) -> None:
    """Have an empty database migrated and served, a folder made and checked, and a task run to its end."""
    data, folder = installed.home / "data", installed.home / "box"
    applied = installed.run("stateous-control", "migrate", "--data", data)
    assert applied.count("applied ") == len(list((ROOT / "stateous_control/store/migrations").glob("*.sql")))
    with installed.began(
        "stateous-control", "serve", WORKFLOW, "--listen", "127.0.0.1:0", "--data", data
    ) as plane:
        url = plane.line("listening on ", within_s=60)
        installed.run("stateous-supervisor", "init", url, folder)
        installed.run("stateous-supervisor", "check", folder)
        with installed.began("stateous-supervisor", "run", folder), ControlPlaneClient(url) as client:
            client.start("stub")
            client.until("stub", status="failed", within_s=60)
            failed = [entry for entry in client.history("stub") if entry["kind"] == "task_failed"]

    assert len(failed) == 4
    assert all("still to be written" in entry["data"]["error"] for entry in failed)
