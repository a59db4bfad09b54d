"""The commands as a person or a service runs them: exit codes, streams, sentences (A-60, BH-029, BH-060)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import FakeControlPlane, serving
from supervisor.folders import PLAIN, make_folder

from stateous_supervisor.agent.faults import Denied, Exit, Fault, PeerViolation, Refused, Unreachable
from stateous_supervisor.cli import main as cli

PROGRAM = [sys.executable, "-m", "stateous_supervisor"]
GOOD = {"plain": PLAIN}


def call(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | environment,
    )


def wait_for(holds: Callable[[], Any], limit_s: float = 40.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)


class Box:
    """A folder, a control plane and an agent between them."""

    def __init__(self, fake: FakeControlPlane, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        self.log = folder.parent / "log"

    @contextmanager
    def agent(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        command = [
            *PROGRAM,
            "run",
            str(self.folder),
            "--state-dir",
            str(self.folder.parent / "state"),
            *options,
        ]
        with (
            self.log.open("a") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as agent,
        ):
            try:
                yield agent
            finally:
                if agent.poll() is None:
                    agent.kill()

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [
            json.loads(line)
            for line in self.log.read_text().splitlines()
            if line.startswith("{") and line.endswith("}")
        ]
        return [line for line in lines if line["event"] == name]

    def start(self, token: str, path: str = "plain") -> None:
        self.fake.start(token, path=path)

    def is_completed(self, token: str) -> bool:
        return self.fake.tokens[token].status == "completed"


@pytest.fixture
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Box]:
    fake = FakeControlPlane(**getattr(request, "param", {}))
    with serving(fake) as url:
        yield Box(fake, make_folder(tmp_path / "folder", url=url, checksum=fake.graph.checksum))


@pytest.mark.parametrize("options", [(), ("--inline",)], ids=["process", "inline"])
def test_run_serves_until_it_is_asked_to_stop_and_exits_0_a_43(box: Box, options: tuple[str, ...]) -> None:
    with box.agent(*options) as agent:
        wait_for(lambda: box.log.exists() and box.events("supervisor.started"))
        box.start("t")
        wait_for(lambda: box.is_completed("t"))
        agent.send_signal(signal.SIGTERM)

        assert agent.wait(10) == Exit.DONE
        assert agent.stdout is not None
        assert agent.stdout.read() == ""

    assert box.events("supervisor.stopped")[0]["exit_code"] == 0


def test_no_process_outlives_the_agent_a_48(box: Box) -> None:
    with box.agent() as agent:
        wait_for(lambda: box.log.exists() and box.events("host.started"))
        host = psutil.Process(box.events("host.started")[0]["pid"])
        agent.kill()
        agent.wait(5)

        host.wait(5)


def test_kill_9_after_a_routine_returned_loses_no_outcome_a_35(box: Box) -> None:
    from fakes import Fault as Misbehaviour

    box.fake.faults.append(Misbehaviour("POST /tasks/messages", times=1000, status=503))
    box.start("t")
    with box.agent() as agent:
        wait_for(lambda: any(heard.path == "/tasks/messages" for heard in box.fake.heard))
        agent.kill()
    box.fake.faults.clear()

    with box.agent():
        wait_for(lambda: box.is_completed("t"))

    assert [task.attempt for task in box.fake.tasks.values()] == [1]


@pytest.mark.parametrize("box", [{}, {"features": ()}], ids=["release", "baseline"], indirect=True)
def test_kill_9_in_the_middle_of_a_routine_settles_the_task_at_the_next_start_a_46(box: Box) -> None:
    """It is given back, and is a failure where the control plane has no `release`; the lease of 120 s is not waited for."""
    slow = PLAIN.replace(
        "return events",
        "import asyncio; open(__file__ + '.begun', 'w').close(); await asyncio.sleep(600 * (ctx.attempt == 1))\n"
        "    return events",
    )
    (box.folder / "plain.py").write_text(slow)
    box.start("t")
    with box.agent() as agent:
        wait_for(
            (box.folder / "plain.py.begun").exists
        )  # before, the grant may not be on disk, and comes again
        agent.kill()

    def settled() -> list[tuple[str, Any]]:
        told = ((entry["kind"], entry["data"]) for entry in [*box.fake.tokens["t"].history])
        return [(kind, data) for kind, data in told if kind in ("task_released", "task_failed")]

    with box.agent():
        wait_for(settled)
        if box.fake.features:
            wait_for(lambda: box.is_completed("t"))

    ((kind, data),) = settled()
    assert kind == ("task_released" if box.fake.features else "task_failed")
    assert ("agent_died" if box.fake.features else "process died while the routine ran") in str(data)


def test_a_second_signal_ends_it_with_1_within_seconds_whatever_routines_do_a_44(box: Box) -> None:
    hog = PLAIN.replace(
        "return events",
        "\n    open(__file__ + '.begun', 'w').close()\n    while True:\n        pass\n    return events",
    )
    (box.folder / "plain.py").write_text(hog)
    box.start("t")
    with box.agent() as agent:
        wait_for((box.folder / "plain.py.begun").exists)
        agent.send_signal(signal.SIGINT)
        wait_for(lambda: box.events("supervisor.stopping"))
        began = time.monotonic()
        agent.send_signal(signal.SIGINT)

        assert agent.wait(10) == Exit.ABANDONED
        assert time.monotonic() - began < 5.0


def test_a_second_agent_on_one_state_folder_is_refused_with_75_a_42(box: Box) -> None:
    with box.agent():
        wait_for(lambda: box.log.exists() and box.events("supervisor.started"))

        second = call("run", box.folder, "--state-dir", box.folder.parent / "state")

    assert second.returncode == Exit.HELD_BY_ANOTHER
    assert "holds this state folder" in second.stderr


def test_a_host_that_is_killed_is_replaced_and_the_work_goes_on_a_23(box: Box) -> None:
    with box.agent():
        wait_for(lambda: box.log.exists() and box.events("host.started"))
        os.kill(box.events("host.started")[0]["pid"], signal.SIGKILL)
        wait_for(lambda: len(box.events("host.started")) == 2, 5.0)
        box.start("t")
        wait_for(lambda: box.is_completed("t"))

    assert box.events("host.ended")[0]["reason"] == "killed by SIGKILL"


TWO = {"plain": PLAIN, "again": PLAIN}


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (GOOD | {"bad": "def x(:\n"}, "bad.py"),
        (GOOD | {"bad": "import nothing_like_this\n"}, "bad.py"),
        (GOOD | {"bad": "import sys\nsys.exit(0)\n"}, "bad.py"),
        (GOOD | {"bad": "import os\nos._exit(0)\n"}, "bad.py"),
        (TWO, "again.py"),
        (GOOD | {"json": "x = 1\n"}, "json.py"),
        ({"helper": "x = 1\n"}, "routine"),
    ],
    ids=["syntax", "import", "sys.exit", "os._exit", "two routines", "shadows json", "no routine"],
)
def test_check_fails_with_78_and_names_the_file_bh_029(
    tmp_path: Path, files: dict[str, str], named: str
) -> None:
    checked = call("check", make_folder(tmp_path / "f", **files))

    assert checked.returncode == Exit.CONFIG
    assert named in checked.stderr
    assert "Traceback" not in checked.stderr


@pytest.mark.parametrize(
    ("text", "why"), [(None, "no such file or directory"), ("no certificate", "no certificate or crl found")]
)
def test_check_names_a_certificate_file_that_run_could_not_use(
    tmp_path: Path, text: str | None, why: str
) -> None:
    folder = make_folder(tmp_path / "f")
    (folder / "stateous.yaml").write_text("url: http://cp\nca_file: ca.pem\n")
    if text is not None:
        (folder / "ca.pem").write_text(text)

    checked = call("check", folder)

    assert checked.returncode == Exit.CONFIG
    assert checked.stderr.startswith(f"error: {folder}/ca.pem: ")
    assert why in checked.stderr


def test_check_of_a_good_folder_lists_its_routines(tmp_path: Path) -> None:
    checked = call("check", make_folder(tmp_path / "f"))

    assert (checked.returncode, checked.stdout.split()[:3], checked.stderr) == (
        0,
        ["plain", "async", "def"],
        "",
    )


STRICT = """
from stateous_supervisor import routine
@routine("refund", strict=True)
def refund(ctx, number):
    pass
