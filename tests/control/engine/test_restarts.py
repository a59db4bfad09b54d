"""A PostgreSQL that ends at once, in the middle of everything, and comes back; and one behind PgBouncer.

The server is one of its own for this file, that commits before it answers: what it said is done is done.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
from conftest import IN_A_HURRY, migrate
from control.engine.planes import ask, plane, queue, sql
from msgspec import Raw
from stateous_contract.messages import HeartbeatRequest, Report

from stateous_control.embedded import EmbeddedPostgres
from stateous_control.engine import claims, sweep
from stateous_control.engine.operations import ControlPlane
from stateous_control.store.books import OpenBook
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Session
from stateous_control.store.writing import write_back

AWAY_S = 2.0
ENDED = 250
LOADED = 600
FACES = "\U0001f642" * 2_500
BIG, HUGE = (Raw(('{"text":"' + FACES * times + '"}').encode()) for times in (1, 100))


class Server:
    """A PostgreSQL that a test may end at any moment."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._postgres = EmbeddedPostgres(
            folder,
            settings=IN_A_HURRY
            | {"synchronous_commit": "on", "listen_addresses": "127.0.0.1", "port": str(self.port)},
        )

    def start(self) -> str:
        self.url = self._postgres.start().replace("?", f"?port={self.port}&", 1)
        return self.url

    def stop(self) -> None:
        self._postgres.stop()

    def end(self) -> None:
        """What `pg_ctl stop -m immediate` does."""
        assert self._postgres.pid is not None
        os.kill(self._postgres.pid, signal.SIGQUIT)

    async def gone(self) -> None:
        """Wait until it has ended."""
        while self._postgres.pid is not None:
            await asyncio.sleep(0.01)

    async def come_back(self, *, after_s: float = AWAY_S) -> None:
        """Start again once the old one has ended, `after_s` later."""
        await self.gone()
        await asyncio.sleep(after_s)
        assert self._postgres.revive()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "pg")
    migrate(running.start())
    try:
        yield running
    finally:
        running.stop()


async def rows_of(url: str, statement: str) -> list[asyncpg.Record]:
    """Ask until the server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await sql(url, statement)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(0.05)


async def test_what_a_sweep_was_at_when_the_database_ended_is_done_by_a_later_pass(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DX-12: 250 ended leases, the server stopped at once in the middle of their pass, started two seconds later."""
    back: list[asyncio.Task[None]] = []

    async def ending(session: Session, opened: OpenBook) -> None:
        await write_back(session, opened)
        if not back:
            server.end()
            await server.gone()  # or the commit may overtake the end
            back.append(asyncio.create_task(server.come_back()))

    async with plane(server.url, heartbeat_s=0.2) as one:
        await queue(server.url, ENDED)
        assert len(await one.claim(ask("coding", max=ENDED))) == ENDED
        await sql(server.url, "UPDATE leases SET until = now() - interval '1 second'")
        monkeypatch.setattr(sweep, "write_back", ending)
        with pytest.raises(Unavailable):
            await one._sweep.sweep()
        await back[0]
        (left,) = await rows_of(server.url, "SELECT count(*) FROM leases")
        assert left[0] == ENDED
        async with asyncio.timeout(60):
            while one._sweep.leases_ended < ENDED:
                try:
                    await one._sweep.sweep()
                except Unavailable:
                    await asyncio.sleep(0.05)
        counts = await sql(
            server.url, "SELECT attempt, failures, current_state, count(*) FROM tasks GROUP BY 1, 2, 3"
        )
        told = await sql(server.url, "SELECT count(*) FROM history WHERE kind = 'task_failed'")
    assert [tuple(row) for row in counts] == [(1, 1, "pending", ENDED)]
    assert tuple(told[0]) == (ENDED,)


class Load:
    """Workers that claim and report without a pause; what a client was told is written down."""

    def __init__(self, one: ControlPlane) -> None:
        self._one = one
        self.accepted: set[int] = set()
        self.told: list[tuple[int, float]] = []

    async def work(self, number: int) -> None:
        held: list[int] = []
        request = ask("coding", max=5, instance=f"i{number}")
        while len(self.accepted) < LOADED:
            try:
                if held:
                    said = Report(
                        kind="event", event="coded", attempt=1, supervisor="box", instance=f"i{number}"
                    )
                    await self._one.report(held[0], said)
                    self.accepted.add(held.pop(0))
                    continue
                held = [grant.task for grant in await self._one.claim(request)]
                request = ask("coding", max=5, instance=f"i{number}")
                await asyncio.sleep(0 if held else 0.02)
            except Unavailable as error:  # the same claim or report once more
                self.told.append((error.code.status, error.retry_after_s))
                await asyncio.sleep(0.05)


