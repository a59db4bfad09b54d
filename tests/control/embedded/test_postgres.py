"""The embedded PostgreSQL, with real servers. Short runs share no folder, so they may run in any order."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from stateous_control.embedded import CannotStart, EmbeddedPostgres, housing

QUICK = {"fsync": "off", "shared_buffers": "16MB"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


def ask(url: str, query: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())


def wait_for(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A data folder that has been used once; tests copy it, so that each has its own."""
    folder = Path(tempfile.mkdtemp(prefix="stateous-pg-test-"))
    with EmbeddedPostgres(folder / "data", settings=QUICK) as url:
        ask(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def data(cluster: Path, tmp_path: Path) -> Path:
    shutil.copytree(cluster, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that everybody can reach, as /var/lib is."""
    folder = Path(tempfile.mkdtemp(prefix="stateous-elsewhere-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_what_was_written_is_there_after_a_restart(data: Path) -> None:
    with EmbeddedPostgres(data, settings=QUICK) as url:
        assert ask(url, "SELECT answer FROM kept") == 42


def test_it_writes_durably_unless_told_otherwise(data: Path) -> None:
    with EmbeddedPostgres(data) as url:
        shown = ask(url, "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN "
                    "('fsync', 'full_page_writes', 'synchronous_commit')")  # fmt: skip
        assert shown == "fsync=on full_page_writes=on synchronous_commit=on"


def test_it_listens_on_a_private_unix_socket_only(data: Path) -> None:
    with EmbeddedPostgres(data, settings=QUICK) as url:
        assert ask(url, "SHOW listen_addresses") == ""
        socket = Path(str(ask(url, "SHOW unix_socket_directories")))
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert not socket.exists()


def test_a_data_folder_with_a_very_long_path_works(data: Path) -> None:
    """A Unix socket's path may have 107 bytes; a data folder's may have more."""
    deep = data.parent / ("d" * 200) / "data"
    deep.parent.mkdir()
    data.rename(deep)
    with EmbeddedPostgres(deep, settings=QUICK) as url:
        assert ask(url, "SELECT answer FROM kept") == 42


def test_a_second_server_on_the_same_folder_is_refused_with_a_sentence(data: Path) -> None:
    with EmbeddedPostgres(data, settings=QUICK) as url:
        with pytest.raises(CannotStart, match=f"another control plane uses the data folder {data}"):
            EmbeddedPostgres(data, settings=QUICK).start()
        assert ask(url, "SELECT 1") == 1, "the first one goes on"


def test_data_of_another_major_version_are_refused_with_a_sentence(data: Path) -> None:
    (data / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(
        CannotStart, match="were made by PostgreSQL 15, and the installed wheel brings PostgreSQL 18"
    ):
        EmbeddedPostgres(data, settings=QUICK).start()


def test_a_server_that_cannot_start_says_why_in_one_sentence(data: Path) -> None:
    with pytest.raises(CannotStart, match="did not start") as refused:
        EmbeddedPostgres(data, settings=QUICK | {"no_such_setting": "1"}).start()
    assert "no_such_setting" in str(refused.value)


def test_a_half_made_cluster_is_made_again(tmp_path: Path) -> None:
    """Killed in the middle of the first start."""
    half = tmp_path / "postgres.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(tmp_path, settings=QUICK) as url:
        assert ask(url, "SELECT 1") == 1


def test_it_is_started_from_the_main_thread_only(data: Path) -> None:
    """Linux ties a child to the thread that started it."""
    caught: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedPostgres(data, settings=QUICK).start()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_a_server_that_died_by_itself_is_started_again(data: Path) -> None:
    server = EmbeddedPostgres(data, settings=QUICK)
    with server as url:
        assert server.revive() is False
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert wait_for(server.revive)
        assert wait_for(lambda: _answers(url))


def _answers(url: str) -> bool:
    try:
        return ask(url, "SELECT answer FROM kept") == 42
    except (OSError, asyncpg.PostgresError):
        return False


PARENT = """
import sys, time
from pathlib import Path
from stateous_control.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "16MB"})
url = server.start()
print(server.pid, url.partition("host=")[2], flush=True)
time.sleep(60)
"""


@pytest.fixture
def parent(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that runs a server on `data`, and the server's process id."""
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(data)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told, socket = process.stdout.readline().split()
    pid = int(told)
    yield process, pid
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_for(lambda: not is_alive(pid))
    shutil.rmtree(socket, ignore_errors=True)


