"""The tutorial and the README's "By hand", done as they are written: files written, commands typed, output compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from programs import Program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-task.md"
BIN = Path(sys.executable).parent
INSTALLING = ("python3 -m venv", ". venv/", "pip install")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each block of the page."""
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield found[1], found[2]


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that it is to print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield command, [plain(line) for line in lines]


def plain(line: str) -> str:
    """Take out of a line what is another one each time: the time, and the box's name."""
    return re.sub(
        r"claimed by \S+,", "claimed by BOX,", re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "TIME", line)
    )


class Reader:
    """Somebody who does what the page says, in a folder and with a port of their own."""

    def __init__(self, folder: Path, open_programs: ExitStack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.folder = folder
        self.jobs: list[Program] = []
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "STATEOUS_URL": f"http://{self.address}",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "NO_COLOR": "1",
        }
        self._open_programs = open_programs

    def write(self, text: str) -> None:
        """Write a block to the file that its first line names."""
        name = text.partition("\n")[0].removeprefix("# ")
        (self.folder / name).write_text(text)

    def do(self, command: str, expected: list[str]) -> None:
        command = command.replace("127.0.0.1:8080", self.address)
        expected = [line.replace("127.0.0.1:8080", self.address) for line in expected]
        if command.startswith(INSTALLING):
            return
        if command.startswith("kill %"):
            self._end([self.jobs.pop(int(command[-1]) - 1)])
        elif command == "kill $(jobs -p)":
            self._end(self.jobs)
        elif command.partition("  #")[0].rstrip().endswith(" &"):
            self._begin(command.partition(" &")[0], expected)
        else:
            done = subprocess.run(
                shlex.split(command, comments=True),
                cwd=self.folder,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=40,
            )
            said = [plain(line) for line in done.stdout.splitlines()]
            assert done.returncode == 0, done.stdout + done.stderr
            assert [line for line in expected if line not in said] == [], done.stdout

    def _end(self, jobs: list[Program]) -> None:
        for job in jobs:
            job.signal(signal.SIGTERM)
        assert [job.ended() for job in jobs] == [0] * len(jobs)

    def _begin(self, command: str, expected: list[str]) -> None:
        if " serve " in command:
            command += f" --listen {self.address}"
        job = Program(list(shlex.split(command)), env=self.env, cwd=self.folder)
        self.jobs.append(self._open_programs.enter_context(job))
        for line in expected or ["listening on" if " serve " in command else "supervisor.started"]:
            job.line(line, within_s=40)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    with ExitStack() as open_programs:
        reader = Reader(tmp_path, open_programs)
        typed = 0
        for language, text in blocks(PAGE.read_text("utf-8")):
            if language in ("yaml", "python"):
                reader.write(text)
                continue
            for command, expected in steps(text):
                reader.do(command, expected)
                typed += 1

    assert typed == 14


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_first_page_by_hand_works_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    block = (ROOT / "README.md").read_text("utf-8").partition("## By hand")[2].split("```")[1]
    with ExitStack() as open_programs:
        reader = Reader(tmp_path, open_programs)
        typed = 0
        for command, expected in steps(block):
            reader.do(command, expected)
            typed += 1

    assert typed == 5
