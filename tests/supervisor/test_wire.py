"""What a request costs the way there: one write, whatever httpcore makes of it (ADR 46)."""

from __future__ import annotations

import socket
import threading

import anyio
import pytest
from supervisor.calling import with_client
from supervisor.peers import Peer

from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.wire import GATHERED_BYTES_MAX, Stream

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
REQUESTS = 20


class Inner:
    """A connection of httpcore's that remembers what was written."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.written: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return b"answer"

    def get_extra_info(self, info: str) -> object:
        return self.sock if info == "socket" else info


def test_requests_leave_as_one_write_each() -> None:
    """Each is read at once, head and body, by a server that reads as soon as there is anything."""
    first_reads: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            for _ in range(REQUESTS):
                first_reads.append(connection.recv(65_536))
                got = first_reads[-1]
                while not got.endswith(b"{}"):
                    got += connection.recv(65_536)
                connection.sendall(ANSWER)

    async def main(client: Client) -> None:
        for _ in range(REQUESTS):
            assert (await client.call("POST", "/x", b"{}", deadline_s=20, bytes_max=10)).status == 204

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        with_client(f"http://127.0.0.1:{listening.getsockname()[1]}", main)
        thread.join(20)

    assert len(first_reads) == REQUESTS
    assert all(read.startswith(b"POST /x ") and read.endswith(b"{}") for read in first_reads)


@pytest.mark.parametrize("size", [1, GATHERED_BYTES_MAX, 3 * GATHERED_BYTES_MAX])
def test_a_large_body_goes_through_as_it_is(size: int) -> None:
    bodies: list[bytes] = []

    async def main(client: Client) -> None:
        await client.call("POST", "/x", b"x" * size, deadline_s=20, bytes_max=1_000)

    with Peer() as peer:
        with_client(peer.url, main)
        bodies = [heard.body for heard in peer.heard]

    assert bodies == [b"x" * size]


def test_an_idle_connection_is_readable_when_the_other_side_closed_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = Stream(Inner(ours))
        assert stream.get_extra_info("is_readable") is False
        assert stream.get_extra_info("ssl_object") == "ssl_object"
        theirs.close()
        assert stream.get_extra_info("is_readable") is True


def test_what_is_larger_than_is_gathered_follows_what_was_kept() -> None:
    large = b"x" * GATHERED_BYTES_MAX

    async def main(inner: Inner) -> None:
        stream = Stream(inner)
        await stream.write(b"head ")
        await stream.write(large)
        assert inner.written == [b"head ", large]
        await stream.write(b"one ")
        await stream.write(b"two")
        assert inner.written == [b"head ", large]
        assert await stream.read(10) == b"answer"
        assert inner.written == [b"head ", large, b"one two"]

    ours, theirs = socket.socketpair()
    with ours, theirs:
        anyio.run(main, Inner(ours))
