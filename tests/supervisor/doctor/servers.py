"""Servers on a free port of loopback that speak TLS, or nothing sensible, for tests of the way to a control plane."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Give each connection to `serve` in turn; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.settimeout(5)
                with connection, contextlib.suppress(OSError):
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def over_tls(context: ssl.SSLContext) -> Callable[[socket.socket], None]:
    """Answer one request over TLS."""

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(ANSWER)

    return serve


def in_clear(connection: socket.socket) -> None:
    """Answer one request in plain http."""
    connection.recv(4096)
    connection.sendall(ANSWER)
