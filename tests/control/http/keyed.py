"""A real control plane with keys behind a real web server, in a thread of its own, for tests of who may see what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import uvloop
from control.engine.planes import graph

from stateous_control.engine.operations import ControlPlane
from stateous_control.http.door import Door
from stateous_control.http.server import Address, Server, bind, url_of
from stateous_control.http.strangers import Strangers
from stateous_control.rules.access import Role
from stateous_control.store import keys
from stateous_control.store.pool import Pool

Result = TypeVar("Result")

QUESTION = 8_000_001
TASK = 7_000_001
GONE = 7_999_999
HELD: dict[str, Any] = {"supervisor": "box", "instance": "i", "attempt": 1}
DECIDED: dict[str, Any] = {"run": "r", "node": None, "visited": [], "bindings": {}}
BODIES: dict[str, dict[str, Any]] = {
    "report": {"kind": "event", "event": "coded", "supervisor": "box", "instance": "i", "attempt": 1},
    "note": {"text": "hello", "attempt": 1},
    "memory": {"key": "k", "value": 1, "attempt": 1},
    "checkpoints": HELD | {"step": "s", "occurrence": 1, "value": 1},
    "questions": HELD | {"key": "k", "occurrence": 1, "data": 1, "ttl_s": 60, "locked_decisions": DECIDED},
    "children": HELD | {"step": "s", "occurrence": 1, "routine": "r"},
    "park": HELD | {"wait": {"kind": "pause"}, "locked_decisions": DECIDED},
    **{action: {"expected_generation": 2} for action in ("pause", "resume", "cancel", "retry")},
    "answer": {"answer": 1, "expected_generation": 2},
}


def make_key(database: str, name: str, role: str, *owners: str, **more: Any) -> str:
    """Make a key as the command does, and return its text."""

    async def make() -> str:
        pool = Pool(database, connections_max=1)
        try:
            made = await keys.make_key(pool, name, Role(role), owners=list(owners or ("default",)), **more)
        finally:
            await pool.close()
        assert made is not None
        return made.text

    return asyncio.run(make())


def revoke(database: str, name: str) -> None:
    async def work() -> None:
        pool = Pool(database, connections_max=1)
        try:
            assert await keys.revoke_keys(pool, name)
        finally:
            await pool.close()

    asyncio.run(work())


@dataclass
class Keyed:
    """A running server on a database. `keys` are made once, by role and owners."""

    url: str
    database: str
    plane: ControlPlane
    door: Door
    loop: asyncio.AbstractEventLoop
    keys: dict[tuple[str, ...], str] = field(default_factory=dict)

    def key(self, role: str, *owners: str) -> str:
        place = (role, *owners)
        if place not in self.keys:
            self.keys[place] = make_key(self.database, "-".join(place), role, *owners)
            self.read_keys()
        return self.keys[place]

    def make(self, name: str, role: str, *owners: str, **more: Any) -> str:
        text = make_key(self.database, name, role, *owners, **more)
        self.read_keys()
        return text

    def read_keys(self) -> None:
        """Do now what each control plane does every two seconds."""
        self.run(self.plane.keyring.read())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def ask(self, method: str, path: str, key: str | None, **more: Any) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.request(
            method, self.url + path, headers=headers | more.pop("headers", {}), timeout=10, **more
        )

    def start(self, token: str, owner: str) -> None:
        assert (
            self.ask("POST", "/tokens", self.key("operator", owner), json={"token": token}).status_code == 201
        )

    def claim(self, owner: str, **more: Any) -> Any:
        body = {"supervisor": "box", "instance": "i", "states": ["coding"], **more}
        answer = self.ask("POST", "/tasks/claim", self.key("supervisor", owner), json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def keyed(database: str) -> Iterator[Keyed]:
    listener = bind(Address("127.0.0.1", 0))
    ready = threading.Event()
    made: list[Keyed] = []
    servers: list[Server] = []

    async def serve() -> None:
        async with ControlPlane(database, graph=graph(), sweep_s=3600.0) as plane:
            door = Door(plane, Strangers(), plane.keyring)
            server = Server(door, ready.set)
            made.append(Keyed(url_of(listener), database, plane, door, asyncio.get_running_loop()))
            servers.append(server)
            await server.serve(sockets=[listener])

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        yield made[0]
    finally:
        made[0].loop.call_soon_threadsafe(made[0].door.begin_stop)
        servers[0].should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def ask_something(plane: Keyed) -> None:
    """Let a task of owner b wait for an answer."""
    plane.start("B-2", "b")
    task = plane.claim("b")["task"]
    asked = plane.ask(
        "POST", f"/tasks/{task}/questions", plane.key("supervisor", "b"), json=BODIES["questions"]
    )
    assert (asked.status_code, asked.json()["question"]) == (201, QUESTION)


def seen(answer: httpx.Response, name: str) -> tuple[Any, ...]:
    """All of an answer that a caller can tell apart, with the id that it asked for blotted out."""
    headers = {key: value for key, value in answer.headers.items() if key != "date"}
    return answer.status_code, answer.text.replace(name, "ID"), sorted(headers.items())


def path_of(path: str, *, token: str, task: int, event: str = "coded") -> str:
    """Fill in a route's path; a question's number is the task's with an 8 in front."""
    numbers = {"{task:digits}": str(task), "{question:digits}": f"8{str(task)[1:]}"}
    for placeholder, text in {"{token}": token, "{event}": event, "{name}": "go", **numbers}.items():
        path = path.replace(placeholder, text)
    assert "{" not in path
    return path
