"""The two sides that are measured, alike: a control plane on a database of its own, an agent on a folder with one
no-op routine, tokens preloaded over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import asyncpg
from machine import Bench, Process, wait_until

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "sdlc"
ROUTINE = """import sys
sys.path.insert(0, {here!r})
from meter import Meter
from stateous import on_state
from contract import events, states

meter = Meter()


@on_state(states.a)
async def a(ctx):
    meter.hit(ctx.token)
    return events.done()
"""


@dataclass
class Side:
    """One product. `bin` is the folder of its programs; `dsn` is its database."""

    name: str
    bin: Path
    dsn: str
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def marks(self) -> list[list[str]]:
        file = self.folder / "marks"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def mark(self, word: str) -> int | None:
        return next((int(m[2]) for m in self.marks() if m[0] == word), None)

    def preload(self, count: int, workers: int = 8) -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._start_some, [range(w, count, workers) for w in range(workers)]))

    def _start_some(self, numbers: range) -> None:
        connection = HTTPConnection("127.0.0.1", self.port)
        for number in numbers:
            connection.request("POST", "/tokens", json.dumps({"token": f"t{number}"}))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, answer.status

    def completed(self) -> int:
        return asyncio.run(fetch(self.dsn, "SELECT count(*) FROM tokens WHERE status = 'completed'"))

    def wait_for_health(self) -> None:
        wait_until(f"{self.name} at {self.url}", self._is_up, 60)

    def _is_up(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=1).status == 200
        except OSError:
            return False


class Ours(Side):
    """stateous-control and stateous-supervisor."""

    workflow = HERE / "noop.json"
    routine = ROUTINE

    def serve(self, bench: Bench) -> Process:
        argv = [str(self.bin / "stateous-control"), "serve", str(self.workflow)]
        argv += ["--listen", f"127.0.0.1:{self.port}"]
        process = bench.start("control", argv, {"STATEOUS_DATABASE_URL": self.dsn})
        self.wait_for_health()
        return process

    def supervise(self, bench: Bench, slots: int, env: dict[str, str]) -> Process:
        folder = self.folder / "routines"
        if not folder.exists():
            argv = [self.bin / "stateous-supervisor", "init", self.url, folder]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        write_routine(folder, self.url, slots, self.routine)
        env = {"METER_FILE": str(self.folder / "marks"), **env}
        return bench.start("agent", [str(self.bin / "stateous-supervisor"), "run", str(folder)], env)


class Sdlc(Ours):
    """Ours, with the example folder in place of a no-op routine."""

    workflow = EXAMPLE / "workflow.yaml"

    def supervise(self, bench: Bench, slots: int, env: dict[str, str]) -> Process:
        folder = self.folder / "routines"
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "stateous.yaml").write_text(f"url: {self.url}\ntasks: {slots}\nname: bench\n")
        return bench.start("agent", [str(self.bin / "stateous-supervisor"), "run", str(folder)], env)


class Peer(Side):
    """Stateous 0.2.2, the published package in an interpreter of its own."""

    def serve(self, bench: Bench) -> Process:
        dsn = self.dsn.replace("postgresql://", "postgresql+psycopg://")
        argv = [str(self.bin / "stateous"), "serve", str(HERE / "noop.json"), "--db", dsn]
        process = bench.start("peer-control", [*argv, "--listen", f"127.0.0.1:{self.port}"])
        self.wait_for_health()
        return process

    def supervise(self, bench: Bench, slots: int, env: dict[str, str]) -> Process:
        folder = self.folder / "routines"
        if not folder.exists():
            argv = [self.bin / "stateous", "init", "supervisor", self.url, folder]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        write_routine(folder, self.url, slots)
        env = {"METER_FILE": str(self.folder / "marks"), **env}
        return bench.start("peer-agent", [str(self.bin / "stateous"), "supervise", str(folder)], env)


def write_routine(folder: Path, url: str, slots: int, routine: str = ROUTINE) -> None:
    (folder / "a.py").write_text(routine.format(here=str(HERE)))
    (folder / "stateous.yaml").write_text(f"url: {url}\ntasks: {slots}\nname: bench\n")


async def fetch(dsn: str, query: str):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def database(dsn: str, name: str) -> str:
    """Make an empty database and return its address."""
    asyncio.run(_create(dsn, name))
    return (
        re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", dsn, count=1)
        if "?" in dsn
        else f"{dsn.rsplit('/', 1)[0]}/{name}"
    )


async def _create(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()


def our_bin() -> Path:
    return Path(sys.executable).parent


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