"""


def test_check_names_what_is_strict(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "f", plain=PLAIN, refunds=STRICT)
    plain, strict = call("check", folder).stdout.splitlines()
    document = json.loads(call("check", folder, "--json").stdout)

    assert (plain.endswith(", strict"), strict.endswith("def refund (refunds.py:3), strict")) == (False, True)
    assert [each["strict"] for each in document["routines"]] == [False, True]


@pytest.mark.parametrize(("text", "is_ok"), [("", True), ("def x(:\n", False)])
def test_check_as_json_is_one_document_either_way_bh_060(tmp_path: Path, text: str, is_ok: bool) -> None:
    checked = call("check", make_folder(tmp_path / "f", plain=PLAIN, bad=text), "--json")

    document = json.loads(checked.stdout)
    assert document["ok"] is is_ok
    assert [routine["state"] for routine in document["routines"]] == ["plain"]


def test_a_folder_with_faults_never_starts_and_claims_nothing_bh_029(box: Box) -> None:
    (box.folder / "again.py").write_text(PLAIN)

    ran = call("run", box.folder, "--state-dir", box.folder.parent / "state")

    assert ran.returncode == Exit.CONFIG
    assert "again.py" in ran.stderr
    assert "plain.py" in ran.stderr
    assert not any(heard.path == "/tasks/claim" for heard in box.fake.heard)


def test_strict_refuses_a_broken_file_that_run_would_leave_out_a_05(box: Box) -> None:
    (box.folder / "bad.py").write_text("def x(:\n")

    ran = call("run", box.folder, "--strict", "--state-dir", box.folder.parent / "state")

    assert ran.returncode == Exit.CONFIG
    assert "bad.py" in ran.stderr


def test_config_shows_values_and_where_they_came_from_a_02(tmp_path: Path) -> None:
    shown = call("config", make_folder(tmp_path / "f"), "--json", STATEOUS_TASKS="7")

    rows = json.loads(shown.stdout)
    assert rows["tasks"] == {"value": "7", "origin": "environment STATEOUS_TASKS"}
    assert rows["url"] == {"value": "http://127.0.0.1:9", "origin": "stateous.yaml:1"}


def run_in_process(*arguments: str | Path) -> int:
    return cli.run([str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], Exit.DONE),
        (["--version"], Exit.DONE),
        ([], Exit.USAGE),
        (["rnu"], Exit.USAGE),
        (["run"], Exit.USAGE),
        (["run", "--no-such-option", "x"], Exit.USAGE),
        (["config", "/nowhere/at/all"], Exit.CONFIG),
        (["check", "/nowhere/at/all"], Exit.CONFIG),
        (["run", "/nowhere/at/all"], Exit.CONFIG),
    ],
)
def test_each_kind_of_end_has_its_code_bh_060(
    arguments: list[str], code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_in_process(*arguments) == code

    shown = capsys.readouterr()
    assert bool(shown.out) == (code == Exit.DONE)
    assert bool(shown.err) == (code != Exit.DONE)
    assert "Traceback" not in shown.err


def test_a_bad_flag_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_in_process("run", make_folder(tmp_path / "f"), "--tasks", "many") == Exit.USAGE
    assert "'--tasks' is 'many'; it must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Fault(Exit.NO_STATE_FOLDER, "x"), Exit.NO_STATE_FOLDER),
        (Refused(409, "attempt_over", "x"), Exit.REFUSED),
        (PeerViolation("x"), Exit.REFUSED),
        (Denied("x"), Exit.REFUSED),
        (Unreachable("x"), Exit.UNREACHABLE),
        (RuntimeError("x"), Exit.OURS),
    ],
)
def test_what_a_command_raises_becomes_a_code_a_60(error: Exception, code: Exit) -> None:
    assert cli.judge(error)[0] == code


def test_a_reader_that_has_seen_enough_is_no_error_bh_060(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "f")
    command = f"{sys.executable} -m stateous_supervisor config {folder} | head -1"

    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=False)

    assert shown.stdout.startswith("url: ")
    assert shown.stderr == ""


def test_the_agent_process_imports_no_pydantic_a_62(box: Box) -> None:
    code = (
        "import sys; import stateous_supervisor.cli.run, stateous_supervisor.cli.daemon;"
        "print([m for m in ('pydantic', 'stateous_supervisor.sdk.context', 'stateous_supervisor.host.runner') if m in sys.modules])"
    )

    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert shown.stdout.strip() == "[]"
