"""The model host: routines with a length, notes, memory and an end drawn from the life's seed, task and attempt.

It replaces the host process. A routine may hold the host's loop for minutes: then no other says anything and none can
be cancelled, as in a real one.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import msgspec
from msgspec import Raw
from stateous_contract.messages import Grant

from stateous_supervisor.agent.host import HostEnded
from stateous_supervisor.link import frames

from .history import History
from .watch import Watch

EVENTS: dict[str, list[tuple[str, dict[str, Any] | None]]] = {
    "draft": [("drafted", {"pages": 3})],
    "review": [("approved", None), ("approved", None), ("returned", {"why": "again"})],
    "printing": [("noted", None)],
    "repair": [("noted", None)],
    "plain": [("noted", None), ("flagged", {"level": 2})],
    "fragile": [("noted", None)],
    "brittle": [("noted", None)],
    "patient": [("answered", None), ("declined", None)],
    "late": [("noted", None)],
    "picky": [("picked", {"level": 11}), ("noted", None)],
    "round": [("again", None), ("noted", None)],
    "sturdy": [("noted", None)],
}
LENGTHS_S = [0.0, 0.01, 0.5, 2.0, 10.0, 45.0, 120.0, 300.0, 900.0, 2_400.0, 6_000.0]
NAMES = list(EVENTS)
CALM_S = 20.0


class Plan(NamedTuple):
    """What one attempt will do. `words` are pauses and what is said after each."""

    words: list[tuple[float, str]]
    rest_s: float
    holds_s: float
    is_async: bool
    outcome: dict[str, Any]


def plan(seed: int, state: str, key: tuple[int, int]) -> Plan:
    """Draw what an attempt does: the same for the same seed, state and attempt, whenever it runs."""
    luck = random.Random(f"{seed} {state} {key}")
    length_s = luck.choice(LENGTHS_S) * (0.5 + luck.random())
    count = luck.choice([0, 0, 1, 2, 5])
    words = [(length_s * luck.random() / (count + 1), luck.choice(["note", "memory"])) for _ in range(count)]
    holds_s = luck.uniform(5.0, 200.0) if luck.random() < 0.12 else 0.0
    event, payload = luck.choice(EVENTS[state])
    drawn = luck.random()
    outcome: dict[str, Any] = {"outcome": "event", "event": event}
    if payload is not None:
        outcome["payload"] = Raw(msgspec.json.encode(payload))
    if drawn < 0.10:
        outcome = {"outcome": "failed", "error": "it went wrong"}
    elif drawn < 0.13:
        outcome = {"outcome": "event", "event": "nudge"}
    elif drawn < 0.16:
        outcome = {"outcome": "waiting"}
    rest_s = max(0.0, length_s - sum(pause for pause, _ in words))
    return Plan(words, rest_s, holds_s, luck.random() < 0.7, outcome)


class ModelHost:
    """One host. What it says is heard by the agent; what is said to it is looked at by `watch`."""

    def __init__(self, generation: int, hosts: ModelHosts, tasks: Any) -> None:
        self.generation = generation
        self.pid = 0
        self.python = "3.x"
        self.routines: Sequence[frames.RoutineFacts] = [
            frames.RoutineFacts(state=state, file="a.py", line=1, name=state, is_async=True)
            for state in NAMES
        ]
        self.broken: Sequence[frames.BrokenFile] = []
        self.faults: Sequence[str] = []
        self.is_stalled = False
        self.has_pulse = False
        self.blocked_until = -math.inf
        self._hosts = hosts
        self._tasks = tasks
        self._scopes: dict[tuple[int, int], anyio.CancelScope] = {}
        self._send, self._receive = anyio.create_memory_object_stream[Any](math.inf)

    def send(self, messages: Sequence[frames.Frame]) -> None:
        if self._hosts.watch.process.ended_at is not None:
            return
        for message in messages:
            if isinstance(message, frames.Run):
                grant = msgspec.json.decode(message.grant, type=Grant)
                self._hosts.watch.runs((grant.task, grant.attempt))
                self._tasks.start_soon(self._run, grant)
            elif isinstance(message, frames.Cancel) and (message.task, message.attempt) in self._scopes:
                self._tasks.start_soon(self._cancel, (message.task, message.attempt))

    def kill(self) -> None:
        self.die("killed by SIGKILL")

    async def hang(self) -> Any:
        return None

    async def receive(self) -> Sequence[Any]:
        got = await self._receive.receive()
        if isinstance(got, HostEnded):
            raise got
        return [got]

    def die(self, reason: str) -> None:
        """End, as if it had been killed: what it said before is still heard."""
        self._say(HostEnded(reason))
        self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()

    @property
    def running(self) -> int:
        return len(self._scopes)

    def _say(self, message: Any) -> None:
        try:
            self._send.send_nowait(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    async def loop_free(self) -> None:
        """Wait until no routine holds the loop."""
        while self.blocked_until > anyio.current_time():
            await anyio.sleep_until(self.blocked_until)

    async def _cancel(self, key: tuple[int, int]) -> None:
        await self.loop_free()
        scope = self._scopes.get(key)
        if scope is not None:
            scope.cancel()

    async def _run(self, grant: Grant) -> None:
        key = (grant.task, grant.attempt)
        chosen = plan(self._hosts.seed, grant.state, key)
        with anyio.CancelScope(shield=False) as scope:
            self._scopes[key] = scope
            await self.loop_free()
            self._say(frames.Began(task=grant.task, attempt=grant.attempt, at=anyio.current_time()))
            await self._live(grant, chosen)
        await self.loop_free()
        del self._scopes[key]
        is_dropped = scope.cancelled_caught
        outcome = {"outcome": "failed", "error": "cancelled"} if is_dropped else chosen.outcome
        if not is_dropped:
            self._hosts.history.returned[key] = (outcome["outcome"], outcome.get("event"))
            self._hosts.history.add(self._hosts.watch.name, "returns", key, outcome["outcome"])
        self._say(frames.Outcome(task=grant.task, attempt=grant.attempt, is_dropped=is_dropped, **outcome))

    async def _live(self, grant: Grant, chosen: Plan) -> None:
        if chosen.holds_s and chosen.is_async:
            self.blocked_until = max(self.blocked_until, anyio.current_time() + chosen.holds_s)
        for number, (pause_s, what) in enumerate(chosen.words):
            await self._hosts.sleep(pause_s)
            await self.loop_free()
            self._word(grant, number, what)
        await self._hosts.sleep(chosen.rest_s)
        await self.loop_free()

    def _word(self, grant: Grant, number: int, what: str) -> None:
        names = {"task": grant.task, "attempt": grant.attempt}
        text = f"n{grant.attempt}.{number}"
        if what == "note":
            self._say(frames.Noted(**names, text=text))
        else:
            text = f"k{number}={number}"
            self._say(frames.Remembered(**names, key=f"k{number}", value=Raw(str(number).encode())))
        self._hosts.history.made[grant.task, grant.attempt].append(text)


class ModelHosts:
    """Starts model hosts for one process of an agent.

    Args:
        calm: is set when everything is to come to its end; then no routine takes long any more.
    """

    can_add = True

    def __init__(self, seed: int, watch: Watch, history: History, calm: anyio.Event) -> None:
        self.seed = seed
        self.watch = watch
        self.history = history
        self.live: list[ModelHost] = []
        self._calm = calm

    async def sleep(self, span_s: float) -> None:
        """Sleep as long as a routine takes."""
        if span_s > CALM_S:
            with anyio.move_on_after(span_s - CALM_S):
                await self._calm.wait()
        await anyio.sleep(min(span_s, CALM_S))

    @asynccontextmanager
    async def open(self, generation: int) -> AsyncIterator[ModelHost]:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            host = ModelHost(generation, self, tasks)
            self.live.append(host)
            try:
                yield host
            except Exception as error:
                failure = error
            finally:
                self.live.remove(host)
                host.close()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