def test_no_server_is_left_after_kill_9_of_its_parent(parent: tuple[subprocess.Popen[str], int]) -> None:
    process, pid = parent
    os.kill(process.pid, signal.SIGKILL)
    assert wait_for(lambda: not is_alive(pid))


def test_a_start_right_after_kill_9_waits_for_the_old_server(
    parent: tuple[subprocess.Popen[str], int], data: Path
) -> None:
    process, pid = parent
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with EmbeddedPostgres(data, settings=QUICK) as url:
        assert not is_alive(pid)
        assert ask(url, "SELECT answer FROM kept") == 42


def test_ctrl_c_in_the_terminal_reaches_the_parent_only(parent: tuple[subprocess.Popen[str], int]) -> None:
    """Otherwise the database would be gone while the control plane still finishes its requests."""
    process, pid = parent
    assert os.getsid(pid) != os.getsid(process.pid)


def modes_above(path: Path) -> dict[Path, tuple[int, int]]:
    return {folder: (folder.stat().st_mode, folder.stat().st_uid) for folder in (path, *path.parents)}


@needs_root
def test_another_users_data_are_not_touched(data: Path) -> None:
    os.chown(data / "postgres", 1234, 1234)
    before = sorted(data.iterdir())
    with pytest.raises(CannotStart, match="belong to uid 1234; run this as that user"):
        EmbeddedPostgres(data, settings=QUICK).start()
    assert sorted(data.iterdir()) == before


@needs_root
def test_as_root_no_user_is_made_and_no_mode_of_a_path_is_changed(data: Path) -> None:
    wheel = housing.find_install() / "bin" / "postgres"
    before = Path("/etc/passwd").read_bytes(), modes_above(data), modes_above(wheel)
    with EmbeddedPostgres(data, settings=QUICK):
        pass
    assert (Path("/etc/passwd").read_bytes(), modes_above(data), modes_above(wheel)) == before


@needs_root
def test_as_root_the_files_stay_roots_below_a_path_that_only_root_can_enter(data: Path) -> None:
    data.parent.chmod(0o700)
    with EmbeddedPostgres(data, settings=QUICK):
        pass
    assert {path.stat().st_uid for path in data.rglob("*")} == {0}


@needs_root
def test_where_namespaces_are_forbidden_the_server_runs_as_nobody(data: Path, reachable: Path) -> None:
    before = Path("/etc/passwd").read_bytes(), modes_above(data), modes_above(reachable)
    server = EmbeddedPostgres(data, settings=QUICK, may_use_namespace=False, elsewhere=reachable)
    with server as url:
        assert Path(f"/proc/{server.pid}").stat().st_uid == 65534
        assert ask(url, "SELECT answer FROM kept") == 42
    assert (Path("/etc/passwd").read_bytes(), modes_above(data), modes_above(reachable)) == before
    home = Path((data / "postgres.moved").read_text().strip())
    assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (65534, 0o700)


@needs_root
def test_data_that_lived_elsewhere_come_back_when_namespaces_are_allowed_again(
    data: Path, reachable: Path
) -> None:
    with EmbeddedPostgres(data, settings=QUICK, may_use_namespace=False, elsewhere=reachable) as url:
        ask(url, "CREATE TABLE made_elsewhere AS SELECT 7 AS answer")
    with EmbeddedPostgres(data, settings=QUICK) as url:
        assert ask(url, "SELECT answer FROM made_elsewhere") == 7
    assert {path.stat().st_uid for path in data.rglob("*")} == {0}


@needs_root
def test_where_nothing_is_allowed_one_sentence_names_the_ways_out(data: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(
        CannotStart, match="ordinary user, or give it a PostgreSQL server with STATEOUS_DATABASE_URL"
    ):
        EmbeddedPostgres(data, settings=QUICK, may_use_namespace=False, elsewhere=closed).start()
