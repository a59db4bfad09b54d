"""`FakeControlPlane`: the agreement over dicts, as an ASGI app that can be told to misbehave. The agent's tests use it.

It is kept honest by the same conformance suite as the control plane. Whatever is due by `clock` is done when the next
request comes, so a test's jumping clock is all the time there is. `serving` puts it on a real socket.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import anyio
import httpx
import uvicorn
from fake_lives import Json, checked
from fake_reports import Reports
from fake_requests import parsed
from stateous_contract.codes import Code, Refused

ROUTES = [
    ("GET", r"/health", "health"),
    ("GET", r"/workflow", "workflow"),
    ("POST", r"/tokens", "start"),
    ("GET", r"/tokens", "list_tokens"),
    ("GET", r"/tokens/([^/]+)", "show"),
    ("GET", r"/tokens/([^/]+)/history", "history"),
    ("POST", r"/tokens/([^/]+)/events/([^/]+)", "fire"),
    ("POST", r"/tokens/([^/]+)/(pause|resume|cancel)", "steer"),
    ("POST", r"/tasks/claim", "claim"),
    ("POST", r"/tasks/heartbeat", "heartbeat"),
    ("POST", r"/tasks/messages", "messages"),
    ("POST", r"/tasks/(\d+)/report", "report"),
    ("POST", r"/tasks/(\d+)/note", "note"),
    ("PUT", r"/tasks/(\d+)/memory", "memory"),
]


@dataclass
class Fault:
    """One way to misbehave, for the next `times` requests whose "METHOD /path" matches `match`.

    `is_done` True lets the request take effect first, so that only its answer is lost or replaced.
    """

    match: str
    times: int = 1
    status: int | None = None
    retry_after: str | None = None
    date: str | None = None
    body: bytes = b"<html>proxy</html>"
    delay_s: float = 0.0
    closes: bool = False
    is_done: bool = False


@dataclass
class Heard:
    """One request, as it came."""

    at: float
    method: str
    path: str
    body: Any


class FakeControlPlane(Reports):
    """An ASGI app. `faults` are used up in order; `heard` keeps every request; `stopping` answers waiting claims.

    Args:
        features: what ``/health`` offers; with an empty tuple it speaks the baseline alone.
        clock: seconds since 1970; must run in step with anyio's own.
    """

    def __init__(self, document: Json | None = None, **settings: Any) -> None:
        super().__init__(document, **settings)
        self.faults: list[Fault] = []
        self.heard: list[Heard] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def on_socket(self) -> bool:
        return self.loop is not None

    def start(self, token: str, **context: Any) -> None:
        """Start a token as a request would, from any thread: where `serving` serves, its thread does it."""

        async def started() -> None:
            self._start({"token": token, "context": context})
            self._wake()

        if self.loop is None:
            self._start({"token": token, "context": context})
        else:
            asyncio.run_coroutine_threadsafe(started(), self.loop).result(30)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def __call__(self, scope: Json, receive: Any, send: Any) -> None:
        content = b""
        while (part := await receive())["type"] == "http.request":
            content += part.get("body", b"")
            if not part.get("more_body"):
                break
        name = f"{scope['method']} {scope['path']}"
        fault = next((f for f in self.faults if re.match(f.match, name)), None)
        if fault is None:
            await self._answered(scope, content, receive, send)
            return
        fault.times -= 1
        if fault.times == 0:
            self.faults.remove(fault)
        await self._misbehave(fault, scope, content, receive, send)

    async def _misbehave(self, fault: Fault, scope: Json, content: bytes, receive: Any, send: Any) -> None:
        async def unsent(message: Any) -> None:
            """Take an answer and let nobody hear it."""

        await anyio.sleep(fault.delay_s)
        if fault.is_done:
            await self._answered(scope, content, receive, unsent)
        else:
            self.heard.append(Heard(self.clock(), scope["method"], scope["path"], content))
        if fault.closes and not self.on_socket:
            raise httpx.ReadError("the connection was closed")
        if fault.closes:  # A body shorter than it says makes the server close the connection.
            await sent(send, 200, b"", {"content-length": "10"})
        elif fault.status is not None:
            told = {"retry-after": fault.retry_after, "date": fault.date}
            extra = {name: value for name, value in told.items() if value is not None}
            await sent(send, fault.status, fault.body, extra)
        elif not fault.is_done:
            await self._answered(scope, content, receive, send)

    async def _answered(self, scope: Json, content: bytes, receive: Any, send: Any) -> None:
        heard = Heard(self.clock(), scope["method"], scope["path"], content)
        self.heard.append(heard)
        self.tick()
        try:
            status, body = await self._routed(scope, heard, receive)
        except Refused as refused:
            status, body = refused.code.status, {"error": refused.sentence, "code": refused.code.wire}
        self._wake()
        text = b"" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        extra = {"location": scope["path"].rstrip("/")} if status == 307 else {}
        await sent(send, status, b"" if scope["method"] == "HEAD" else text, extra)

    async def _routed(self, scope: Json, heard: Heard, receive: Any) -> tuple[int, Any]:
        path, method = scope["path"], "GET" if scope["method"] == "HEAD" else scope["method"]
        found = [(m, re.fullmatch(pattern, path), name) for m, pattern, name in ROUTES]
        there = [(m, match, name) for m, match, name in found if match]
        if not there and path != "/" and path.endswith("/"):
            return 307, None
        checked(there, Code.NOT_FOUND, f"there is no {path}")
        right = [(match, name) for m, match, name in there if m == method]
        checked(right, Code.METHOD_NOT_ALLOWED, f"{path} does not take {method}")
        match, name = right[0]
        if method == "GET" or name == "steer":
            query = {
                k: v[-1] for k, v in parse_qs(scope["query_string"].decode(), keep_blank_values=True).items()
            }
            answer = getattr(self, f"_{name}")(*match.groups(), query)
        elif name == "claim":
            return await self._claim(self._told(heard), receive)
        else:
            headers = {k.decode().lower(): v.decode("latin-1") for k, v in scope["headers"]}
            more = (headers,) if name == "fire" else ()
            answer = getattr(self, f"_{name}")(*match.groups(), self._told(heard), *more)
        return answer if isinstance(answer, tuple) else (200, answer)

    def _told(self, heard: Heard) -> Json:
        heard.body = parsed(heard.body)
        return dict(heard.body)


async def sent(send: Any, status: int, body: bytes, headers: dict[str, str]) -> None:
    """Send one whole answer."""
    told = {"content-type": "application/json"} | headers if body else headers
    raw = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(fake: FakeControlPlane) -> Iterator[str]:
    """Serve `fake` on a free port, in a thread, and give its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(fake, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    is_there = threading.Event()

    async def serve() -> None:
        fake.loop = asyncio.get_running_loop()
        is_there.set()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    is_there.wait()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        fake.stopping = True
        server.should_exit = True
        thread.join()
        fake.loop = None
        listening.close()
