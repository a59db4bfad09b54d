"""`serve` as a process: what it starts, what it refuses, what it survives."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from control.cli.conftest import COMMAND, WORKFLOW, environment, launched, serving, stateous
from control.databases import run_sql


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which a workflow is on record and a token was started."""
    data = tmp_path_factory.mktemp("used") / "data"
    with serving(str(WORKFLOW), "--data", str(data)) as (_process, url):
        assert (
            httpx.post(f"{url}/tokens", json={"token": "kept", "context": {"path": "plain"}}).status_code
            == 201
        )
    return data


@pytest.fixture
def data(used: Path, tmp_path: Path) -> Path:
    shutil.copytree(used, tmp_path / "data")
    return tmp_path / "data"


def postmaster(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().split()[0])


def until(condition: Callable[[], object], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/tokens/kept").status_code == 200
    except httpx.TransportError:
        return False


def test_without_a_workflow_the_one_on_record_is_served(data: Path) -> None:
    with serving("--data", str(data)) as (_process, url):
        assert httpx.get(f"{url}/health").json()["workflow"] == "press"
        assert httpx.get(f"{url}/tokens/kept").json()["state"] == "plain"


def test_a_signal_ends_serve_with_0_and_leaves_no_server(data: Path) -> None:
    with serving("--data", str(data)) as (process, _url):
        server = postmaster(data)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert not Path(f"/proc/{server}").exists()


def test_the_stop_answers_a_waiting_claim_and_closes_its_connection(data: Path) -> None:
    """The stop of the whole program, with its database: 204 and Connection: close, long before the wait is over."""
    body = {
        "supervisor": "s",
        "instance": "i",
        "states": ["brittle"],
        "request": "r",
        "wait": 20,
        "max": 1,
    }
    with serving("--data", str(data)) as (process, url), ThreadPoolExecutor(1) as thread:
        asked = thread.submit(httpx.post, f"{url}/tasks/claim", json=body, timeout=60)
        until(lambda: "stateous_control_claims_total 1" in httpx.get(f"{url}/metrics").text)
        process.send_signal(signal.SIGTERM)
        answer = asked.result(20)
        assert (answer.status_code, answer.headers["connection"]) == (204, "close")
        assert process.wait(20) == 0


def test_kill_9_of_serve_loses_nothing_and_leaves_no_server(data: Path) -> None:
    with serving("--data", str(data)) as (process, url):
        httpx.post(f"{url}/tokens", json={"token": "late", "context": {"path": "plain"}})
        process.kill()
        process.wait()
        with serving("--data", str(data)) as (_again, here):
            assert httpx.get(f"{here}/tokens/late").status_code == 200


def test_kill_9_of_postgresql_is_mended(data: Path) -> None:
    with serving("--data", str(data)) as (_process, url):
        os.kill(postmaster(data), signal.SIGKILL)
        until(lambda: httpx.get(f"{url}/tokens/kept").status_code == 503 or answers(url))
        assert httpx.get(f"{url}/health").status_code == 200
        until(lambda: answers(url))
        until(lambda: httpx.get(f"{url}/ready").status_code == 200)


def test_a_second_serve_on_the_same_data_ends_with_75(data: Path) -> None:
    with serving("--data", str(data)):
        done = stateous("serve", "--data", str(data), "--listen", "127.0.0.1:0")
        assert done.returncode == 75
        assert "another control plane uses the data folder" in done.stderr


def test_a_port_in_use_ends_with_75_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = stateous(
            "serve", str(WORKFLOW), "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"
        )
    assert done.returncode == 75
    assert not (tmp_path / "data").exists()


def test_a_data_folder_that_cannot_be_made_ends_with_73(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = stateous(
        "serve", str(WORKFLOW), "--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0"
    )
    assert done.returncode == 73
    assert "cannot be used" in done.stderr


def test_without_any_workflow_serve_is_refused(database: str) -> None:
    done = stateous("serve", "--database", database, "--listen", "127.0.0.1:0")
    assert done.returncode == 76
    assert "workflow" in done.stderr


def test_no_migrate_refuses_an_old_schema(empty_database: str) -> None:
    done = stateous(
        "serve", str(WORKFLOW), "--no-migrate", "--database", empty_database, "--listen", "127.0.0.1:0"
    )
    assert done.returncode == 76
    assert "run 'stateous-control migrate' first" in done.stderr


def test_a_user_without_rights_to_the_schema_is_told_and_may_serve_a_whole_one(
    empty_database: str, database: str
) -> None:
    """BH-050: one sentence and 76, from `migrate` and from `serve`; reading and writing rows is enough for the rest."""
    run_sql(database, "CREATE ROLE clerk LOGIN", "GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk")
    run_sql(database, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO clerk")
    try:
        for command in (["migrate"], ["serve", str(WORKFLOW), "--listen", "127.0.0.1:0"]):
            ended = stateous(*command, "--database", f"{empty_database}&user=clerk")
            assert ended.returncode == 76
            assert "the database's user may not bring the schema up to date" in ended.stderr
            assert "Traceback" not in ended.stderr
        with serving(str(WORKFLOW), "--no-migrate", "--database", f"{database}&user=clerk") as (_, url):
            body = {"token": "T", "context": {"path": "plain"}}
            assert httpx.post(f"{url}/tokens", json=body, trust_env=False).status_code == 201
    finally:
        run_sql(database, "DROP OWNED BY clerk", "DROP ROLE clerk")


def test_migrate_says_what_it_applied_and_that_once(empty_database: str) -> None:
    assert stateous("migrate", "--database", empty_database).stdout.startswith("applied 0001_")
    assert stateous("migrate", STATEOUS_DATABASE_URL=empty_database).stdout == "the schema is up to date\n"


def test_a_database_that_is_away_ends_with_69_and_tells_no_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql://me:s3cret@127.0.0.1:{port}/nothing"
    done = stateous("serve", str(WORKFLOW), "--listen", "127.0.0.1:0", STATEOUS_DATABASE_URL=url)
    assert done.returncode == 69
    assert "s3cret" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_signal_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with launched(
        "serve", str(WORKFLOW), "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"
    ) as process:
        until((tmp_path / "data" / "postgres.lock").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == ""


def test_a_backup_of_a_running_control_plane_can_be_restored(data: Path, tmp_path: Path) -> None:
    dump = str(tmp_path / "backup.dump")
    with serving("--data", str(data)):
        assert stateous("postgres", "--data", str(data), "pg_dump", "-Fc", "-f", dump).returncode == 0
    fresh = tmp_path / "fresh"
    assert stateous("migrate", "--data", str(fresh)).returncode == 0
    restored = stateous(
        "postgres", "--data", str(fresh), "pg_restore", "--clean", "--if-exists", "-d", "stateous", dump
    )
    assert (restored.returncode, restored.stderr) == (0, "")
    with serving("--data", str(fresh)) as (_process, url):
        assert httpx.get(f"{url}/tokens/kept").status_code == 200


def test_the_log_is_json_where_nobody_looks(data: Path) -> None:
    with serving("--data", str(data)) as (process, _url):
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        assert process.stderr is not None
        events = [line for line in process.stderr.read().splitlines() if line]
    assert all(line.startswith("{") for line in events)
    assert any('"event": "server.started"' in line for line in events)


def test_it_leaves_no_core_file(data: Path) -> None:
    """BH-055: keys pass through its memory."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        with serving("--data", str(data)) as (process, _url):
            assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_CORE) == (0, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def test_ctrl_c_in_a_terminal_stops_the_server_in_order(data: Path) -> None:
    """The signal goes to the whole process group; PostgreSQL must not be gone before the requests are."""
    process = subprocess.Popen(
        [COMMAND, "serve", "--data", str(data), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "error" not in err.replace("uvicorn.error", "")


def test_retention_forgets_beside_a_control_plane_that_runs(data: Path) -> None:
    """S2-43, S2-45: from the command line, and nothing that lives."""
    with serving("--data", str(data)) as (_process, url):
        httpx.post(f"{url}/tokens", json={"token": "over", "context": {"path": "plain"}})
        httpx.post(f"{url}/tokens/over/cancel")
        until(lambda: "1 tokens" in retained(data), within_s=20)
        assert httpx.get(f"{url}/tokens/over").status_code == 404
        assert answers(url)
    nothing = stateous("retention", "--data", str(data))
    assert (nothing.returncode, "--keep-tokens" in nothing.stderr) == (64, True)
    assert stateous("retention", "--data", str(data), "--keep-logs", "soon").returncode == 64


def retained(data: Path) -> str:
    done = stateous("retention", "--data", str(data), "--keep-tokens", "1s", "--keep-logs", "1s")
    assert done.returncode == 0, done.stderr
    return done.stdout
