"""The one page that the agent serves over HTTP: `GET /metrics`, and only where `metrics.listen` says so (A-59).

As little HTTP as a scraper needs: one request a connection, nothing of it is used but its first line. It shows
numbers, never ids, keys or payloads. Nobody who connects can hold the agent up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import SocketStream

from stateous_supervisor.agent.metrics import CONTENT_TYPE

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_S: Final = 5.0
ANSWER_S: Final = 10.0
OPEN_MAX: Final = 16


class MetricsPage:
    """Serves the page.

    Args:
        listen: `HOST:PORT`.
        render: makes the text, at each request.
    """

    def __init__(self, listen: str, render: Callable[[], str]) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._render = render
        self._open = 0

    async def serve(self) -> None:
        """Answer until cancelled.

        Raises:
            OSError: nobody can listen there.
        """
        listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port)
        async with listener:
            await listener.serve(self._attend)

    async def _attend(self, stream: SocketStream) -> None:
        async with stream:
            if self._open >= OPEN_MAX:
                return
            self._open += 1
            try:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
                    await self._answer(stream)
            finally:
                self._open -= 1

    async def _answer(self, stream: SocketStream) -> None:
        request = b""
        with anyio.fail_after(REQUEST_S):
            while b"\r\n\r\n" not in request and len(request) <= REQUEST_BYTES_MAX:
                request += await stream.receive()
        with anyio.fail_after(ANSWER_S):
            await stream.send(self.answer(request))

    def answer(self, request: bytes) -> bytes:
        """Return the whole answer to a request."""
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _answer("404 Not Found", "Only /metrics is here.\n")
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", "Only GET.\n", "Allow: GET, HEAD\r\n")
        return _answer("200 OK", self._render(), is_head=method == b"HEAD")


def _answer(status: str, text: str, more: str = "", *, is_head: bool = False) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}Connection: close\r\n\r\n".encode() + (b"" if is_head else body)
