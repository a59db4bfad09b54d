"""Every command of both programs against everything that can be wrong around it: codes, streams, documents (BH-060).

A command is right when it ends with a code that docs/reference/commands.md has for it, says why in sentences on
stderr, has nothing but data on stdout, and with ``--json`` exactly one document, also when something is wrong.
The whole product is for `make prove`; `make test` takes each command through one fault of each kind.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from house.test_commands import documented

from commands.answers import answering, refusal, said
from commands.conftest import Box
from commands.matrix import Command, commands
from commands.warm import FULL, Ended
from stateous_supervisor.agent.desk import SOCKET

ALL = commands()
CODES = documented()
ANYWHERE = {64, 70, 73, 130, 141}
ANSWERS = {
    "nobody": (b"", 69),
    "a web page": (b"HTTP/1.1 200 x\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>", 69),
    "401": (refusal(401, "unauthorized"), 76),
    "403": (refusal(403, "forbidden"), 76),
    "404": (refusal(404, "not_found"), 76),
    "409": (refusal(409, "conflict"), 76),
    "503": (refusal(503, "unavailable"), 69),
}
# An agent asks on where a server fails, and takes a page for a refusal of whoever is in between.
ANSWERS_OF_A_BOX = {"a web page": 76}
SPOILT = {"an unknown key": "urll: http://127.0.0.1:9\n", "no YAML": "tasks: [\n"}
# A configuration that broke meanwhile does not keep anybody from asking the agent that runs; none does here.
OF_A_RUNNING_AGENT = ("status", "reload", "drain", "task log")
CLICK_COLUMNS_MIN = 50  # what it lays out for; a terminal that is narrower wraps
# They read what lies there and end; there is nothing in them to interrupt.
SHORT = {
    "stateous-supervisor config",
    "stateous-supervisor service",
    "stateous-supervisor task log",
    "stateous-control unit",
    "stateous-control postgres",  # hands over to the program that it runs
}
# Ctrl-C has tests of its own: `run` drains, `demo` cleans up, `doctor` waits for nothing longer than seconds.
ELSEWHERE = {"stateous-supervisor run", "stateous-supervisor demo", "stateous-supervisor doctor"}

prove = pytest.mark.prove
each_command = pytest.mark.parametrize("command", ALL, ids=lambda each: each.name)


def those(condition: Callable[[Command], bool]) -> pytest.MarkDecorator:
    found = [each for each in ALL if condition(each)]
    assert found
    return pytest.mark.parametrize("command", found, ids=lambda each: each.name)


def check(command: Command, ended: Ended, code: int) -> None:
    """Check an end that is no success: code, sentences, and the document."""
    assert ended.code == code, ended
    assert code in CODES[command.name] | ANYWHERE, f"{code} is not on the page"
    assert "Traceback" not in ended.err
    assert ended.err.startswith(("error: ", "warning: ", "Usage: ")) or "error: " in ended.err, ended.err
    if not command.has_json:
        assert ended.out == ""
        return
    document = json.loads(ended.out)
    assert isinstance(document["error"], str)
    assert document["code"] == document["code"].lower()


@those(lambda each: not each.name.endswith("postgres"))  # its options are those of the program that it runs
def test_an_unknown_option_is_64(command: Command, box: Box) -> None:
    ended = box.run(command, "--no-such-option")

    check(command, ended, 64)
    assert "--no-such-option" in ended.err


@pytest.mark.parametrize(
    "answer", [each if each == "404" else pytest.param(each, marks=prove) for each in ANSWERS]
)
@those(lambda each: each.asks)
def test_what_a_control_plane_answers_becomes_a_code(command: Command, answer: str, box: Box) -> None:
    content, code = ANSWERS[answer]
    if command.name.startswith("stateous-supervisor"):
        code = ANSWERS_OF_A_BOX.get(answer, code)
    if not content:
        return check(command, box.run(command), code)
    with answering(content) as url:
        box.ask(url)
        ended = box.run(command)

    return check(command, ended, code)


@prove
@those(lambda each: "--key-file" in each.options)
def test_a_key_file_that_is_not_there_is_78(command: Command, box: Box) -> None:
    ended = box.run(command, "--key-file", "/nowhere/key")

    check(command, ended, 78)


@pytest.mark.parametrize(
    "fault", ["an unknown key", *(pytest.param(each, marks=prove) for each in ("no YAML", "no folder"))]
)
@those(lambda each: each.has_folder)
def test_a_folder_that_is_wrong_is_78(command: Command, fault: str, box: Box, tmp_path: Path) -> None:
    if fault == "no folder":
        box.places["folder"] = str(tmp_path / "nowhere")
    else:
        (Path(box.places["folder"]) / "stateous.yaml").write_text(SPOILT[fault])
    if command.name.endswith("doctor"):
        ended = box.run(command, "--directory", str(tmp_path))
        assert ended.code == 1, ended
        assert any(finding["level"] == "fail" for finding in json.loads(ended.out))
        return
    asks_the_agent = command.name.removeprefix("stateous-supervisor ") in OF_A_RUNNING_AGENT
    check(command, box.run(command), 69 if asks_the_agent and fault in SPOILT else 78)


@prove
@those(lambda each: bool({"FILE", "WORKFLOW"} & {*each.arguments}))
def test_a_file_that_is_not_there_is_78(command: Command, box: Box) -> None:
    box.places |= {"file": "/nowhere/at/all", "lines": "/nowhere/at/all"}
    ended = box.run(command)

    check(command, ended, 78)


@prove
@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("--database=postgresql://127.0.0.1:1/x", 69),
        ("--database=mysql://x", 64),
        ("--database-file=/nowhere", 78),
    ],
)
@those(lambda each: each.has_database)
def test_a_database_that_cannot_be_used_has_its_code(
    command: Command, option: str, code: int, box: Box
) -> None:
    more = ["--listen", "127.0.0.1:0"] if "--listen" in command.options else []

    check(command, box.run(command, option, *more), code)


# Ctrl-C.


def test_every_command_that_waits_is_interrupted_below() -> None:
    waiting = [
        each.name for each in ALL if each.asks or each.has_database or _has_a_host(each) or _has_a_file(each)
    ]
    of_an_agent = [f"stateous-supervisor {name}" for name in ("status", "reload", "drain")]

    assert {each.name for each in ALL} == {*waiting, *of_an_agent, *SHORT, *ELSEWHERE}


def _has_a_host(command: Command) -> bool:
    return command.name in ("stateous-supervisor check", "stateous-supervisor try")


def _has_a_file(command: Command) -> bool:
    return command.name == "stateous-control compile"


@those(lambda each: each.asks)
def test_ctrl_c_while_a_control_plane_does_not_answer_is_130(command: Command, box: Box) -> None:
    with answering(b"", heard=box.warm.interrupt) as url:
        box.ask(url)
        ended = box.run(command)

    check(command, ended, 130)


@those(lambda each: each.has_database)
def test_ctrl_c_while_a_database_does_not_answer_is_130(command: Command, box: Box) -> None:
    more = ["--listen", "127.0.0.1:0"] if "--listen" in command.options else []
    with answering(b"", heard=box.warm.interrupt) as url:
        there = url.replace("http", "postgresql") + "/x"
        ended = box.run(command, "--database", there, *more)

    check(command, ended, 130)


@those(_has_a_host)
def test_ctrl_c_while_a_file_is_imported_is_130(command: Command, box: Box) -> None:
    hangs = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(600)\n"
    (Path(box.places["folder"]) / "hangs.py").write_text(hangs)

    check(command, box.run(command), 130)


@those(_has_a_file)
def test_ctrl_c_while_a_file_is_read_is_130(command: Command, box: Box, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def interrupt() -> None:
        with pipe.open("wb"):  # somebody reads
            box.warm.interrupt()
            warm_has_ended.wait(20)

    warm_has_ended = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    box.places["file"] = str(pipe)
    ended = box.run(command)
    warm_has_ended.set()
    thread.join()

    check(command, ended, 130)


@those(lambda each: each.name.removeprefix("stateous-supervisor ") in ("status", "reload", "drain"))
def test_ctrl_c_while_the_agent_does_not_answer_is_130(command: Command, box: Box, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as desk:
        desk.bind(str(tmp_path / SOCKET))
        desk.listen()

        def interrupt() -> None:
            asking, _ = desk.accept()
            with asking:
                asking.recv(100)
                box.warm.interrupt()
                asking.recv(1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        ended = box.run(command, "--state-dir", str(tmp_path))
        thread.join()

    check(command, ended, 130)


# Waiting.


def named(name: str) -> Command:
    return next(each for each in ALL if each.name == name)


@pytest.mark.parametrize(
    ("state", "code"), [("completed", 0), ("failed", 1), ("expired", 1), ("cancelled", 1)]
)
def test_a_wait_outlasts_an_outage_and_ends_as_the_task_did(box: Box, state: str, code: int) -> None:
    task = {"task": 17, "current_state": "running", "watchdog_stop_reason": None}
    away = refusal(503, "unavailable")
    with answering(said(task), away, away, said(task | {"current_state": state})) as url:
        box.ask(url)
        ended = box.run(named("stateous-control task wait"))

    assert ended.code == code
    assert json.loads(ended.out)["current_state"] == state
    assert ended.err.count("trying again") == 1


def test_watching_questions_outlasts_an_outage(box: Box) -> None:
    """One document a line, the last of which says that it was interrupted."""
    question = {"question": 3, "token": "T-1", "key": "ok", "occurrence": 1, "expires_at": "never"}
    pages = [said({"entries": entries}) for entries in ([], [question])]
    heard: list[None] = []

    def interrupt_at_last() -> None:
        heard.append(None)
        if len(heard) == 4:
            box.warm.interrupt()

    with answering(pages[0], refusal(503, "unavailable"), pages[1], b"", heard=interrupt_at_last) as url:
        box.ask(url)
        ended = box.run(named("stateous-control question watch"))

    assert ended.code == 130
    documents = [json.loads(line) for line in ended.out.splitlines()]
    assert [each.get("question", each.get("code")) for each in documents] == [3, "interrupted"]


# Lost answers.

# What the sentence points to where the answer to a change is lost, and nobody can be asked any more (S1-84).
POINTERS = {
    "task pause": "task log 17", "task resume": "task log 17", "task cancel": "task log 17", "task retry": "task log 17",
    "question answer": "question show 17", "token pause": "token history T-1", "token resume": "token history T-1",
    "token cancel": "token history T-1", "token fire": "token history T-1", "token start": "token show T-1",
    "task start": "task list", "token start-many": "the same command again",
}  # fmt: skip
SEEN = {"generation": 1, "log_count": 0, "status": "pending", "entries": [{"seq": 1}], "task": 17}
READING = {"show", "list", "history", "log", "watch", "wait"}


def _changes(command: Command) -> bool:
    is_client = command.asks and command.name.startswith("stateous-control")
    return is_client and command.words[-1] not in READING


@those(_changes)
def test_a_change_whose_answer_is_lost_is_said_to_be_unknown(command: Command, box: Box) -> None:
    """The server hangs up in the middle of its answer; a command that looks first has seen what it changes."""
    name = command.name.removeprefix("stateous-control ")
    cut = b"HTTP/1.1 200 x\r\nContent-Length: 6\r\n\r\n"
    looks_first = name.split()[1] in ("pause", "resume", "cancel", "retry", "answer")
    with answering(*([said(SEEN)] if looks_first else []), cut) as url:
        box.ask(url)
        ended = box.run(command)

    check(command, ended, 69)
    assert "not known" in ended.err
    assert POINTERS[name] in ended.err


# Where the data go.


@pytest.mark.parametrize(
    ("stdout", "code"),
    [("gone", 141), pytest.param("closed", 0, marks=prove), pytest.param("full", 73, marks=prove)],
)
@each_command
def test_a_stdout_that_takes_nothing_has_its_code(command: Command, stdout: str, code: int, box: Box) -> None:
    """``| head`` is silent; ``>&-`` asks for nothing and gets it; a full disk is said."""
    ended = box.help(command, stdout=stdout)

    said = "error: stdout cannot be written: No space left on device\n" if stdout == "full" else ""
    assert (ended.code, ended.err) == (code, said)


@pytest.mark.parametrize("package", ["stateous_supervisor", "stateous_control"])
def test_a_full_disk_is_told_of_an_unbuffered_stdout_too(package: str) -> None:
    """Images of containers set PYTHONUNBUFFERED; a fault of the disk is no fault of ours."""
    start = f"from {package}.cli.main import main; main()"
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-u", "-c", start, "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert (ended.returncode, ended.stderr) == (
        73,
        "error: stdout cannot be written: No space left on device\n",
    )


@prove
@those(lambda each: each.has_json and each.asks)
def test_a_document_that_nobody_reads_is_141(command: Command, box: Box) -> None:
    ended = box.run(command, stdout="gone")

    assert ended.code == 141
    assert "Traceback" not in ended.err


@prove
@each_command
def test_help_is_for_a_narrow_screen_that_knows_letters_only(command: Command, box: Box) -> None:
    ended = box.help(command, COLUMNS="40", LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.isascii()
    assert "\x1b" not in ended.out
    assert [line for line in ended.out.splitlines() if len(line) > CLICK_COLUMNS_MIN] == []


@prove
@each_command
def test_no_colour_is_no_colour_on_a_terminal_too(command: Command, box: Box) -> None:
    box.env |= {"NO_COLOR": "1", "TERM": "xterm-256color"}
    shown = box.help(command, stdout="tty")
    refused = box.run(command, "--no-such-option", stdout="tty")

    assert shown.code == 0
    assert "Usage:" in shown.out
    assert "\x1b" not in shown.out + shown.err + refused.out + refused.err
