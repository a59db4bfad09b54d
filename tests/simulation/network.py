"""What lies between an agent and the model control plane: it loses, repeats, delays and replaces what passes.

Chance comes from the life's own seeded numbers. The control plane's half of a request runs in the life's task group,
so that it goes on when the agent that asked has been killed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import anyio
import httpx
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from stateous_supervisor.agent.client import Client

from .history import History
from .model import Incoming, Model
from .watch import CLAIM, Watch

HTML = b"<html><body>a proxy on the way</body></html>"
CODES = [500, 502, 503, 504]
WRONG = [b"[]", b"3", b'{"tasks":5}', b'{"lost":"no"}', b'{"results":{}}', b'{"checksum":1}', b"null"]
NAMES = [
    "lost request", "lost answer", "closed before", "closed after", "duplicate", "late request", "slow answer",
    "page", "cut json", "wrong type", "not found", "conflict", "denied", "too many", "server error",
    "wrong grant",
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


class Response:
    """An answer as the agent's door reads it."""

    def __init__(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.content = content
        self.headers = headers or {}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield self.content

    async def aclose(self) -> None:
        """There is no connection."""


class Request(NamedTuple):
    """A request as the agent's door makes it."""

    method: str
    path: str
    content: bytes
    body: dict[str, Any]


class Direct(Client):
    """The agent's door with the network of one process where httpx is.

    What a client of httpx does to a request took as long as all loops of the agent. What it does is held by the tests of the
    client; that a client is given up after a fault, and calls sent anew, happens here as well.
    """

    def __init__(self, network: Network) -> None:
        super().__init__("http://cp", product="simulation")
        self._network = network

    def _open(self) -> Any:
        return self._network

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        return Request(method, path, body or b"", json.loads(body) if body else {})


class Network:
    """Carries the requests of one process of an agent, in the place of a client of httpx.

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

    async def aclose(self) -> None:
        """There are no connections."""

    async def handle_async_request(self, request: Request) -> Response:
        if self._watch.process.ended_at is not None:
            await anyio.sleep_forever()  # it has been killed
        self._watch.sends(request)
        try:
            response = await self._carried(request)
        finally:
            self._watch.returns(request)
        self._watch.hears(request, response.status_code, response.content)
        return response

    async def _carried(self, request: Request) -> Response:
        luck, weather = self._weather.luck, self._weather
        if weather.is_cut(self._box, anyio.current_time()):
            if luck.random() < 0.5:
                await checkpoint()
                raise httpx.ConnectError("no route")
            await anyio.sleep_forever()
        name = weather.draw()
        if name is None:
            return await self._answer(request)
        self._history.fault(name, self._watch.name, request.path)
        act: Callable[..., Any] = getattr(self, "_" + name.replace(" ", "_"))
        response: Response = await act(request)
        return response

    # What can happen to a request.

    async def _lost_request(self, *_: Any) -> Response:
        await anyio.sleep_forever()
        raise AssertionError

    async def _lost_answer(self, request: Request) -> Response:
        """It takes effect, and the connection stays half open."""
        self._start(request, anyio.Event())
        await anyio.sleep_forever()
        raise AssertionError

    async def _closed_before(self, *_: Any) -> Response:
        await checkpoint()
        raise httpx.ReadError("the connection was closed")

    async def _closed_after(self, request: Request) -> Response:
        await self._answer(request)
        raise httpx.ReadError("the connection was closed")

    async def _duplicate(self, request: Request) -> Response:
        self._start(request, anyio.Event(), delay_s=self._weather.span())
        return await self._answer(request)

    async def _late_request(self, request: Request) -> Response:
        return await self._answer(request, delay_s=self._weather.span())

    async def _slow_answer(self, request: Request) -> Response:
        response = await self._answer(request)
        await anyio.sleep(self._weather.span())
        return response

    async def _page(self, request: Request) -> Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(request)
        await checkpoint()
        return Response(200, HTML, {"content-type": "text/html"})

    async def _cut_json(self, request: Request) -> Response:
        response = await self._answer(request)
        body = response.content[: self._weather.luck.randrange(1, max(2, len(response.content)))]
        body = body if response.content else b'{"tas'
        return _json(200, body if body != response.content else b"{")

    async def _wrong_type(self, request: Request) -> Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(request)
        await checkpoint()
        # What happens to be right for this path is not a fault; a list is right nowhere.
        body = self._weather.luck.choice(WRONG)
        return _json(200, body)

    async def _wrong_grant(self, request: Request) -> Response:
        """One grant of an answer is not what was claimed: another state, a task twice, an attempt before, or no grant at all."""
        if request.path != CLAIM:
            return await self._wrong_type(request)
        response = await self._answer(request)
        got = json.loads(response.content or b"{}")
        if not got.get("tasks"):
            return await self._wrong_type(request)
        luck = self._weather.luck
        number = luck.randrange(len(got["tasks"]))
        wrong = dict(got["tasks"][number])
        name, value = luck.choice(
            [("state", "nowhere"), ("attempt", wrong["attempt"] - 1), ("context", []), ("task", "7")]
        )
        if luck.random() < 0.25:
            got["tasks"].append(wrong)
        else:
            got["tasks"][number] = wrong | {name: value}
            if name == "attempt":  # it was over, and nobody here has to know that it ran
                self._history.granted_wrongly.add((wrong["task"], value))
        self._history.add(self._watch.name, "is granted wrongly", None, wrong | {name: value})
        return _json(200, json.dumps(got).encode())

    async def _not_found(self, *_: Any) -> Response:
        await checkpoint()
        if self._weather.luck.random() < 0.5:
            return Response(404, HTML, {"content-type": "text/html"})
        return _json(404, b'{"error":"there is no such path","code":"not_found"}')

    async def _conflict(self, *_: Any) -> Response:
        await checkpoint()
        return _json(409, b'{"detail":"a gateway has another opinion"}')

    async def _denied(self, *_: Any) -> Response:
        await checkpoint()
        return _json(self._weather.luck.choice([401, 403]), b'{"error":"no key","code":"unauthorized"}')

    async def _too_many(self, *_: Any) -> Response:
        await checkpoint()
        after = self._weather.luck.choice(["1", "10", "100000", "soon"])
        return Response(429, b"", {"retry-after": after})

    async def _server_error(self, request: Request) -> Response:
        if self._weather.luck.random() < 0.5:
            await self._answer(request)
        await checkpoint()
        return Response(self._weather.luck.choice(CODES), HTML)

    # The way to the control plane and back.

    async def _answer(self, request: Request, *, delay_s: float = 0.0) -> Response:
        if not delay_s and not request.body.get("wait"):  # it is answered in no time, and nothing can cut it
            await checkpoint()
            reply = Reply()
            await self._pass(request, anyio.Event(), reply)
        else:
            hung_up = anyio.Event()
            reply = self._start(request, hung_up, delay_s=delay_s)
            try:
                await reply.there.wait()
            finally:
                hung_up.set()
                self._plane.changed()
        if not reply.status:
            raise httpx.ReadError("the connection was closed")
        return _json(reply.status, reply.body)

    def _start(self, request: Request, hung_up: anyio.Event, *, delay_s: float = 0.0) -> Reply:
        reply = Reply()
        self._tasks.start_soon(self._serve, request, hung_up, delay_s, reply)
        return reply

    async def _serve(self, request: Request, hung_up: anyio.Event, delay_s: float, reply: Reply) -> None:
        if delay_s:
            await anyio.sleep(delay_s)
        with anyio.CancelScope() as life:
            self._plane.under_way[life] = None
            try:
                await self._pass(request, hung_up, reply)
            finally:
                self._plane.under_way.pop(life, None)
        reply.give(0, b"")

    async def _pass(self, request: Request, hung_up: anyio.Event, reply: Reply) -> None:
        """Have the control plane answer, where it is up."""
        status = 0

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                reply.give(status, message["body"])

        if not self._plane.is_down:
            scope = {"method": request.method, "path": request.path, "query_string": b"", "headers": []}
            await self._plane(scope, Incoming(request.content, hung_up), send)


def _json(status: int, body: bytes) -> Response:
    return Response(status, body, {"content-type": "application/json"} if body else {})
