"""`status`, `reload` and `drain` ask a real agent over its socket (A-45, A-57, A-60)."""

from __future__ import annotations

import io
import signal
import socket
import stat
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import httpx
import pytest
from supervisor.folders import PLAIN, make_folder
from supervisor.running.managed import Managed, hold, let_go, wait_for

from stateous_supervisor.agent.desk import SOCKET, address, is_allowed
from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.cli import asking
from stateous_supervisor.cli import main as cli
from stateous_supervisor.systemd.unit import Service, render

SECOND = PLAIN.replace("states.plain", "states.fragile")


def test_status_shows_what_runs_with_age_lease_and_phase_a_57(managed: Managed) -> None:
    hold(managed)
    managed.start(2)

    with managed.agent() as agent:
        wait_for(lambda: managed.begun == 2)
        wait_for(lambda: all(task["phase"] == "running" for task in managed.status()["tasks"]))
        seen = managed.status()
        shown = managed.ask("status").stdout
        let_go(managed)

    assert seen["pid"] == agent.pid
    assert (seen["slots"], seen["slots_taken"], seen["is_reached"], seen["phase"]) == (4, 2, True, "serving")
    assert {task["token"] for task in seen["tasks"]} == {"t0", "t1"}
    assert all(task["lease_left_s"] > 0 and task["age_s"] >= 0 for task in seen["tasks"])
    assert [host["running"] for host in seen["hosts"]] == [2]
    assert "slots          2 of 4 taken" in shown
    assert "lease left" in shown


def test_status_needs_no_control_plane_a_57(managed: Managed) -> None:
    (managed.folder / "stateous.yaml").write_text("url: http://127.0.0.1:9\n")
    (managed.folder / "bad.py").write_text("def x(:\n")

    with managed.agent():
        wait_for(lambda: managed.status()["away_s"] is not None)

        assert not managed.status()["is_reached"]
        assert [broken["file"] for broken in managed.status()["broken"]] == ["bad.py"]


def test_the_socket_is_only_for_its_user_a_57(managed: Managed) -> None:
    with managed.agent():
        mode = (managed.state / SOCKET).stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(("uid", "expected"), [(0, True), (12_345, False)])
