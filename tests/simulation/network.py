"""What lies between an agent and the model control plane: it loses, repeats, delays and replaces what passes.

Chance comes from the life's own seeded numbers. The control plane's half of a request runs in the life's task group,
so that it goes on when the agent that asked has been killed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import anyio
import httpx
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from .history import History
from .model import Model
from .watch import Watch

HTML = b"<html><body>a proxy on the way</body></html>"
CODES = [500, 502, 503, 504]
WRONG = [b"[]", b"3", b'{"tasks":5}', b'{"lost":"no"}', b'{"results":{}}', b'{"checksum":1}', b"null"]
NAMES = [
    "lost request", "lost answer", "closed before", "closed after", "duplicate", "late request", "slow answer",
    "page", "cut json", "wrong type", "not found", "conflict", "denied", "too many", "server error",
]  # fmt: skip


class Weather:
    """How bad it is. `intensity` is the share of requests that something happens to."""

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.intensity = 0.0
        self.is_calm = False
        self.cut_until: dict[str, float] = {}

    def draw(self) -> str | None:
        if self.is_calm or self.luck.random() >= self.intensity:
            return None
        return self.luck.choice(NAMES)

    def is_cut(self, box: str, now: float) -> bool:
        return not self.is_calm and self.cut_until.get(box, -math.inf) > now

    def span(self) -> float:
        """Return how long something is late: mostly little, sometimes longer than any deadline."""
        return self.luck.choice([0.02, 0.5, 3.0, 12.0, 40.0, 90.0]) * (0.5 + self.luck.random())


class Reply:
    """What the control plane says to one request; None for a connection that broke."""

    def __init__(self) -> None:
        self.there = anyio.Event()
        self.status = 0
        self.body = b""

    def give(self, status: int, body: bytes) -> None:
        if not self.there.is_set():
            self.status, self.body = status, body
            self.there.set()


class Network(httpx.AsyncBaseTransport):
    """Carries the requests of one process of an agent.

    Args:
        tasks: where the control plane's half of a request runs.
        watch: is told what is sent, and what of it is answered.
    """

    def __init__(
        self, box: str, *, plane: Model, weather: Weather, tasks: TaskGroup, watch: Watch, history: History
    ) -> None:
        self._box = box
        self._plane = plane
        self._weather = weather
        self._tasks = tasks
        self._watch = watch
        self._history = history

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        method, path, content = request.method, request.url.raw_path.decode(), request.content
        if self._watch.process.ended_at is not None:
            await anyio.sleep_forever()  # it has been killed
        self._watch.sends(path, content)
        try:
            response = await self._carried(method, path, content)
        finally:
            self._watch.returns(path, content)
        self._watch.hears(path, content, response.status_code, response.content)
        return response

    async def _carried(self, method: str, path: str, content: bytes) -> httpx.Response:
        luck, weather = self._weather.luck, self._weather
        if weather.is_cut(self._box, anyio.current_time()):
            if luck.random() < 0.5:
                await checkpoint()
                raise httpx.ConnectError("no route")
            await anyio.sleep_forever()
        name = weather.draw()
        if name is None:
            return await self._answer(method, path, content)
        self._history.fault(name, self._watch.name, path)
        act: Callable[..., Any] = getattr(self, "_" + name.replace(" ", "_"))
        response: httpx.Response = await act(method, path, content)
        return response

    # What can happen to a request.

    async def _lost_request(self, *_: Any) -> httpx.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async def _lost_answer(self, method: str, path: str, content: bytes) -> httpx.Response:
        """It takes effect, and the connection stays half open."""
        self._start(method, path, content, anyio.Event())
        await anyio.sleep_forever()
        raise AssertionError

    async def _closed_before(self, *_: Any) -> httpx.Response:
        await checkpoint()
        raise httpx.ReadError("the connection was closed")

    async def _closed_after(self, method: str, path: str, content: bytes) -> httpx.Response:
        await self._answer(method, path, content)
        raise httpx.ReadError("the connection was closed")

    async def _duplicate(self, method: str, path: str, content: bytes) -> httpx.Response:
        self._start(method, path, content, anyio.Event(), delay_s=self._weather.span())
        return await self._answer(method, path, content)

    async def _late_request(self, method: str, path: str, content: bytes) -> httpx.Response:
        return await self._answer(method, path, content, delay_s=self._weather.span())

    async def _slow_answer(self, method: str, path: str, content: bytes) -> httpx.Response:
        response = await self._answer(method, path, content)
        await anyio.sleep(self._weather.span())
        return response

    async def _page(self, method: str, path: str, content: bytes) -> httpx.Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(method, path, content)
        await checkpoint()
        return httpx.Response(200, content=HTML, headers={"content-type": "text/html"})

    async def _cut_json(self, method: str, path: str, content: bytes) -> httpx.Response:
        response = await self._answer(method, path, content)
        body = response.content[: self._weather.luck.randrange(1, max(2, len(response.content)))]
        body = body if response.content else b'{"tas'
        return _json(200, body if body != response.content else b"{")

    async def _wrong_type(self, method: str, path: str, content: bytes) -> httpx.Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(method, path, content)
        await checkpoint()
        # What happens to be right for this path is not a fault; a list is right nowhere.
        body = self._weather.luck.choice(WRONG)
        return _json(200, body)

    async def _not_found(self, *_: Any) -> httpx.Response:
        await checkpoint()
        if self._weather.luck.random() < 0.5:
            return httpx.Response(404, content=HTML, headers={"content-type": "text/html"})
        return _json(404, b'{"error":"there is no such path","code":"not_found"}')

    async def _conflict(self, *_: Any) -> httpx.Response:
        await checkpoint()
        return _json(409, b'{"detail":"a gateway has another opinion"}')

    async def _denied(self, *_: Any) -> httpx.Response:
        await checkpoint()
        return _json(self._weather.luck.choice([401, 403]), b'{"error":"no key","code":"unauthorized"}')

    async def _too_many(self, *_: Any) -> httpx.Response:
        await checkpoint()
        after = self._weather.luck.choice(["1", "10", "100000", "soon"])
        return httpx.Response(429, headers={"retry-after": after})

    async def _server_error(self, method: str, path: str, content: bytes) -> httpx.Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(method, path, content)
        await checkpoint()
        return httpx.Response(self._weather.luck.choice(CODES), content=HTML)

    # The way to the control plane and back.

    async def _answer(
        self, method: str, path: str, content: bytes, *, delay_s: float = 0.0
    ) -> httpx.Response:
        hung_up = anyio.Event()
        reply = self._start(method, path, content, hung_up, delay_s=delay_s)
        try:
            await reply.there.wait()
        finally:
            hung_up.set()
        if not reply.status:
            raise httpx.ReadError("the connection was closed")
        return _json(reply.status, reply.body)

    def _start(
        self, method: str, path: str, content: bytes, hung_up: anyio.Event, *, delay_s: float = 0.0
    ) -> Reply:
        reply = Reply()
        self._tasks.start_soon(self._serve, (method, path, content), hung_up, delay_s, reply)
        return reply

    async def _serve(
        self, request: tuple[str, str, bytes], hung_up: anyio.Event, delay_s: float, reply: Reply
    ) -> None:
        method, path, content = request
        if delay_s:
            await anyio.sleep(delay_s)
        plane = self._plane
        status = 0
        parts = [{"type": "http.request", "body": content}]

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop()
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                reply.give(status, message["body"])

        if not plane.is_down:
            scope = {"method": method, "path": path, "query_string": b"", "headers": []}
            with anyio.CancelScope() as life:
                plane.under_way[life] = None
                try:
                    await plane(scope, receive, send)
                finally:
                    plane.under_way.pop(life, None)
        reply.give(0, b"")


def _json(status: int, body: bytes) -> httpx.Response:
    return httpx.Response(status, content=body, headers={"content-type": "application/json"} if body else {})
