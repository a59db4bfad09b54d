"""What stands in for the world in the agent's tests: a scripted host, a log that is a list, a clock that jumps.

A test gives routines as plain functions of a grant; `World` puts a real agent around them and a `FakeControlPlane`
over an in-memory transport, all on trio's jumping clock. No thread, socket or child is in it.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import msgspec
import pytest
import trio.testing
from fakes import FakeControlPlane
from stateous_contract.messages import Grant

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.duty import Duty
from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.agent.host import HostEnded
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.outbox import Outbox, in_memory
from stateous_supervisor.agent.stop import Stop
from stateous_supervisor.agent.supervisor import Supervisor
from stateous_supervisor.link import frames

EPOCH = 1_700_000_000.0
DONE: dict[str, Any] = {"outcome": "event", "event": "noted"}
EXTENDED = ("wait", "batch", "release")
BASELINE: tuple[str, ...] = ()
BOTH = pytest.mark.parametrize("features", [EXTENDED, BASELINE], ids=["extended", "baseline"])

Routine = Callable[..., Any]


def simulate(main: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    """Run `main` with a `World`, on a clock that jumps to the next deadline whenever everybody waits."""

    async def run() -> None:
        world = World(**settings)
        try:
            await main(world)
        finally:
            world.outbox.close()

    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(run, backend="trio", backend_options={"clock": clock})


class Lines:
    """The log as a list of dicts."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def log(self, level: str = "debug") -> Log:
        return Log(lambda line: self.all.append(json.loads(line)), level=level, clock=lambda: EPOCH)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.all if line["event"] == event]


class ScriptedHost:
    """A host whose routines are functions of the grant; async ones can be cancelled, all see `self`."""

    def __init__(self, generation: int, routines: dict[str, Routine], tasks: Any) -> None:
        self.generation = generation
        self.pid = 0
        self.python = "3.x"
        self.routines: Sequence[frames.RoutineFacts] = [
            frames.RoutineFacts(state=state, file="a.py", line=1, name=state, is_async=True)
            for state in routines
        ]
        self.broken: Sequence[frames.BrokenFile] = []
        self.faults: Sequence[str] = []
        self.is_stalled = False
        self.heard: list[frames.Frame] = []
        self.hanging: Any = None
        self.has_pulse = False
        self.scopes: dict[tuple[int, int], anyio.CancelScope] = {}
        self._functions = routines
        self._tasks = tasks
        self._send, self._receive = anyio.create_memory_object_stream[Any](math.inf)

    def send(self, messages: Sequence[frames.Frame]) -> None:
        for message in messages:
            self.heard.append(message)
            if isinstance(message, frames.Run):
                self._tasks.start_soon(self._run, msgspec.json.decode(message.grant, type=Grant))
            elif isinstance(message, frames.Cancel):
                scope = self.scopes.get((message.task, message.attempt))
                if scope is not None:
                    scope.cancel()

    def kill(self) -> None:
        self.die("killed by SIGKILL")

    async def hang(self) -> Any:
        return self.hanging

    async def receive(self) -> Sequence[Any]:
        got = await self._receive.receive()
        if isinstance(got, HostEnded):
            raise got
        return [got]

    def say(self, *messages: Any) -> None:
        for message in messages:
            with suppress(anyio.ClosedResourceError):
                self._send.send_nowait(message)

    def close(self) -> None:
        self._send.close()
        self._receive.close()

    def die(self, reason: str = "killed by SIGKILL") -> None:
        self.say(HostEnded(reason))
        for scope in self.scopes.values():
            scope.cancel()
        self.scopes.clear()

    async def _run(self, grant: Grant) -> None:
        key = (grant.task, grant.attempt)
        with anyio.CancelScope() as scope:
            self.scopes[key] = scope
            self.say(frames.Began(task=grant.task, attempt=grant.attempt, at=anyio.current_time()))
            returned = self._functions[grant.state](grant)
            if inspect.isawaitable(returned):
                returned = await returned
        if self.scopes.pop(key, None) is None:
            return
        is_dropped = scope.cancelled_caught
        outcome = {"outcome": "failed", "error": "cancelled"} if is_dropped else returned or DONE
        self.say(frames.Outcome(task=grant.task, attempt=grant.attempt, is_dropped=is_dropped, **outcome))


class ScriptedHosts:
    """Starts scripted hosts; `all` are those that were started."""

    can_add = True

    def __init__(self, routines: dict[str, Routine]) -> None:
        self.all: list[ScriptedHost] = []
        self.routines = routines
        self.facts: dict[str, Any] = {}
        self.unusable: Exception | None = None

    @property
    def last(self) -> ScriptedHost:
        return self.all[-1]

    @asynccontextmanager
    async def open(self, generation: int) -> AsyncIterator[ScriptedHost]:
        if self.unusable is not None:
            raise self.unusable
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            host = ScriptedHost(generation, self.routines, tasks)
            vars(host).update(self.facts)
            self.all.append(host)
            try:
                yield host
            except Exception as error:
                failure = error
            finally:
                host.close()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure


class World:
    """One control plane and what is around it. `agent` runs a supervisor in it."""

    def __init__(self, **settings: Any) -> None:
        self.base = time.monotonic()
        self.fake = FakeControlPlane(clock=lambda: EPOCH + anyio.current_time(), **settings)
        self.lines = Lines()
        self.outbox = in_memory()
        self.exit: Exit | None = None
        self.numbers = iter(range(1, 1_000_000))
        self.is_cut = False
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.out: Counter[str] = Counter()
        self.most_out: Counter[str] = Counter()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if self.before is not None:
            await self.before(scope["path"])
        if self.is_cut:
            raise httpx.ConnectError("no route")
        path = scope["path"]
        self.out[path] += 1
        self.most_out[path] = max(self.out[path], self.most_out[path])
        try:
            await self.fake(scope, receive, send)
        finally:
            self.out[path] -= 1

    def client(self, **options: Any) -> Client:
        return Client("http://cp", product="test", transport=httpx.ASGITransport(self.app), **options)

    def start_tokens(self, count: int = 1, path: str = "plain", prefix: str = "t") -> None:
        for number in range(count):
            self.fake._start({"token": f"{prefix}{number}", "context": {"path": path}})
        self.fake._changed.set()
        self.fake._changed = anyio.Event()

    def heard(self, path: str) -> list[Any]:
        return [heard for heard in self.fake.heard if heard.path == path]

    @asynccontextmanager
    async def agent(
        self,
        routines: dict[str, Routine] | ScriptedHosts,
        *,
        tasks: int = 4,
        name: str = "box",
        instance: str = "i1",
        outbox: Outbox | None = None,
        seed: int = 0,
        **duty: Any,
    ) -> AsyncIterator[Agent]:
        hosts = routines if isinstance(routines, ScriptedHosts) else ScriptedHosts(routines)
        client = self.client()
        stop = Stop()
        checksum = duty.pop("checksum", self.fake.graph.checksum)
        supervisor = Supervisor(
            Duty(identity=Identity(name, instance), tasks=tasks, checksum=lambda: checksum, **duty),
            control_plane=ControlPlane(client),
            outbox=outbox or self.outbox,
            source=hosts,
            log=self.lines.log(),
            luck=random.Random(seed),
            new_id=lambda: f"r{next(self.numbers)}",
            stop=stop,
        )
        agent = Agent(supervisor, stop, hosts)
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run)
            agent.scope = group.cancel_scope
            yield agent
            stop.ask("test")
            with anyio.move_on_after(5.0):
                await agent.over.wait()
            stop.ask("test")
            await agent.over.wait()
        await client.close()


class Agent:
    """A running supervisor."""

    def __init__(self, supervisor: Supervisor, stop: Stop, hosts: ScriptedHosts) -> None:
        self.supervisor = supervisor
        self.stop = stop
        self.hosts = hosts
        self.exit: Exit | None = None
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self._kill = anyio.CancelScope()

    @property
    def roster(self) -> Any:
        return self.supervisor._roster

    async def run(self) -> None:
        with self._kill:
            self.exit = await self.supervisor.run()
        self.over.set()

    def kill(self) -> None:
        """End it as `kill -9` would: nothing more is said or written."""
        self._kill.cancel()


async def read_all(receive: Callable[[], Awaitable[Any]]) -> None:
    """Read a request to its end, as a server does before it answers."""
    while (await receive()).get("more_body"):
        pass


async def until(holds: Callable[[], Any], limit_s: float = 600.0) -> None:
    """Wait until something holds, on whichever clock runs; fail after `limit_s`."""
    with anyio.fail_after(limit_s):
        while not holds():
            await anyio.sleep(0.01)


async def stay(_: Any) -> None:
    """A routine that never ends by itself."""
    await anyio.sleep_forever()


def lasting(seconds: float) -> Routine:
    async def routine(_: Any) -> dict[str, str]:
        await anyio.sleep(seconds)
        return DONE

    return routine


def held(world: World) -> int:
    return sum(task.status == "claimed" for task in world.fake.tasks.values())


def completed(world: World) -> int:
    return sum(token.status == "completed" for token in world.fake.tokens.values())


def kinds(world: World, token: str = "t0") -> list[str]:
    return [entry["kind"] for entry in world.fake.tokens[token].history]


def text_of(world: World, kind: str, token: str = "t0") -> str:
    return next(str(entry["data"]) for entry in world.fake.tokens[token].history if entry["kind"] == kind)


def claims(world: World) -> list[dict[str, Any]]:
    """Return the claims that came, without those that withdraw one."""
    found = [
        heard.body if isinstance(heard.body, dict) else json.loads(heard.body)
        for heard in world.heard("/tasks/claim")
    ]
    return [body for body in found if not body.get("withdraw")]