def test_another_user_is_not_answered(uid: int, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        asking = FakePeer(uid)
        monkeypatch.setattr("os.geteuid", lambda: 77)

        assert is_allowed(asking) is expected  # type: ignore[arg-type]


class FakePeer:
    """A connection whose other end is that user's; a real one would need a second user."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def getsockopt(self, *_: int) -> bytes:
        import struct

        return struct.pack("3i", 1, self._uid, 1)


def test_a_long_state_folder_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()

    with socket.socket(socket.AF_UNIX) as door, address(folder) as path:
        door.bind(path)

    assert (folder / SOCKET).is_socket()


def test_a_command_for_an_agent_that_was_killed_says_that_none_runs(managed: Managed) -> None:
    with managed.agent() as agent:
        agent.kill()
        agent.wait(5)

        asked = managed.ask("status")

    assert asked.returncode == Exit.UNREACHABLE
    assert "no agent runs for" in asked.stderr


def test_garbage_at_the_socket_is_refused_and_the_agent_goes_on(managed: Managed) -> None:
    with managed.agent():
        for said in (b"nonsense\n", b'{"ask":"stop"}\n', b"", b"x" * 10_000):
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(5)
                door.connect(str(managed.state / SOCKET))
                door.sendall(said)
                door.shutdown(socket.SHUT_WR)
                answer = door.recv(1000) if said else b'"error"'
            assert b'"error"' in answer

        assert managed.status()["phase"] == "serving"


def test_drain_waits_for_routines_and_reports_the_end_a_60(managed: Managed) -> None:
    hold(managed)
    managed.start(1)

    with managed.agent() as agent:
        wait_for(lambda: managed.begun == 1)
        early = managed.ask("drain", "--timeout", "1s")
        assert agent.poll() is None
        let_go(managed)
        late = managed.ask("drain")

        assert (early.returncode, agent.wait(10)) == (Exit.UNREACHABLE, Exit.DONE)

    assert "has not ended within 1s and goes on draining" in early.stderr
    assert late.returncode in (Exit.DONE, Exit.UNREACHABLE)
    assert managed.completed == 1
    assert managed.events("supervisor.stopping")[0]["reason"] == "drain"


def test_drain_ends_with_the_agents_own_exit_code_a_60(managed: Managed) -> None:
    with managed.agent() as agent:
        drained = managed.ask("drain", "--json")

        assert agent.wait(10) == Exit.DONE

    assert drained.returncode == Exit.DONE
    assert drained.stdout == '{"exit_code":0,"kept":0}\n'


def test_a_reload_gives_new_work_to_a_new_host_while_the_old_one_finishes_a_45(managed: Managed) -> None:
    hold(managed)
    managed.start(1)

    with managed.agent():
        wait_for(lambda: managed.begun == 1)
        (managed.folder / "plain.py").write_text(PLAIN)
        (managed.folder / "fragile.py").write_text(SECOND)
        reloaded = managed.ask("reload")
        managed.start(1, path="fragile", prefix="new")
        wait_for(lambda: managed.completed == 1)
        between = managed.status()
        let_go(managed)
        wait_for(lambda: managed.completed == 2)
        wait_for(lambda: managed.events("host.retired"))

        assert [host["generation"] for host in managed.status()["hosts"]] == [2]

    assert reloaded.returncode == 0, reloaded.stderr
    assert reloaded.stdout == "reloaded: host 2 serves fragile, plain\n"
    assert [(host["is_retired"], host["running"]) for host in between["hosts"]] == [(True, 1), (False, 0)]
    assert [task.attempt for task in managed.fake.tasks.values()] == [1, 1]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("plain.py", "def x(:\n", "plain.py:1"),
        ("again.py", PLAIN, "again.py"),
        ("stateous.yaml", "urll: x\n", "stateous.yaml:1: 'urll' is not a key"),
        ("contract.py", "", "contract.py"),
    ],
    ids=["syntax", "two routines", "key", "contract"],
)
def test_a_bad_reload_leaves_the_old_one_and_says_why_everywhere_a_45(
    managed: Managed, file: str, text: str, said: str
) -> None:
    with managed.agent():
        (managed.folder / file).write_text(text)
        reloaded = managed.ask("reload")
        managed.start(1)
        wait_for(lambda: managed.completed == 1)

        assert said in managed.status()["reload_error"]
        wait_for(lambda: managed.events("reload.refused"))  # its lines are gathered before they are written

    assert reloaded.returncode == Exit.CONFIG
    assert said in reloaded.stderr
    assert said in managed.events("reload.refused")[0]["error"]
    assert any(line.startswith("reload refused: ") and said in line for line in managed.manager.statuses)


def by_the_file(managed: Managed, command: str) -> tuple[int, str]:
    """Run a command that has to find the state folder in the configuration."""
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        return cli.run([command, str(managed.folder)]), err.getvalue()


def test_a_bad_configuration_does_not_hide_the_agent_whose_state_folder_it_names_a_45(
    managed: Managed,
) -> None:
    file = managed.folder / "stateous.yaml"
    good = file.read_text() + f"state_dir: {managed.state}\n"
    file.write_text(good)

    with managed.agent():
        file.write_text(good + "tsks: 3\n")
        reloaded, said = by_the_file(managed, "reload")

        assert by_the_file(managed, "status") == (Exit.DONE, "")

    assert (reloaded, "agent goes on as it was" in said, "'tsks' is not a key" in said) == (78, True, True)


def test_where_no_agent_is_found_a_configuration_that_cannot_be_read_is_named_a_45(managed: Managed) -> None:
    (managed.folder / "stateous.yaml").write_text("state_dir: [\n")

    code, said = by_the_file(managed, "reload")

    assert (code, "no agent runs for" in said) == (Exit.UNREACHABLE, True)
    assert "the configuration is not good: " in said
    assert f"{managed.folder / 'stateous.yaml'}:" in said


def test_sighup_reloads_and_the_manager_hears_both_ends_in_order_a_45(managed: Managed) -> None:
    with managed.agent() as agent:
        agent.send_signal(signal.SIGHUP)
        wait_for(lambda: managed.manager.count("READY=1") == 2)

    heard = managed.manager.heard
    begun = next(number for number, lines in enumerate(heard) if lines[0] == "RELOADING=1")
    assert heard[begun][1].startswith("MONOTONIC_USEC=")
    assert any(lines[0] == "READY=1" for lines in heard[begun + 1 :])


def test_limits_change_at_once_and_what_needs_a_restart_is_named_a_45(managed: Managed) -> None:
    with managed.agent():
        with (managed.folder / "stateous.yaml").open("a") as file:
            file.write("tasks: 9\nname: other\nlog.level: error\n")
        reloaded = managed.ask("reload", "--json")

        assert managed.status()["slots"] == 9
        assert managed.events("supervisor.started")
        assert not managed.events("folder.reloaded")  # it is of the level info

    assert '"needs_restart":["name"]' in reloaded.stdout


def _is_ready_again(managed: Managed, before: int) -> bool:
    return managed.manager.count("READY=1") > before


def reload_under_load(managed: Managed, count: int) -> None:
    managed.start(30, prefix="a")
    with managed.agent("--tasks", "8") as agent:
        for number in range(count):
            managed.start(3, prefix=f"b{number}-")
            before = managed.manager.count("READY=1")
            agent.send_signal(signal.SIGHUP)
            wait_for(partial(_is_ready_again, managed, before))
        wait_for(lambda: managed.completed == 30 + 3 * count, 60.0)
        wait_for(lambda: len(managed.status()["hosts"]) == 1)
        wait_for(lambda: len(managed.events("host.retired")) == count)

    assert {task.attempt for task in managed.fake.tasks.values()} == {1}
    assert len(managed.events("folder.reloaded")) == count
    assert not managed.events("host.blocked")


@pytest.mark.slow
def test_ten_reloads_under_load_lose_nothing_a_45(managed: Managed) -> None:
    reload_under_load(managed, 10)


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_hundred_reloads_under_load_lose_nothing_a_45(managed: Managed) -> None:
    reload_under_load(managed, 100)


def test_a_folder_inside_the_agents_process_cannot_be_loaded_again(managed: Managed) -> None:
    with managed.agent("--inline"):
        assert "start it anew" in managed.ask("reload").stderr


def test_a_state_folder_of_the_configuration_is_found_without_a_flag(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "f")
    (folder / "stateous.yaml").write_text("url: http://h\nstate_dir: ../here\n")

    assert next(place.resolve() for place in asking.places(folder, None)) == tmp_path / "here"


def test_the_state_folder_of_a_unit_is_found_whatever_the_units_name_a_57(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "f")
    service = Service(program="/bin/sh", folder=str(folder.resolve()), name="builders")
    (tmp_path / "builders.service").write_text(render(service, profile="strict", systemd_version=252))
    monkeypatch.setattr(asking, "DIRECTORY", tmp_path)

    assert Path("/var/lib/builders") in asking.places(folder, None)


def test_metrics_are_served_where_the_configuration_says_a_59(managed: Managed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (managed.folder / "stateous.yaml").open("a") as file:
        file.write(f"metrics: {{listen: {port}}}\n")
    managed.start(1)

    with managed.agent():
        wait_for(lambda: managed.completed == 1)
        wait_for(lambda: 'attempts_total{state="plain",outcome="event"} 1' in page(port))


def page(port: int) -> str:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
