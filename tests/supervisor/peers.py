"""Real servers on loopback for tests of the way there: one that answers, in clear or over TLS, and a proxy in front."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import trustme

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Heard:
    """One request: on which connection it came, and what it said."""

    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def tls_of(leaf: trustme.LeafCert) -> ssl.SSLContext:
    """Return what a server needs that shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context


def nothing(_: Heard) -> Answer:
    return 200, {"content-type": "application/json"}, b"{}"


def says(status: int, text: str = "", **headers: str) -> Callable[[Heard], Answer]:
    return lambda _: (
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        text.encode(),
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread: a client that refuses holds up nobody."""
        if self.context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(5)
        with self.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


@dataclass
class Peer:
    """Answers every request with `answer`, keeps connections, and remembers what it heard.

    `context` may be exchanged under way: it counts from the next connection on.
    """

    address: str = "127.0.0.1"
    port: int = 0
    context: ssl.SSLContext | None = None
    answer: Callable[[Heard], Answer] = nothing
    heard: list[Heard] = field(default_factory=list)
    open: dict[int, socket.socket] = field(default_factory=dict)
    connections: int = 0

    def __enter__(self) -> Self:
        kind = _Server6 if ":" in self.address else _Server
        self._server = kind((self.address, self.port), self._handler())
        self._server.context = self.context
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def use(self, context: ssl.SSLContext) -> None:
        self._server.context = context

    def cut(self) -> None:
        """Close what is open now."""
        for connection in list(self.open.values()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://localhost:{self.port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                peer.connections += 1
                self.number = peer.connections
                peer.open[self.number] = self.connection

            def finish(self) -> None:
                peer.open.pop(self.number, None)
                super().finish()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def do_CONNECT(self) -> None:
                peer.tunnel(self)

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                heard = Heard(self.number, self.command, self.path, headers, body)
                peer.heard.append(heard)
                status, told, content = peer.answer(heard)
                self.send_response(status)
                for name, value in told.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        for method in ("GET", "POST", "PUT"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return Handler

    def tunnel(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(405)


@dataclass
class Proxy(Peer):
    """A proxy: it tunnels for https, forwards for http, and asks for `password` (`user:password`) if it has one."""

    password: str | None = None
    tunnels: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answer = self._forward

    @property
    def url(self) -> str:
        named = f"{self.password}@" if self.password else ""
        return f"http://{named}127.0.0.1:{self.port}"

    def _refuses(self, headers: Any) -> bool:
        if self.password is None:
            return False
        wanted = "Basic " + base64.b64encode(self.password.encode()).decode()
        return bool(headers.get("proxy-authorization") != wanted)

    def _forward(self, heard: Heard) -> Answer:
        if self._refuses(heard.headers):
            return 407, {"content-type": "text/html"}, b"<html>who are you?</html>"
        at = urlsplit(heard.path)
        upstream = http.client.HTTPConnection(str(at.hostname), at.port, timeout=10)
        try:
            kept = {k: v for k, v in heard.headers.items() if k not in ("proxy-authorization", "connection")}
            upstream.request(heard.method, at.path, heard.body, kept)
            answer = upstream.getresponse()
            content = answer.read()
        except OSError:
            return 502, {"content-type": "text/html"}, b"<html>no way there</html>"
        finally:
            upstream.close()
        return answer.status, {"content-type": answer.getheader("content-type", "")}, content

    def tunnel(self, handler: BaseHTTPRequestHandler) -> None:
        if self._refuses(handler.headers):
            handler.send_error(407)
            return
        self.tunnels.append(handler.path)
        host, _, port = handler.path.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), 10) as far:
            handler.send_response(200)
            handler.end_headers()
            _pass_bytes(handler.connection, far)
        handler.close_connection = True


def _pass_bytes(near: socket.socket, far: socket.socket) -> None:
    ends = {near: far, far: near}
    while True:
        ready, _, _ = select.select(list(ends), [], [], 30)
        for end in ready:
            data = end.recv(65_536)
            if not data:
                return
            ends[end].sendall(data)
        if not ready:
            return


@contextlib.contextmanager
def names(monkeypatch: Any, **addresses: str) -> Iterator[dict[str, str]]:
    """Let each name (`cp_example` for cp.example) stand for an address, which may be changed under way."""
    table = {name.replace("_", "."): address for name, address in addresses.items()}
    ask = socket.getaddrinfo

    def answer(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        found = table.get(name, name)
        if found == "":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ask(found, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", answer)
        yield table


def health(**more: Any) -> Callable[[Heard], Answer]:
    text = json.dumps({"workflow": "w", "checksum": "sha256:x", **more}).encode()
    return lambda _: (200, {"content-type": "application/json"}, text)
