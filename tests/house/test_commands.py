"""docs/reference/commands.md against the two programs: every command stands there, and ends as it says (A-60)."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from stateous_control.cli import main as control
from stateous_control.cli.exits import Exit as ControlExit
from stateous_supervisor.agent.faults import Exit as SupervisorExit
from stateous_supervisor.cli import main as supervisor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
SDLC = ROOT / "examples" / "sdlc"
BIN = Path(sys.executable).parent
PASSES_ON = {"stateous-control postgres"}  # its options are those of the program that it runs
ANYWHERE = {64, 70, 130, 141}
RUN: dict[str, Callable[[list[str]], int]] = {
    "stateous-supervisor": supervisor.run,
    "stateous-control": control.run,
}


def leaves(command: Any, path: str) -> Iterator[str]:
    """Yield the full name of every command that does something."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path
        return
    for name, each in below.items():
        yield from leaves(each, f"{path} {name}")


COMMANDS = sorted(
    {
        *leaves(typer.main.get_command(supervisor.build()), "stateous-supervisor"),
        *leaves(typer.main.get_command(control.app), "stateous-control"),
    }
)


def documented() -> dict[str, set[int]]:
    """The commands of the page with the exit codes that it says of each."""
    found: dict[str, set[int]] = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        codes = re.search(r"^Exit codes: ([\d, ]+)$", text, flags=re.MULTILINE)
        assert codes, f"{name} does not say its exit codes"
        found[name] = {int(code) for code in codes[1].split(", ")}
    return found


def test_every_command_stands_on_the_page_and_no_other() -> None:
    assert sorted(documented()) == COMMANDS


def test_every_exit_code_has_a_row_with_its_meaning() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)}

    assert rows == {int(code) for code in ControlExit}
    assert rows == {int(code) for code in SupervisorExit} | {supervisor.PIPE_CLOSED}
    assert set().union(*documented().values()) <= rows - ANYWHERE


@pytest.mark.parametrize("words", ["stateous-supervisor", "stateous-control", "stateous-control task"])
def test_the_list_of_commands_cuts_no_sentence(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *group = words.split()

    assert RUN[program]([*group, "--help"]) == 0

    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_in_a_sentence_what_the_command_does(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = command.split()

    assert RUN[program]([*words, "--help"]) == 0

    said = capsys.readouterr().out
    assert re.search(r"^  [A-Z][^\n]*(\n  [^\n]+)*\.( |\n|$)", said, flags=re.MULTILINE), said
    assert "TODO" not in said


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in PASSES_ON])
def test_a_wrong_command_line_is_64(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = command.split()

    assert RUN[program]([*words, "--no-such-option"]) == 64
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("program", RUN)
def test_a_program_without_a_command_shows_its_help_and_is_64(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RUN[program]([]) == 64
    assert re.match(r"Usage: [\s\S]*\nCommands:\n", capsys.readouterr().err)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the command lines below name in braces."""
    base = tmp_path_factory.mktemp("commands")
    (base / "wrong.yaml").write_text("stateous: 2\n")
    (base / "folder").mkdir()
    (base / "folder" / "stateous.yaml").write_text("urll: x\n")
    (base / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    return {
        "sdlc": str(SDLC), "workflow": str(SDLC / "workflow.yaml"), "wrong": str(base / "wrong.yaml"),
        "bad": str(base / "folder"), "new": str(base / "new"), "file": str(base / "file"), "url": url,
        "units": str(base),
    }  # fmt: skip


ENDINGS = [
    ("stateous-supervisor run", "{bad}", 78),
    ("stateous-supervisor run", "{sdlc} --state-dir {file}", 73),
    ("stateous-supervisor check", "{sdlc}", 0),
    ("stateous-supervisor check", "{bad}", 78),
    ("stateous-supervisor config", "{sdlc}", 0),
    ("stateous-supervisor config", "{bad}", 78),
    ("stateous-supervisor init", "{workflow} {new}", 0),
    ("stateous-supervisor init", "{wrong} {new}", 78),
    ("stateous-supervisor init", "{url} {new}", 69),
    ("stateous-supervisor contract", "{sdlc} {workflow} --check", 0),
    ("stateous-supervisor contract", "{units} {workflow} --check", 1),
    ("stateous-supervisor try", "{bad} coding", 78),
    ("stateous-supervisor status", "{sdlc} --state-dir {units}", 69),
    ("stateous-supervisor status", "{new}/absent", 78),
    ("stateous-supervisor task log", "{sdlc} 17 --state-dir {units}", 69),
    ("stateous-supervisor task log", "{new}/absent 17", 78),
    ("stateous-supervisor reload", "{sdlc} --state-dir {units}", 69),
    ("stateous-supervisor drain", "{sdlc} --state-dir {units}", 69),
    ("stateous-supervisor doctor", "{bad} --directory {units}", 1),
    ("stateous-supervisor service", "{sdlc}", 0),
    ("stateous-supervisor service", "{bad}", 78),
    ("stateous-supervisor service", "{sdlc} --install --directory {new}/absent", 73),
    ("stateous-control serve", "{wrong}", 78),
    ("stateous-control compile", "{workflow}", 0),
    ("stateous-control compile", "{wrong}", 78),
    ("stateous-control unit", "", 0),
    ("stateous-control token start", "T --url {url}", 69),
    ("stateous-control token watch", "T --url {url}", 69),
    ("stateous-control token show", "T --url {url}", 69),
    ("stateous-control token list", "--url {url}", 69),
    ("stateous-control token history", "T --url {url}", 69),
    ("stateous-control token fire", "T retry --url {url}", 69),
    ("stateous-control token pause", "T --url {url}", 69),
    ("stateous-control token resume", "T --url {url}", 69),
    ("stateous-control token cancel", "T --url {url}", 69),
    ("stateous-control supervisor list", "--url {url}", 69),
]


@pytest.mark.parametrize(("command", "arguments", "code"), ENDINGS)
def test_a_command_ends_as_the_page_says(
    command: str, arguments: str, code: int, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = command.split()

    ended = RUN[program]([*words, *(word.format_map(places) for word in arguments.split())])

    said = capsys.readouterr()
    assert ended == code, said.out + said.err
    assert code in documented()[command]
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("program", "typed", "offered"),
    [
        ("stateous-supervisor", "stateous-supervisor do", ["doctor"]),
        ("stateous-supervisor", "stateous-supervisor service --pro", ["--profile"]),
        ("stateous-supervisor", "stateous-supervisor service --profile ", ["build", "strict"]),
        ("stateous-control", "stateous-control token st", ["start", "start-many"]),
    ],
)
def test_the_shell_completes_commands_options_and_words(program: str, typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    asking = {
        f"_{program.replace('-', '_').upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }

    done = subprocess.run([BIN / program], env={**os.environ, **asking}, capture_output=True, text=True)

    assert done.stdout.split() == offered
