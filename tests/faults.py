"""A proxy between an agent and a control plane that loses, cuts and replaces what passes, on command.

It speaks just enough HTTP/1.1: one thread a connection, bodies by their length. `heard` says what it was asked.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


@dataclass
class Rule:
    """What happens to the next `times` requests whose "METHOD /path" matches `match`.

    `forwards` says whether the control plane hears the request. `answer` is sent in place of its answer; without one
    the connection is closed. `reads` False closes as soon as the request is there, unread.
    """

    match: str
    times: int = 1
    forwards: bool = True
    answer: bytes | None = None
    reads: bool = True


@dataclass
class FaultProxy:
    """Listens on a port of its own and passes requests to `upstream` (a URL).

    `idle_s` closes a connection that has been idle for so long. `body_bytes_max` answers 413 with a page to anything
    larger, as a web server in front would; with `cuts` it closes the connection instead. `used` says when a rule was, on
    which connection.
    """

    upstream: str
    idle_s: float = 60.0
    body_bytes_max: int | None = None
    cuts: bool = False
    address: str = "127.0.0.1"
    port: int = 0
    rules: list[Rule] = field(default_factory=list)
    heard: list[tuple[float, int, str, bytes]] = field(default_factory=list)
    used: list[tuple[float, int]] = field(default_factory=list)
    is_down: bool = False

    def __enter__(self) -> Self:
        self._listener = socket.create_server((self.address, self.port))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://{self.address}:{self.port}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._numbers = 0
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone leaves a thread in accept()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection that is open now."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def times_heard(self, match: str) -> int:
        return sum(bool(re.match(match, name)) for _, _, name, _ in list(self.heard))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                connection.close()
                continue
            connection.settimeout(self.idle_s)
            with self._lock:
                self._open.add(connection)
                self._numbers += 1
            threading.Thread(target=self._serve, args=(connection, self._numbers), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            while self._pass_one(connection, number):
                pass
        except (OSError, http.client.HTTPException, ValueError):
            return  # either side has gone: so does this connection
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _pass_one(self, connection: socket.socket, number: int) -> bool:
        first = connection.recv(200, socket.MSG_PEEK).decode("latin-1")
        unread = next((r for r in self.rules if not r.reads and re.match(r.match, first)), None)
        if unread is not None:
            self._used(unread, number)
            # With unread bytes in it, closing resets the connection.
            return False
        head, body = _request(connection)
        name = " ".join(head[0].split()[:2])
        self.heard.append((time.monotonic(), number, name, body))
        rule = next((r for r in self.rules if r.reads and re.match(r.match, name)), None)
        if rule is not None:
            self._used(rule, number)
        if self.body_bytes_max is not None and len(body) > self.body_bytes_max:
            if not self.cuts:
                connection.sendall(page(413))
            return False
        answer = self._upstream_answer(head, body) if rule is None or rule.forwards else b""
        if rule is not None:
            answer = rule.answer or b""
        connection.sendall(answer)
        return bool(answer)

    def _used(self, rule: Rule, number: int) -> None:
        self.used.append((time.monotonic(), number))
        rule.times -= 1
        if rule.times == 0:
            self.rules.remove(rule)

    def _upstream_answer(self, head: list[str], body: bytes) -> bytes:
        at = urlsplit(self.upstream)
        method, path = head[0].split()[:2]
        upstream = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)
        try:
            headers = dict(line.split(": ", 1) for line in head[1:])
            upstream.request(method, path, body, headers | {"Connection": "close"})
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        kept = [
            f"{k}: {v}"
            for k, v in answer.getheaders()
            if k.lower() not in ("connection", "transfer-encoding")
        ]
        status = f"HTTP/1.1 {answer.status} {answer.reason}"
        return "\r\n".join([status, *kept]).encode() + b"\r\n\r\n" + content


def page(status: int, text: str = "<html><body>from a proxy</body></html>", **headers: str) -> bytes:
    """An answer such as a web server in front of a control plane gives."""
    told = {
        "Content-Type": "text/html",
        "Content-Length": str(len(text)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    lines = [f"HTTP/1.1 {status} Because", *(f"{k}: {v}" for k, v in told.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text.encode()


def _request(connection: socket.socket) -> tuple[list[str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        if not part:
            raise ValueError("the client has gone")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    length = next(
        (int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")), 0
    )
    parts, size = [body], len(body)
    while size < length:
        part = connection.recv(1_048_576)
        if not part:
            raise ValueError("the client has gone")
        parts.append(part)
        size += len(part)
    return lines, b"".join(parts)
