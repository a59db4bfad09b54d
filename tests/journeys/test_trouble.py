"""Networks that cut, stall and reset, boxes that stop for longer than a lease, names that move, and a key that stays put.

A-33, A-49, A-50, A-52, BH-011, BH-034, BH-037, BH-055, with leases of 3 s and beats of 1 s.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest
from faults import FaultProxy, Rule, page
from programs import BIN, AgentProgram, ControlPlaneClient, wait_for
from supervisor.peers import Proxy

from journeys import folders

BEAT = "POST /tasks/heartbeat"
OTHERS = r"POST /tasks/(claim|messages)"
DONE = [(1, "begin"), (1, "end"), (1, "begin")]
CANARY = "canary-5f2c9d31"
APART = """
import os, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand, isolation="process")
def hand(ctx):
    print(dict(os.environ))
    wrote(ctx, "begin")
    while not is_open(ctx):
        time.sleep(0.02)
    raise RuntimeError(f"everything: {dict(os.environ)}")
"""
NAMES = """
import pathlib, socket
ask = socket.getaddrinfo
def answer(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    return ask(pathlib.Path(FILE).read_text() if name == "localhost" else host, *rest, **more)
socket.getaddrinfo = answer
"""
FAKETIME = next((p for p in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def processes_of(agent: AgentProgram) -> list[psutil.Process]:
    root = psutil.Process(agent.child.pid)
    return [root, *root.children(recursive=True)]


def told_by_the_system(process: psutil.Process) -> bytes:
    """Return the command line and the environment of a process; nothing of one that has ended."""
    try:
        return b"".join(Path(f"/proc/{process.pid}/{what}").read_bytes() for what in ("cmdline", "environ"))
    except (FileNotFoundError, ProcessLookupError):
        return b""


def running(made: Path, *tokens: str) -> None:
    wait_for(lambda: all(folders.phases(made, t) for t in tokens), within_s=20, what="routine that runs")


def claims_of(plane: ControlPlaneClient, token: str) -> list[int]:
    return [entry["data"]["attempt"] for entry in plane.history(token) if entry["kind"] == "task_claimed"]


def test_through_cuts_stalls_and_resets_nothing_is_lost_or_done_twice_bh_034(
    plane_url: str, plane: ControlPlaneClient, box: Path, tmp_path: Path
) -> None:
    """A-50, BH-035: each trouble hits the beats of running tasks, then the claims and reports that follow."""
    names = [f"rough-{number}" for number in range(4)]
    with FaultProxy(plane_url) as between, AgentProgram(folders.make(box, between.url), between.url):
        for name in names:
            plane.start(name, gate=str(tmp_path / "gate"))
        running(box, *names)
        for trouble in (
            Rule(BEAT, reads=False),
            Rule(BEAT),
            Rule(BEAT, forwards=False, answer=page(503, Retry_After="0")),
        ):
            between.rules.append(trouble)
            wait_for(lambda: not between.rules, within_s=10, what="heartbeat in trouble")
        between.rules += [Rule(OTHERS), Rule(OTHERS, forwards=False, answer=page(429, Retry_After="1"))]
        between.cut()
        (tmp_path / "gate").touch()
        for name in names:
            plane.until(name, status="completed", within_s=40)
        assert between.rules == []

    for name in names:
        assert claims_of(plane, name) == [1, 1]
        assert folders.phases(box, name) == DONE


@pytest.mark.slow
def test_a_stop_longer_than_the_lease_costs_one_attempt_bh_011(
    plane_url: str, plane: ControlPlaneClient, tmp_path: Path
) -> None:
    """SIGSTOP of an agent and its host beyond the lease, beside a healthy agent, then SIGCONT.

    It learns that the task is lost, cancels, reports nothing into the newer attempt, and carries on.
    """
    gate = tmp_path / "gate"
    made = folders.make(tmp_path / "one" / "box", plane_url)
    other = folders.make(tmp_path / "two" / "box", plane_url)
    with AgentProgram(made, plane_url, name="stopped") as stopped:
        plane.start("slept", kind="loop", gate=str(gate))
        running(made, "slept")
        everybody = processes_of(stopped)
        for process in everybody:
            process.suspend()
        try:
            with AgentProgram(other, plane_url, name="healthy"):
                running(other, "slept")
                for process in everybody:
                    process.resume()
                stopped.line("lease.lost")
                wait_for(
                    lambda: (1, "cancelled") in folders.phases(made, "slept"),
                    within_s=10,
                    what="cancelled routine",
                )
                gate.touch()
                plane.until("slept", status="completed")
        finally:
            for process in everybody:
                if process.is_running():
                    process.resume()
        plane.start("later")
        plane.until("later", status="completed")
        assert stopped.child.poll() is None

    assert folders.phases(other, "slept")[:2] == [(2, "begin"), (2, "end")]
    assert plane.kinds("slept").count("event_accepted") == 2 + 1
    assert "loop.failed" not in stopped.told


@pytest.mark.prove
def test_a_name_that_moved_is_found_and_no_lease_is_lost_a_50(
    plane_url: str, plane: ControlPlaneClient, box: Path, tmp_path: Path
) -> None:
    """BH-037: the old address goes on answering, then nobody is there; the agent is not started anew."""
    (tmp_path / "names").mkdir()
    (table := tmp_path / "address").write_text("127.0.0.1")
    (tmp_path / "names" / "sitecustomize.py").write_text(NAMES.replace("FILE", repr(str(table))))
    env = {"PYTHONPATH": str(tmp_path / "names")}
    with FaultProxy(plane_url) as old, FaultProxy(plane_url, address="127.0.0.2", port=old.port) as new:
        url = f"http://localhost:{old.port}"
        with AgentProgram(folders.make(box, url), url, env=env):
            plane.start("moved", gate=str(tmp_path / "gate"))
            running(box, "moved")
            table.write_text("127.0.0.2")
            wait_for(lambda: new.times_heard(BEAT) >= 2, within_s=15, what="beat at the new address")
            beats = old.times_heard(BEAT)
            old.is_down = True
            old.cut()
            wait_for(lambda: new.times_heard(BEAT) >= 4, within_s=15, what="beats at the new address")
            assert old.times_heard(BEAT) == beats
            (tmp_path / "gate").touch()
            plane.until("moved", status="completed", within_s=30)

    assert claims_of(plane, "moved") == [1, 1]


@pytest.mark.prove
def test_an_agent_works_through_a_proxy_and_its_password_is_nowhere_a_49(
    plane_url: str, plane: ControlPlaneClient, box: Path
) -> None:
    """BH-037: `proxy` beats the variables, which would lead nowhere; a network in NO_PROXY is no trouble."""
    hostile = {
        "HTTP_PROXY": "http://127.0.0.1:1",
        "NO_PROXY": "10.0.0.0/8,localhost,.internal,[::1]:8080,*",
        "no_proxy": "10.0.0.0/8,localhost,.internal,[::1]:8080,*",
    }
    with Proxy(password=f"me:{CANARY}") as proxy:
        made = folders.make(box, plane_url)
        with (made / "stateous.yaml").open("a") as config:
            config.write(f"\nproxy: {proxy.url}\n")
        with AgentProgram(made, plane_url, env=hostile) as agent:
            plane.start("proxied")
            plane.until("proxied", status="completed")
        shown = subprocess.run(
            [BIN / "stateous-supervisor", "config", made], capture_output=True, text=True, check=True
        ).stdout

    assert any(heard.path.endswith("/tasks/claim") for heard in proxy.heard)
    assert CANARY not in agent.told + shown
    assert "***@" in shown


def test_the_key_is_in_its_file_and_its_header_and_nowhere_else_bh_055(
    plane_url: str, plane: ControlPlaneClient, box: Path, tmp_path: Path
) -> None:
    """A-52: through a 401, nonsense, and a routine that fails with its whole environment, at the most talkative level."""
    (tmp_path / "keys").mkdir(mode=0o755)
    key = tmp_path / "keys" / "key"
    key.write_text(CANARY + "\n")
    key.chmod(0o644)
    made = folders.make(box, plane_url, hand=APART)
    with (made / "stateous.yaml").open("a") as config:
        config.write(f"\ntoken_file: {key}\nlog: {{level: debug}}\n")
    with FaultProxy(plane_url) as between, AgentProgram(made, between.url) as agent:
        plane.start("watched", gate=str(tmp_path / "gate"))
        running(made, "watched")
        between.rules += [
            Rule(BEAT, forwards=False, answer=page(200)),
            Rule(BEAT, forwards=False, answer=page(401)),
        ]
        agent.line("key.refused", within_s=20)
        everybody = [told for each in processes_of(agent) if (told := told_by_the_system(each))]
        state = box.parent / f"{box.name}-state"
        status = subprocess.run(
            [BIN / "stateous-supervisor", "status", made, "--state-dir", state, "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        seen = list(everybody)
        (tmp_path / "gate").touch()
        wait_for(lambda: "RuntimeError" in agent.told, within_s=20, what="failed routine")
        seen += [file.read_bytes() for file in state.rglob("*") if file.is_file()]
        asked = [name for _, _, name, _ in between.heard]

    assert len(everybody) >= 4  # agent, host, nursery and the routine's own
    assert b"PATH=" in b"".join(seen)
    assert "token.exposed" in agent.told
    history = str(plane.history("watched"))
    for text in (agent.told, status, history, *asked, *(raw.decode("latin-1") for raw in seen)):
        assert CANARY not in text


@pytest.mark.slow
@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_an_agent_whose_wall_clock_is_wrong_works_a_33(
    plane_url: str, plane: ControlPlaneClient, box: Path, tmp_path: Path, offset: str
) -> None:
    """BH-011: under libfaketime, an hour ahead and an hour back; it breaks `time.sleep`, so the routine is async."""
    if FAKETIME is None:
        pytest.skip("NOT TESTED: libfaketime is not on this machine (package faketime)")
    env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    token = f"faketime{'p' if offset[0] == '+' else 'm'}"
    with AgentProgram(folders.make(box, plane_url), plane_url, env=env):
        plane.start(token, kind="loop", gate=str(tmp_path / "gate"))
        running(box, token)
        (tmp_path / "gate").touch()
        plane.until(token, status="completed")

    assert claims_of(plane, token) == [1, 1]
