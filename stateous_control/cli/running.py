"""Runs the control plane until it is told to stop: schema, engine, web server, and an embedded PostgreSQL beneath.

The heavy half of `serve`, imported only by it and by `migrate`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import uvloop

from stateous_control.cli.exits import Exit, Failure
from stateous_control.engine.chores import FOR_EVER
from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.retention import Windows
from stateous_control.engine.telling import Deliver
from stateous_control.http.server import serve, url_of
from stateous_control.http.tls import Certificates
from stateous_control.logs import logger
from stateous_control.store import keys, migrate
from stateous_control.store.failures import StartRefused, Unavailable
from stateous_control.store.pool import Pool

if TYPE_CHECKING:
    from stateous_control.embedded import EmbeddedPostgres
    from stateous_control.graph.document import Graph

log = logger()

WATCH_S: Final = 0.5
NO_KEYS: Final = (
    "--listen names an address that other machines could reach, and there are no keys yet: anybody could run and read "
    "everything; make one first with 'stateous-control key create', or listen on 127.0.0.1 or ::1"
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Settings:
    """What `serve` was told. Times in seconds; `names` are host names that a proxy in front may use.

    `is_loopback` says that only this machine reaches the address; without `certificates` there is no TLS.
    """

    lease_s: float
    heartbeat_s: float
    sweep_s: float
    retry_delay_s: float
    is_migrating: bool
    names: frozenset[str]
    version: str
    is_loopback: bool = True
    certificates: Certificates | None = None
    on_question: Deliver | None = None
    task_ttl_s: float | None = None
    windows: Windows = FOR_EVER


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run `work` on a loop of its own. What the database refuses becomes a `Failure`."""

    async def main() -> Result:
        return await work()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except StartRefused as error:
        raise Failure(Exit.REFUSED, str(error)) from None
    except Unavailable as error:
        raise Failure(Exit.UNREACHED, error.sentence) from None


async def migrated(url: str) -> list[str]:
    """Bring the schema up to date and return the names of what was applied."""
    pool = Pool(url, connections_max=1)
    try:
        return await migrate.migrate(pool)
    finally:
        await pool.close()


async def on_schema(url: str, work: Callable[[Pool], Awaitable[Result]]) -> Result:
    """Run `work` on a database that has this program's schema; it is refused on any other."""
    pool = Pool(url, connections_max=1)
    try:
        await migrate.check(pool)
        return await work(pool)
    finally:
        await pool.close()


async def serve_until_stopped(
    url: str,
    embedded: EmbeddedPostgres | None,
    graph: Graph | None,
    listener: socket.socket,
    settings: Settings,
    on_listening: Callable[[str], None],
) -> bool:
    """Serve until a signal comes; return whether the stop was orderly."""
    if settings.is_migrating:
        applied = await migrated(url)
        if applied:
            log.info("schema.migrated", files=applied)
    if not settings.is_loopback and not await on_schema(url, keys.is_any):
        raise Failure(Exit.USAGE, NO_KEYS)
    watcher = asyncio.create_task(_watch(embedded)) if embedded is not None else None
    try:
        async with ControlPlane(
            url,
            graph=graph,
            lease_s=settings.lease_s,
            heartbeat_s=settings.heartbeat_s,
            sweep_s=settings.sweep_s,
            retry_delay_s=settings.retry_delay_s,
            version=settings.version,
            on_question=settings.on_question,
            task_ttl_s=settings.task_ttl_s,
            windows=settings.windows,
        ) as plane:
            _tell_exposure(settings, is_keyed=plane.keyring.is_on)
            here = url_of(listener, is_secure=settings.certificates is not None)

            def listening() -> None:
                log.info(
                    "server.started", url=here, workflow=plane.graph.workflow, checksum=plane.graph.checksum
                )
                on_listening(here)

            is_orderly = await serve(
                plane,
                listener,
                names=settings.names,
                certificates=settings.certificates,
                on_listening=listening,
            )
            log.info("server.stopped", orderly=is_orderly)
            return is_orderly
    finally:
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher


def _tell_exposure(settings: Settings, *, is_keyed: bool) -> None:
    """Say in the log who can reach this control plane, where that is more than people may think."""
    if not is_keyed:
        log.info(
            "keys.none",
            hint="whoever reaches this address on this machine may do everything; "
            "'stateous-control key create' makes the first key",
        )
    elif not settings.is_loopback and settings.certificates is None:
        log.warning("keys.exposed", hint="keys travel without TLS; give --tls-cert and --tls-key")


async def _watch(embedded: EmbeddedPostgres) -> None:
    """Start the embedded PostgreSQL again when it died by itself. Clients get 503 meanwhile and lose nothing."""
    while True:
        await asyncio.sleep(WATCH_S)
        if embedded.revive():
            log.warning("postgres.restarted", log=str(embedded.log))
