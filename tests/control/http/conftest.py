"""A real web server around a plane without an engine, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
import uvloop
from control.databases import fresh, run_sql
from control.http.keyed import QUESTION, TASK, Keyed, ask_something, keyed, make_key
from control.http.plane import SilentPlane

from stateous_control.http import limiting
from stateous_control.http.door import Door
from stateous_control.http.server import Address, Server, bind, url_of
from stateous_control.http.strangers import Strangers


@dataclass
class Running:
    """A server that runs, its plane, and a client for it."""

    url: str
    plane: SilentPlane
    server: Server
    door: Door
    loop: asyncio.AbstractEventLoop
    http: httpx.Client


@pytest.fixture(scope="module")
def one_server() -> Iterator[Running]:
    listener = bind(Address("127.0.0.1", 0))
    url = url_of(listener)
    ready = threading.Event()
    made: list[tuple[SilentPlane, Server, Door, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        plane = SilentPlane()
        door = Door(plane, Strangers())
        server = Server(door, ready.set)
        made.append((plane, server, door, asyncio.get_running_loop()))
        await server.serve(sockets=[listener])

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(5)
    plane, server, door, loop = made[0]
    with httpx.Client(base_url=url, timeout=5) as http:
        yield Running(url, plane, server, door, loop, http)
    loop.call_soon_threadsafe(door.begin_stop)
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def running(one_server: Running) -> Running:
    """The server of this file, with a plane that was asked nothing yet. Starting one a test would take 0.2 s each."""
    one_server.plane.asked.clear()
    one_server.plane.was_gone.clear()
    one_server.plane.cancelled = 0
    one_server.plane.raises = None
    return one_server


@pytest.fixture(scope="module")
def one_keyed_plane(postgres: str, migrated_template: str) -> Iterator[Keyed]:
    with fresh(postgres, migrated_template) as database:
        run_sql(
            database,
            f"ALTER SEQUENCE task_ids RESTART {TASK}; ALTER SEQUENCE question_ids RESTART {QUESTION}",
        )
        make_key(database, "first", "admin")
        with keyed(database) as plane:
            plane.start("B-1", "b")
            grant = plane.claim("b")
            assert (grant["task"], grant["owner"]) == (TASK, "b")
            plane.start("A-1", "a")
            ask_something(plane)
            yield plane


@pytest.fixture
def plane(one_keyed_plane: Keyed) -> Keyed:
    one_keyed_plane.door.failures = limiting.FailureLimit()
    return one_keyed_plane
