"""The commands of the server side: serve, migrate, and the unit file for systemd."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from stateous_control.cli import databases
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.forgetting import duration_s, windows
from stateous_control.cli.options import (
    AsJson,
    Data,
    Database,
    DatabaseFile,
    Heartbeat,
    KeepLogs,
    KeepRoutines,
    KeepTokens,
    Lease,
    OnQuestion,
    RetryDelay,
    SecretFile,
    Sweep,
    TaskTtl,
)
from stateous_control.cli.screen import clean, document, say

if TYPE_CHECKING:
    from stateous_control.engine.telling import Deliver
    from stateous_control.graph.document import Graph
    from stateous_control.http.tls import Certificates


def serve(
    workflow: Annotated[
        Path | None, typer.Argument(help="The workflow file (YAML or JSON). Default: the one on record.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Where to listen; port 0 takes a free one.")] = "127.0.0.1:8080",
    data: Data = None,
    database: Database = None,
    database_file: DatabaseFile = None,
    migrate_: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Bring an old schema up to date first.")
    ] = True,
    lease: Lease = 120.0,
    heartbeat: Heartbeat = 30.0,
    sweep: Sweep = 1.0,
    retry_delay: RetryDelay = 1.0,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that a proxy in front uses.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate chain (PEM); SIGHUP reads it again.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    on_question: OnQuestion = None,
    on_question_secret_file: SecretFile = None,
    task_ttl: TaskTtl = None,
    keep_tokens: KeepTokens = None,
    keep_routines: KeepRoutines = None,
    keep_logs: KeepLogs = None,
) -> int:
    """Serve a workflow until SIGTERM or Ctrl-C. Without a database it brings its own PostgreSQL."""
    _check_times(lease, heartbeat, sweep, retry_delay)
    url = databases.server_url(database, database_file, data, os.environ)
    graph = _load(workflow) if workflow is not None else None
    with _ended_by_sigterm():
        from stateous_control import logs
        from stateous_control.cli import running

        certificates = _certificates(tls_cert, tls_key)
        listener, is_loopback = _bound(listen)
        logs.configure()
        settings = running.Settings(
            lease_s=lease,
            heartbeat_s=heartbeat,
            sweep_s=sweep,
            retry_delay_s=retry_delay,
            is_migrating=migrate_,
            names=frozenset(name.lower() for name in allow_host or ()),
            version=metadata.version("stateous-supervisor"),
            is_loopback=is_loopback,
            certificates=certificates,
            on_question=_teller(on_question, on_question_secret_file),
            task_ttl_s=duration_s("--task-ttl", task_ttl),
            windows=windows(keep_tokens, keep_routines, keep_logs),
        )
        with listener, databases.opened(url, databases.data_folder(data, os.environ)) as (used, embedded):
            _leave_no_core()
            is_orderly = running.run(
                lambda: running.serve_until_stopped(used, embedded, graph, listener, settings, _tell)
            )
    return Exit.OK if is_orderly else Exit.FAILED


def migrate(
    data: Data = None, database: Database = None, database_file: DatabaseFile = None, as_json: AsJson = False
) -> None:
    """Bring the database's schema up to date. Safe while control planes of the new version start."""
    from stateous_control.cli import running

    url = databases.server_url(database, database_file, data, os.environ)
    with databases.opened(url, databases.data_folder(data, os.environ)) as (used, _embedded):
        applied = running.run(lambda: running.migrated(used))
    if as_json:
        document({"applied": applied})
        return
    for name in applied:
        say(f"applied {name}")
    if not applied:
        say("the schema is up to date")


def unit() -> None:
    """Print a unit file for systemd; docs/how-to/run-the-control-plane.md says how to use it."""
    say(resources.files("stateous_control.cli").joinpath("stateous-control.service").read_text().rstrip())


def _bound(listen: str) -> tuple[socket.socket, bool]:
    """Take the address; the flag says that only this machine can reach it."""
    from stateous_control.http.server import Address, CannotListen, bind

    try:
        address = Address.parse(listen)
    except CannotListen as error:
        raise Failure(Exit.USAGE, str(error)) from None
    try:
        return bind(address), address.is_loopback
    except CannotListen as error:
        raise Failure(Exit.IN_USE, str(error)) from None


def _teller(target: str | None, secret_file: Path | None) -> Deliver | None:
    from stateous_control.cli.telling import teller

    return None if target is None else teller(target, secret_file)


def _certificates(chain: Path | None, key: Path | None) -> Certificates | None:
    from stateous_control.http.tls import CannotUse, Certificates

    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise Failure(Exit.USAGE, "--tls-cert and --tls-key go together: a certificate and its key")
    try:
        return Certificates(chain, key)
    except CannotUse as error:
        raise Failure(Exit.BAD_FILE, str(error)) from None


def _check_times(lease: float, heartbeat: float, sweep: float, retry_delay: float) -> None:
    if not 0 < heartbeat < lease <= 86_400:
        raise Failure(
            Exit.USAGE,
            f"--lease is {lease:g} and --heartbeat {heartbeat:g}; a lease must be longer than a heartbeat's "
            "interval, and both more than 0 and at most a day",
        )
    if not 0 < sweep <= 3_600:
        raise Failure(Exit.USAGE, f"--sweep is {sweep:g}; it must be more than 0 and at most an hour")
    if not 0 <= retry_delay <= 86_400:
        raise Failure(Exit.USAGE, f"--retry-delay is {retry_delay:g}; it must be 0 to a day")


def _load(file: Path) -> Graph:
    from stateous_control.cli.files import read_bytes
    from stateous_control.graph.compiler import load_file
    from stateous_control.graph.document import WorkflowInvalid

    try:
        return load_file(read_bytes(file), name=file.name)
    except WorkflowInvalid as error:
        raise Failure(
            Exit.BAD_FILE,
            "\n".join(clean(f"{file}: {fault}") for fault in error.faults),
            code="invalid_workflow",
        ) from None


def _tell(url: str) -> None:
    print(f"listening on {url}", flush=True)


def _leave_no_core() -> None:
    """Have this process leave no core file: keys of requests are in its memory (BH-055). PostgreSQL keeps its limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Until the server has handlers of its own, and after it; whoever runs this within a process has theirs back."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(_number: int, _frame: object) -> NoReturn:
    """End a start that is still under way, so that what it started is stopped too."""
    raise SystemExit(Exit.OK)
