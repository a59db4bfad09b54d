"""The model control plane: the fake that the conformance suite holds, told to write down what it decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyio
from fake_lives import Json, Task, Token
from fakes import FakeControlPlane
from stateous_contract import limits

from .history import History

TERMINAL = frozenset({"completed", "failed", "cancelled"})


class Incoming:
    """One request as it comes in, and the news that whoever sent it has gone."""

    def __init__(self, content: bytes, hung_up: anyio.Event) -> None:
        self.hung_up = hung_up
        self._parts = [{"type": "http.request", "body": content}]

    async def __call__(self) -> dict[str, Any]:
        if not self._parts:
            await self.hung_up.wait()
        return self._parts.pop() if self._parts else {"type": "http.disconnect"}


class Model(FakeControlPlane):
    """A control plane with a history. `is_down` refuses connections; `cut` ends every request that is under way.

    A claim is remembered in the moment in which it is granted, as one transaction does it: a cut may come right after.
    One that waits is told by `changed` that whoever asked has gone or has asked again, so that no task has to listen.
    """

    def __init__(self, history: History, *, clock: Callable[[], float], **settings: Any) -> None:
        super().__init__(clock=clock, **settings)
        self.history = history
        self.is_down = False
        self.under_way: dict[anyio.CancelScope, None] = {}

    def changed(self) -> None:
        """Wake whoever waits for work."""
        self._changed.set()
        self._changed = anyio.Event()

    def cut(self) -> None:
        """End every request that is under way; nobody gets an answer."""
        for scope in list(self.under_way):
            scope.cancel()

    async def _claim(self, body: Json, receive: Any) -> tuple[int, Any]:
        earlier = self._waiting.get((body["supervisor"], body.get("instance"), body.get("request", "")))
        if earlier is not None:
            earlier.set()
            self.changed()
        return await super()._claim(body, receive)

    async def _waited(
        self, body: Json, holder: tuple[str, str | None], leaves: anyio.Event, receive: Any
    ) -> list[Task]:
        granted = self._picked(body, holder)
        wait_s = min(body.get("wait") or 0, limits.WAIT_S_MAX) if "wait" in self.features else 0
        end = anyio.current_time() + wait_s
        while not granted and not self.stopping and (left_s := end - anyio.current_time()) > 0:
            with anyio.move_on_after(min(left_s, self.look_s())):
                await self._changed.wait()
            if receive.hung_up.is_set():
                leaves.set()
            if leaves.is_set():
                break
            self.tick()
            granted = self._picked(body, holder)
        return granted

    def look_s(self) -> float:
        """Return how long nothing becomes due."""
        now = self.clock()
        leases = (t.until for t in self.tasks.values() if t.status == "claimed")
        ready = (t.ready_at for t in self.tasks.values() if t.status == "queued")
        timers = (timer["due"] for token in self.tokens.values() for timer in token.timers)
        later = (at for group in (leases, ready, timers) for at in group if at >= now)
        return min(later, default=math.inf) - now + 0.001

    def _picked(self, body: Json, holder: tuple[str, str | None]) -> list[Task]:
        picked = super()._picked(body, holder)
        request = body.get("request")
        if picked and request is not None:
            remembered = self._remembered.setdefault(holder, {})
            if holder[1] is None:
                remembered.clear()
            remembered[request] = [(task.id, task.attempt) for task in picked]
        for task in picked:
            self.history.add("plane", "grants", (task.id, task.attempt), f"{holder[1]} {request}")
        return picked

    def _apply(self, task: Task, outcome: Json) -> None:
        key, said = (task.id, task.attempt), (outcome["kind"], outcome.get("event"))
        super()._apply(task, outcome)
        self.history.accepted[key].append(said)
        self.history.add("plane", "accepts", key, said)

    def _note(self, number: Any, body: Json, holder: Any = None) -> tuple[int, None]:
        answer = super()._note(number, body, holder)
        self.history.told[int(number), self.tasks[int(number)].attempt].append(body["text"])
        return answer

    def _memory(self, number: Any, body: Json, holder: Any = None) -> tuple[int, None]:
        answer = super()._memory(number, body, holder)
        self.history.told[int(number), self.tasks[int(number)].attempt].append(
            f"{body['key']}={body['value']}"
        )
        return answer

    def fail(self, task: Task, error: str, *, delay_s: float) -> None:
        if "no heartbeat" in error:
            self.history.add("plane", "ends the lease", (task.id, task.attempt))
        super().fail(task, error, delay_s=delay_s)

    def end_tasks(self, token: Token, *, emitted: str | None = None, cause: str) -> None:
        super().end_tasks(token, emitted=emitted, cause=cause)
        self.history.add("plane", f"ends tasks of {token.name}", None, cause)

    def is_over(self, key: tuple[int, int]) -> bool:
        """Return whether that attempt is provably over."""
        task = self.tasks[key[0]]
        return task.attempt != key[1] or task.status != "claimed"
