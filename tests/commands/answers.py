"""A web server that answers as it is told, or never: for commands that ask a control plane."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.request.settimeout(20)
        self.request.recv(65_536)
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.server.heard()
        if answer:
            self.request.sendall(answer)
        else:
            self.request.recv(1)  # until the other side has gone


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, answers: list[bytes], heard: Callable[[], object]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answers = answers
        self.heard = heard


def said(value: object, status: int = 200) -> bytes:
    """Return an answer with a JSON value."""
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def refusal(status: int, code: str) -> bytes:
    """Return the answer of a control plane that refuses."""
    return said({"error": f"that is {code}", "code": code}, status)


@contextmanager
def answering(*answers: bytes, heard: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Yield the URL of a server that gives one answer after the other, then the last one always; an empty one is none.

    `heard` is called before each of them.
    """
    with _Server(list(answers), heard) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