async def test_a_database_that_restarts_in_mid_load_costs_a_wait_and_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BH-049: in the gap 503 with Retry-After; afterwards notifications wake again, and no control plane restarted."""
    monkeypatch.setattr(claims, "BACKSTOP_S", 3_600.0)
    async with plane(server.url) as one, plane(server.url) as two:
        load = Load(one)
        await queue(server.url, LOADED)
        workers = [asyncio.create_task(load.work(number)) for number in range(4)]
        async with asyncio.timeout(60):
            while len(load.accepted) < 20:
                await asyncio.sleep(0.01)
        server.end()
        await server.come_back()
        async with asyncio.timeout(120):
            await asyncio.gather(*workers)
        done = await rows_of(
            server.url, "SELECT id FROM tasks WHERE state = 'coding' AND current_state = 'completed'"
        )
        assert {status for status, _ in load.told} == {503}
        assert min(after_s for _, after_s in load.told) > 0
        assert load.accepted <= {row["id"] for row in done}
        moved = await sql(
            server.url,
            "SELECT count(*) FROM history WHERE kind = 'moved' GROUP BY token_id HAVING count(*) > 2",
        )
        assert moved == []
        assert await sql(server.url, "SELECT 1 FROM tasks WHERE failures > 0 OR attempt > 1") == []
        # No look now and then: only a notification of the other control plane can wake this claim.
        async with asyncio.timeout(60):
            while not one._notices.listener.is_listening:
                await asyncio.sleep(0.01)
            two._notices.others = 1
            waiting = asyncio.create_task(one.claim(ask("failed", wait=50, supervisor="late")))
            while not one._claims.waiting:
                await asyncio.sleep(0.01)
            await two.start_token("after", BIG)
            (grant,) = [
                grant for grant in await two.claim(ask("coding", max=1_000)) if grant.token == "after"
            ]
            said = Report(kind="failed", error=FACES, attempt=1, supervisor="box", instance="i1")
            await two.report(grant.task, said)
            for attempt in (2, 3):
                await sql(server.url, "UPDATE tasks SET ready_at = now() WHERE id = $1", grant.task)
                await two.claim(ask("coding", max=1_000))
                await two.report(
                    grant.task,
                    Report(kind="failed", error="no", attempt=attempt, supervisor="box", instance="i1"),
                )
            assert [grant.token for grant in await asyncio.wait_for(waiting, 60)] == ["after"]


@contextmanager
def pgbouncer(server: Server) -> Iterator[str]:
    """PgBouncer in transaction mode before the server; yields the URL that a control plane would be given."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not on PATH: nothing was tried behind a pooler (apt install pgbouncer)")
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="stateous-bouncer-"))
    folder.chmod(0o755)  # it refuses to be root
    ini, users = folder / "pgbouncer.ini", folder / "users"
    users.write_text('"stateous" ""\n')
    ini.write_text(
        f"[databases]\nstateous = host=127.0.0.1 port={server.port} user=stateous\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 3\n"
    )
    who = ["-u", "nobody"] if os.geteuid() == 0 else []
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([program, *who, str(ini)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert child.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield f"postgresql://stateous@127.0.0.1:{port}/stateous"
    finally:
        child.terminate()
        child.wait(30)
        shutil.rmtree(folder)


async def test_everything_moves_behind_pgbouncer_in_transaction_mode(server: Server) -> None:
    """BH-049, DX-24: no statement is remembered, no notification comes; what waits is found by the look now and then."""
    with pgbouncer(server) as url:
        async with plane(url, heartbeat_s=0.2) as one, plane(url, heartbeat_s=0.2) as two:
            await queue(server.url, 60)
            waiting = asyncio.create_task(two.claim(ask("testing", wait=50, instance="i2")))

            async def work(number: int) -> None:
                while grants := await one.claim(ask("coding", max=3, instance=f"w{number}")):
                    tasks = [grant.task for grant in grants]
                    beat = await one.heartbeat(
                        HeartbeatRequest(supervisor="box", instance=f"w{number}", tasks=tasks)
                    )
                    assert not beat.lost
                    for task in tasks:
                        said = Report(
                            kind="event", event="coded", attempt=1, supervisor="box", instance=f"w{number}"
                        )
                        await one.report(task, said)

            await asyncio.gather(*(work(number) for number in range(8)))
            assert await asyncio.wait_for(waiting, 60)
            await one.start_token("big", HUGE)
            assert [grant.token for grant in await two.claim(ask("coding"))] == ["big"]
            await sql(server.url, "UPDATE leases SET until = now() - interval '1 second'")
            await one._sweep.sweep()
            assert one._sweep.leases_ended == 2
        done = await sql(
            server.url, "SELECT count(*) FROM tasks WHERE state = 'coding' AND current_state = 'completed'"
        )
        assert tuple(done[0]) == (60,)
