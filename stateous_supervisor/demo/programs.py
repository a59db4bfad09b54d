"""The programs that the demo starts, and their end: none of them outlives it, whatever happens.

Each runs in a session of its own, so that Ctrl-C on the terminal reaches the demo alone and the demo decides the
order in which they stop.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from stateous_supervisor.agent.faults import Exit, Fault

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ORDERLY_S = 3.0
QUICK_S = 9.0
_TAIL_LINES = 15


def find_program(name: str) -> Path:
    """Return the program that was installed with this one. Raises Fault."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Fault(Exit.CONFIG, f"the program {name} is not installed beside {sys.executable}")
    return Path(found)


def clean_environment(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The environment for programs of the demo: no setting of the user's own leads them elsewhere."""
    ours = ("STATEOUS_", "PG", "PYTEST_")
    systemd = ("STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET")
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(ours) and name not in systemd
    }
    return {**kept, "TMPDIR": str(scratch), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1"}


class Stage:
    """A temporary folder and the programs that work in it. On leaving, the last started is stopped first."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stateous-demo-"))
        scratch = self.folder / "tmp"
        scratch.mkdir()
        self._environment = clean_environment(environment, scratch)
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, program in reversed(self._running):
            _stop(program)
        # As root without user namespaces the data do not lie in their folder, which only says where they are.
        for pointer in self.folder.glob("data/postgres.moved"):
            shutil.rmtree(pointer.read_text("utf-8").strip(), ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, command: list[str]) -> None:
        """Start a program. What it says goes to ``<name>.log`` in the folder."""
        with (self.folder / f"{name}.log").open("wb") as log, _undisturbed():
            program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.folder,
                start_new_session=True,
            )
            self._running.append((name, program))

    def run(self, command: list[str]) -> str:
        """Run a program to its end and return what it printed. Raises Fault if it failed."""
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise Fault(Exit.OURS, f"{Path(command[0]).name} {' '.join(command[1:3])} failed: {said}")
        return done.stdout

    def said(self, name: str) -> str:
        """Return everything that a program has said so far."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def tail(self, name: str) -> str:
        """Return the last lines that a program has said."""
        return "\n".join(self.said(name).splitlines()[-_TAIL_LINES:])

    def check(self) -> None:
        """Raise Fault if a program ended by itself, with the last lines that it said."""
        for name, program in self._running:
            code = program.poll()
            if code is not None:
                raise Fault(Exit.OURS, f"{name} ended by itself (exit code {code}):\n{self.tail(name)}")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put signals off, so that none strikes between the start of a program and our knowing of it."""
    caught: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: caught.append(number)) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


def _stop(program: subprocess.Popen[bytes]) -> None:
    """Ask once for an orderly stop, once for a quick one, then end the whole session that it leads."""
    for patience_s in (ORDERLY_S, QUICK_S):
        if program.poll() is None:
            program.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(patience_s)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
