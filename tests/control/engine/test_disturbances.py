"""What can happen between control planes and their database, and how soon queued work is claimed again afterwards (BH-049)."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest
from conftest import IN_A_HURRY, migrate
from control.engine.planes import ask, plane, sql
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import HeartbeatRequest

from stateous_control.embedded import EmbeddedPostgres
from stateous_control.engine import claims
from stateous_control.engine.operations import ControlPlane

pytestmark = [pytest.mark.prove, pytest.mark.timeout(600)]

CLAIMS = 50
BACK_S = 10.0  # after which everything is as it was
BLACK_S = 120.0
ALL_BACKENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class Pipe:
    """Passes bytes between control planes and a server; it can be turned to another one, or swallow everything."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.flows = asyncio.Event()
        self.flows.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        here = self._server.sockets[0].getsockname()[1]
        self.url = f"postgresql://stateous@127.0.0.1:{here}/stateous"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.flows.set()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, to = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        self._writers.add(to)
        await asyncio.gather(self._pump(reader, to), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65_536):
                await self.flows.wait()
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


class Servers:
    """A PostgreSQL on a port of its own, and its successor elsewhere. Both live and die with the thread that starts them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: list[EmbeddedPostgres] = []

    def start(self, name: str, port: int) -> None:
        settings = IN_A_HURRY | {"listen_addresses": "127.0.0.1", "port": str(port)}
        server = EmbeddedPostgres(self._folder / name, settings=settings)
        self.running.append(server)
        self.url = server.start().replace("?", f"?port={port}&", 1)
        self.port = port

    def stop(self) -> None:
        self.running.pop().stop()

    def move(self, old: str, new: str, port: int) -> None:
        """What a fail-over does: the same data at another place."""
        self.stop()
        shutil.copytree(self._folder / old, self._folder / new)
        self.start(new, port)


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def latency_s(one: ControlPlane, two: ControlPlane, name: str) -> float:
    """The median time from a start at one control plane to the grant of a claim that waits at the other."""
    took = []
    for number in range(CLAIMS):
        waiting = asyncio.create_task(two.claim(ask("coding", wait=50, instance="late")))
        while not two._claims.waiting:
            await asyncio.sleep(0.001)
        began = time.monotonic()
        await one.start_token(f"{name}-{number}", None)
        assert len(await asyncio.wait_for(waiting, 60)) == 1
        took.append(time.monotonic() - began)
    return statistics.median(took)


async def terminated(_servers: Servers, pipe: Pipe, _one: ControlPlane) -> None:
    await sql(_servers.url, ALL_BACKENDS)


async def restarted(servers: Servers, _pipe: Pipe, _one: ControlPlane) -> None:
    servers.stop()
    servers.start("first", servers.port)


async def failed_over(servers: Servers, pipe: Pipe, _one: ControlPlane) -> None:
    port = free_port()
    servers.move("first", "second", port)
    pipe.port = port
    pipe.cut()


async def swallowed(_servers: Servers, pipe: Pipe, one: ControlPlane) -> None:
    """Two minutes of nothing, in which requests are answered all the same."""
    pipe.flows.clear()
    began = time.monotonic()
    while time.monotonic() - began < BLACK_S:
        asked = time.monotonic()
        with pytest.raises(Refused) as refused:
            await one.start_token("gap", None)
        assert refused.value.code is Code.DATABASE_BUSY
        assert time.monotonic() - asked < 60
    pipe.flows.set()


Disturb = Callable[[Servers, Pipe, ControlPlane], Awaitable[None]]


@pytest.mark.parametrize(
    "disturb", [terminated, restarted, failed_over, swallowed], ids=lambda each: each.__name__
)
async def test_ten_seconds_after_a_disturbance_work_is_claimed_as_soon_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturb: Disturb
) -> None:
    """BH-049: by notifications, at control planes that were not restarted, and no lease is lost."""
    monkeypatch.setattr(claims, "BACKSTOP_S", 3_600.0)  # no look now and then helps
    servers = Servers(tmp_path)
    servers.start("first", free_port())
    try:
        await asyncio.to_thread(migrate, servers.url)
        async with (
            Pipe(servers.port) as pipe,
            plane(pipe.url, sweep_s=0.5) as one,
            plane(pipe.url, sweep_s=0.5) as two,
        ):
            while not (one._notices.others and two._notices.others):
                await asyncio.sleep(0.05)
            before_s = await latency_s(one, two, "before")
            held = len(await sql(servers.url, "SELECT 1 FROM leases"))
            await disturb(servers, pipe, one)
            await asyncio.sleep(BACK_S)
            assert one._notices.listener.is_listening
            assert two._notices.listener.is_listening
            after_s = await latency_s(one, two, "after")
            print(f"{disturb.__name__}: a claim after {before_s * 1000:.1f} ms, then {after_s * 1000:.1f} ms")
            assert after_s < 2 * before_s + 0.02
            rows = await sql(servers.url, "SELECT id FROM tasks WHERE current_state = 'running'")
            tasks = [row["id"] for row in rows]
            assert len(tasks) == held + CLAIMS
            beat = await two.heartbeat(HeartbeatRequest(supervisor="box", instance="late", tasks=tasks))
            assert beat.lost == []
            assert await sql(servers.url, "SELECT 1 FROM tasks WHERE failures > 0") == []
    finally:
        for server in servers.running:
            server.stop()
