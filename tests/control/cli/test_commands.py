"""The command line itself: usage, unreachable control planes, files, exit codes, what is imported (A-60, BH-060)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from control.cli.conftest import WORKFLOW, environment, stateous
from webs import serving_with

from stateous_control.cli.databases import data_folder, server_url
from stateous_control.cli.exits import Failure
from stateous_control.cli.main import run

COMMANDS = [
    ["token", "start", "a"], ["token", "show", "a"], ["token", "list"], ["token", "history", "a"], ["token", "fire", "a", "e"],
    ["token", "pause", "a"], ["token", "resume", "a"], ["token", "cancel", "a"], ["token", "watch", "a"],
    ["token", "start", "a", "--wait"], ["supervisor", "list"],
]  # fmt: skip


@pytest.fixture
def nobody() -> str:
    """The URL of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


class NoControlPlane(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    do_POST = do_GET  # noqa: N815


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """The URL of a web server that is no control plane."""
    with serving_with(NoControlPlane) as url:
        yield url


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_control_plane_that_is_away_ends_with_69(
    command: list[str], nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--url", nobody, "--json"]) == 69
    captured = capsys.readouterr()
    assert json.loads(captured.out)["code"] == "unreached"
    assert captured.err.startswith(f"error: the control plane at {nobody} was not reached: ")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_is_no_control_plane_was_not_reached(
    command: list[str], other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--url", other]) == 69
    assert "is no control plane" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["token"], ["token", "nope"], ["token", "show"], ["token", "list", "--limit", "x"], ["serve", "--nope"], ["compile"], [],
     ["token", "show", "a", "--url", "ftp://x"], ["token", "show", "a", "--url", "x"], ["serve", "--listen", "nowhere"],
     ["serve", "--lease", "10", "--heartbeat", "30"], ["serve", "--sweep", "0"],
     ["serve", "--retry-delay", "-1"], ["serve", "--database", "mysql://x"], ["serve", "--data", "/tmp/x", "--database", "postgresql:///x"],
     ["serve", "--database", "postgresql://u:p@h/d"], ["serve", "--database", "postgresql://u@h/d?password=p"],
     ["migrate", "--database", "postgresql://u:p@h/d"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_ends_with_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_a_password_on_the_command_line_is_refused_with_the_ways(capsys: pytest.CaptureFixture[str]) -> None:
    run(["serve", "--database", "postgresql://user:s3cret@host/db"])
    said = capsys.readouterr().err
    assert "s3cret" not in said
    for way in ("STATEOUS_DATABASE_URL", "--database-file", "systemd credential", "PGPASSFILE"):
        assert way in said


def test_help_and_version_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["token", "--help"], ["serve", "--help"], ["--version"]):
        assert run(arguments) == 0
    assert "stateous-control 0." in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from stateous_control.cli.main import run; run(['--help']); "
        "print([m for m in ('httpx', 'asyncpg', 'uvicorn', 'starlette', 'jsonschema_rs', 'structlog') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_a_mistake_of_ours_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stateous_control.cli.client.connected", lambda *_url: 1 / 0)
    assert run(["token", "list", "--json"]) == 70
    captured = capsys.readouterr()
    assert captured.err.startswith("error: stateous-control made a mistake: ZeroDivisionError")
    assert json.loads(captured.out)["code"] == "fault"


def test_compile_says_what_a_workflow_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(WORKFLOW)]) == 0
    assert "press: " in capsys.readouterr().out


def test_compile_writes_a_file_that_compiles_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", str(WORKFLOW), "-o", str(tmp_path / "graph.json")]) == 0
    first = capsys.readouterr().out
    assert run(["compile", str(tmp_path / "graph.json")]) == 0
    assert capsys.readouterr().out == first
    assert [file.name for file in tmp_path.iterdir()] == ["graph.json"]


def test_compile_writes_to_stdout_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(WORKFLOW), "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["workflow"] == "press"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "stateous: 1\nworkflow: bad\nstates:\n  a: {retries: -1}\n  b: {}\nevents: {}\ntransitions: []\nschemas: {}\n"
    )
    return file


def test_compile_tells_all_faults_with_their_lines(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(bad)]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{bad}:4: error: " in captured.err
    assert len(captured.err.splitlines()) > 1


def test_compile_tells_faults_as_json(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(bad), "--json"]) == 78
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert any(fault["line"] == 4 for fault in found["faults"])


@pytest.mark.parametrize("command", ["compile", "serve"])
def test_a_file_that_is_not_there_ends_with_78(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "/no/such/file.yaml"]) == 78
    assert capsys.readouterr().err == "error: /no/such/file.yaml cannot be read: No such file or directory\n"


def test_serve_refuses_a_bad_workflow_before_it_starts_anything(bad: Path, tmp_path: Path) -> None:
    done = stateous("serve", str(bad), "--data", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "retries" in done.stderr
    assert not (tmp_path / "data").exists()


def test_serve_within_a_process_leaves_its_signals_as_they_were(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            assert run(["serve", str(WORKFLOW), "--data", str(tmp_path / "d"), "--listen", listen]) == 75
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_unit_file_is_the_one_in_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unit"]) == 0
    deployed = Path(__file__).parents[3] / "deploy" / "stateous-control.service"
    assert capsys.readouterr().out == deployed.read_text()


@pytest.mark.parametrize(
    ("given", "environment_", "expected"),
    [
        (Path("/x"), {"STATE_DIRECTORY": "/s"}, "/x"),
        (None, {"STATE_DIRECTORY": "/s", "XDG_STATE_HOME": "/x"}, "/s"),
        (None, {"STATE_DIRECTORY": "/s:/t"}, "/s"),
        (None, {"XDG_STATE_HOME": "/x"}, "/x/stateous-control"),
    ],
)
def test_the_data_folder_is_the_first_that_was_named(
    given: Path | None, environment_: dict[str, str], expected: str
) -> None:
    assert data_folder(given, environment_) == Path(expected)


def test_without_any_name_the_data_are_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert data_folder(None, {}) == Path("/home/me/.local/state/stateous-control")


def test_the_database_is_named_by_flag_file_variable_or_credential(tmp_path: Path) -> None:
    (tmp_path / "database-url").write_text("postgresql://u:p@credential/d\n")
    (tmp_path / "url").write_text("postgresql://u:p@file/d\n")
    (tmp_path / "url").chmod(0o600)
    variables = {
        "STATEOUS_DATABASE_URL": "postgresql://u:p@variable/d",
        "CREDENTIALS_DIRECTORY": str(tmp_path),
    }
    assert server_url("postgresql://u@flag/d", None, None, variables) == "postgresql://u@flag/d"
    assert server_url(None, tmp_path / "url", None, variables) == "postgresql://u:p@file/d"
    assert server_url(None, None, None, variables) == "postgresql://u:p@variable/d"
    assert (
        server_url(None, None, None, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
        == "postgresql://u:p@credential/d"
    )
    assert server_url(None, None, Path("/data"), variables) is None
    assert server_url(None, None, None, {}) is None


def test_a_database_file_that_cannot_be_read_ends_with_78(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be read") as failed:
        server_url(None, tmp_path / "none", None, {})
    assert failed.value.exit_code == 78


def test_a_password_that_others_can_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "url").write_text("postgresql://u:p@file/d")
    (tmp_path / "url").chmod(0o644)
    server_url(None, tmp_path / "url", None, {})
    assert "chmod 600" in capsys.readouterr().err
