"""The notify protocol over a real datagram socket (A-55)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateous_supervisor.systemd.notify import Notifier, one_line


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(5)
        yield listener


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_ready_carries_the_status_in_one_message(manager: socket.socket) -> None:
    Notifier(manager.getsockname()).ready("0/4 running")

    assert heard(manager) == ["READY=1", "STATUS=0/4 running"]


def test_reloading_carries_the_clock_in_the_same_message(manager: socket.socket) -> None:
    now = time.monotonic_ns() // 1000
    Notifier(manager.getsockname()).reloading(monotonic_usec=now)

    assert heard(manager) == ["RELOADING=1", f"MONOTONIC_USEC={now}"]


def test_stop_watchdog_and_more_time_are_said(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())

    notifier.alive()
    notifier.extend(seconds=1.5)
    notifier.stopping("draining")

    assert [heard(manager) for _ in range(3)] == [
        ["WATCHDOG=1"],
        ["EXTEND_TIMEOUT_USEC=1500000"],
        ["STOPPING=1", "STATUS=draining"],
    ]


def test_an_abstract_address_is_reached() -> None:
    name = f"stateous-test-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(5)

        Notifier(f"@{name}").status("here")

        assert heard(listener) == ["STATUS=here"]


def test_a_status_is_one_line_whatever_is_in_it() -> None:
    assert one_line("a\nREADY=1\r\n  b") == "a READY=1 b"
    assert len(one_line("x" * 10_000)) == 300


@pytest.mark.parametrize("address", [None, "/nowhere/at/all", "@nobody-listens-here"])
def test_nobody_listening_is_no_fault(address: str | None) -> None:
    Notifier(address).ready("fine")


def test_a_manager_that_does_not_read_blocks_nothing(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())

    for _ in range(5_000):
        notifier.alive()

    assert heard(manager) == ["WATCHDOG=1"]


def test_the_environment_is_emptied_so_that_no_child_inherits_it() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7", "HOME": "/"}

    notifier = Notifier.take_from(environment, pid=7)

    assert notifier == Notifier("@x", 60.0)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("usec", "pid"),
    [("60000000", "8"), ("0", "7"), ("", ""), ("soon", "7")],
    ids=["other", "zero", "none", "words"],
)
def test_a_watchdog_that_is_not_ours_is_ignored(usec: str, pid: str) -> None:
    notifier = Notifier.take_from({"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}, pid=7)

    assert notifier.watchdog_s is None


def test_a_real_process_takes_it_from_its_environment(manager: socket.socket) -> None:
    code = "from stateous_supervisor.systemd.notify import from_environment as f; import os; f().ready(str(dict(os.environ)))"
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    assert "NOTIFY_SOCKET" not in heard(manager)[1]
