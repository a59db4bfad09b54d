"""What a real agent tells the service manager, over a real datagram socket (A-55)."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from fakes import Fault
from supervisor.running.managed import Managed, hold, let_go, wait_for

from stateous_supervisor.agent.faults import Exit

SLOW_SOCKET = """
import socket, time

class Slow(socket.socket):
    def bind(self, address):
        if str(address).endswith("agent.sock"):
            time.sleep(4)
        super().bind(address)

socket.socket = Slow
"""


def test_ready_comes_after_discovery_and_needs_no_control_plane_a_55(managed: Managed) -> None:
    managed.fake.faults.append(Fault("GET /health", times=1000, status=503))

    with managed.agent():
        wait_for(lambda: managed.events("supervisor.started"))
        assert not managed.events("control_plane.reached")

    assert managed.manager.heard[0][0] == "READY=1"
    assert managed.manager.statuses[0].startswith("0/4 running")


def test_who_waited_for_ready_can_ask_the_agent(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading in the agent's own process is faster than a slow disk makes the socket."""
    (managed.state.parent / "sitecustomize.py").write_text(SLOW_SOCKET)
    monkeypatch.setenv("PYTHONPATH", str(managed.state.parent))

    with managed.agent("--inline"):
        assert managed.ask("status").returncode == 0


def test_the_status_line_is_a_dashboard_a_55(managed: Managed) -> None:
    hold(managed)
    managed.start(2)

    with managed.agent(watchdog_s=0.6):
        wait_for(lambda: any("2/4 running, oldest plain" in line for line in managed.manager.statuses))
        let_go(managed)
        wait_for(lambda: managed.completed == 2)

    assert all(line.endswith("0 abandoned") for line in managed.manager.statuses)


def test_the_watchdog_is_answered_while_the_control_plane_is_away_a_55(managed: Managed) -> None:
    managed.fake.faults.append(Fault("*", times=10_000, status=503))

    with managed.agent(watchdog_s=0.3):
        wait_for(lambda: managed.manager.count("WATCHDOG=1") >= 5)


def test_an_agent_that_is_wedged_does_not_answer_the_watchdog_a_55(managed: Managed) -> None:
    with managed.agent(watchdog_s=0.3) as agent:
        wait_for(lambda: managed.manager.count("WATCHDOG=1"))
        agent.send_signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(agent.pid).status() == psutil.STATUS_STOPPED)
        before = managed.manager.count("WATCHDOG=1")
        os.waitid(os.P_PID, agent.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
        with managed.manager.door.dup() as door:
            door.settimeout(0.5)
            try:
                heard = door.recv(100)
            except TimeoutError:
                heard = b""
        agent.send_signal(signal.SIGCONT)

        assert heard == b""
        wait_for(lambda: managed.manager.count("WATCHDOG=1") > before)


def test_a_stop_is_said_and_a_drain_asks_for_more_time_until_it_is_over_a_55(managed: Managed) -> None:
    hold(managed)
    managed.start(1)

    with managed.agent(watchdog_s=0.3) as agent:
        wait_for(lambda: managed.begun == 1)
        agent.send_signal(signal.SIGTERM)
        wait_for(lambda: managed.manager.count("EXTEND_TIMEOUT_USEC=30000000") >= 2)
        assert managed.manager.count("STOPPING=1") == 1
        beats = managed.manager.count("WATCHDOG=1")
        wait_for(lambda: managed.manager.count("WATCHDOG=1") > beats)
        let_go(managed)

        assert agent.wait(10) == Exit.DONE

    assert managed.completed == 1


def test_no_child_inherits_what_belongs_to_the_service_a_26(managed: Managed) -> None:
    with managed.agent(watchdog_s=5.0) as agent:
        children = psutil.Process(agent.pid).children(recursive=True)
        inherited = [set(child.environ()) for child in children]

    assert inherited
    assert not any({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & names for names in inherited)
