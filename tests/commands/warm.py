"""Real processes for the price of a fork: a child that has both programs loaded and forks one for each command line.

What it forks has descriptors, an environment and signals of its own, and ends through `main` as the installed program
does. Run as a script it is that child; `Warm` is its handle.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

PACKAGES = {"stateous-supervisor": "stateous_supervisor", "stateous-control": "stateous_control"}
ENDS_S = 30
FULL = Path("/dev/full")


@dataclass(frozen=True)
class Ended:
    """How a command line ended. A signal is a negative code."""

    code: int
    out: str
    err: str


class Warm:
    """Runs command lines, one at a time. `running` is the process of the one that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running = 0
        self.has_begun = threading.Event()

    def run(self, words: list[str], *, stdout: str = "file", env: dict[str, str] | None = None) -> Ended:
        """Run a command line to its end.

        Args:
            words: the program and its arguments.
            stdout: `file`; `gone`, a pipe that nobody reads; `closed`; `full`, a disk; or `tty`.
            env: all of the environment there is.
        """
        self.has_begun.clear()
        out, err = self.folder / "out", self.folder / "err"
        asked = {"words": words, "stdout": stdout, "env": env or {}, "out": str(out), "err": str(err)}
        self._tell(asked)
        self.running = self._told()["pid"]
        self.has_begun.set()
        code = self._told()["code"]
        return Ended(code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"))

    def interrupt(self) -> None:
        """Press Ctrl-C for the command that runs."""
        assert self.has_begun.wait(ENDS_S)
        os.kill(self.running, signal.SIGINT)

    def _tell(self, asked: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asked) + "\n")
        self._child.stdin.flush()

    def _told(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        told: dict[str, Any] = json.loads(self._child.stdout.readline())
        return told

    def __enter__(self) -> Self:
        command = [sys.executable, __file__]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.communicate()


# The child.


def serve() -> None:
    link = os.dup(1)
    os.dup2(2, 1)
    for package in PACKAGES.values():
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for line in sys.stdin:
        asked = json.loads(line)
        terminal = os.openpty() if asked["stdout"] == "tty" else None
        child = os.fork()
        if child == 0:
            _be(asked, terminal)
        os.write(link, json.dumps({"pid": child}).encode() + b"\n")
        if terminal is not None:
            _keep(terminal, Path(asked["out"]))
        _, status = os.waitpid(child, 0)
        os.write(link, json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def _keep(terminal: tuple[int, int], out: Path) -> None:
    """Read a terminal until nobody has it open any more."""
    ours, theirs = terminal
    os.close(theirs)
    with out.open("wb") as kept:
        while True:
            try:
                kept.write(os.read(ours, 65_536))
            except OSError:
                break
    os.close(ours)


def _be(asked: dict[str, Any], terminal: tuple[int, int] | None) -> None:
    """Be the command of a command line."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(ENDS_S)
        os.environ.clear()
        os.environ.update(asked["env"])
        _place(asked, terminal)
        program, *_ = sys.argv = asked["words"]
        main = importlib.import_module(f"{PACKAGES[program]}.cli.main").main
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if sys.stdout is not None:
            sys.stdout.flush()  # as the interpreter does
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _place(asked: dict[str, Any], terminal: tuple[int, int] | None) -> None:
    """Put the standard streams where they are wanted."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(asked["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    kind, out = asked["stdout"], os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    if kind == "gone":
        reader, out = os.pipe()
        os.close(reader)
    elif kind == "full":
        out = os.open(FULL, os.O_WRONLY)
    elif terminal is not None:
        out = terminal[1]
        os.close(terminal[0])
    os.dup2(out, 1)
    encoding = asked["env"].get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, buffering=1, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    if kind == "closed":
        os.close(1)
        sys.stdout = None


if __name__ == "__main__":
    serve()
