"""Strangers who send too much or too slowly: what they hold is bounded, and nobody else waits for them."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

import pytest
from programs import wait_for
from structlog.testing import capture_logs

from stateous_control.http import arriving

if TYPE_CHECKING:
    from control.http.conftest import Running

HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1 << 20


def connected(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.http.base_url.port), timeout=20)


def sent(connection: socket.socket, part: bytes, bytes_max: int) -> int:
    """Send the part again and again until the other side hangs up, and return how many bytes it took."""
    total = 0
    try:
        while total < bytes_max:
            connection.sendall(part)
            total += len(part)
    except OSError:
        pass
    return total


@pytest.mark.parametrize(
    ("beginning", "part"),
    [(HEAD, b"X-Nothing: 1\r\n" * 1000), (HEAD + b"X-Nothing: ", b"a" * 16_000), (b"GET /", b"a" * 16_000)],
    ids=["lines", "one line", "address"],
)  # fmt: skip
def test_a_head_without_end_is_cut_off(running: Running, beginning: bytes, part: bytes) -> None:
    with connected(running) as stranger:
        stranger.sendall(beginning)

        assert sent(stranger, part, 64 * MIB) < 16 * MIB  # what the two kernels hold


@pytest.mark.parametrize(
    "part", [b"1;" + b"e" * 16_000 + b"\r\na\r\n", b"0\r\nX: " + b"a" * 16_000], ids=["chunks", "trailers"]
)
def test_frames_without_end_are_cut_off(running: Running, part: bytes) -> None:
    with connected(running) as stranger:
        stranger.sendall(CHUNKED)

        assert sent(stranger, part, 128 * MIB) < 64 * MIB


def test_a_large_head_is_answered_431(running: Running) -> None:
    with connected(running) as stranger:
        stranger.sendall(HEAD)
        for _ in range(
            100
        ):  # a little at a time: what is sent after the answer would make the kernel drop it
            stranger.sendall(b"X-Nothing: " + b"a" * 4_000 + b"\r\n")
            if select.select([stranger], [], [], 0.05)[0]:
                break

        assert stranger.recv(100).startswith(b"HTTP/1.1 431 ")


def test_requests_that_arrive_together_are_each_counted_alone(running: Running) -> None:
    one = HEAD + b"X-Nothing: " + b"a" * 1000 + b"\r\n"
    with connected(running) as stranger:
        stranger.sendall((one + b"\r\n") * 300 + one + b"Connection: close\r\n\r\n")
        answers = b"".join(iter(lambda: stranger.recv(65_536), b""))

    assert answers.count(b"HTTP/1.1 200 OK") == 301


@pytest.mark.parametrize(
    "beginning", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nhalf"], ids=["nothing", "head", "body"]
)
def test_a_request_that_does_not_arrive_is_hung_up_on(
    running: Running, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(arriving, "ARRIVAL_S", 0.3)
    with connected(running) as stranger:
        stranger.sendall(beginning)
        told = b""
        try:
            while more := stranger.recv(65_536):
                told += more
        except ConnectionResetError:
            pass

    assert told.count(b"HTTP/1.1 ") <= 1  # what needs no body may be answered before


def test_a_request_that_waits_for_its_answer_has_arrived(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "ARRIVAL_S", 0.2)
    claim = {"supervisor": "box", "states": ["a"], "request": "1", "wait": 1}

    assert running.http.post("/tasks/claim", json=claim).status_code in (200, 204)


def test_malformed_requests_are_told_at_once_and_then_by_their_count(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a request nor its sender can make a line each; an upgrade that nobody does makes none."""
    monkeypatch.setattr(arriving, "TOLD_EVERY_S", 1.0)
    began = time.monotonic()
    with capture_logs() as told:
        for _ in range(50):
            with connected(running) as stranger:
                stranger.sendall(b"Bearer of-a-secret\r\n\r\n")
                assert stranger.recv(65_536).startswith(b"HTTP/1.1 400 ")
        running.http.get("/health", headers={"Connection": "Upgrade", "Upgrade": "x"})
        wait_for(lambda: sum(each["count"] for each in told) == 50, within_s=30, what="the last line")

    assert [told[0][key] for key in ("event", "count", "address")] == ["requests.malformed", 1, "127.0.0.1"]
    assert len(told) <= 2 + time.monotonic() - began
    assert "secret" not in repr(told)
    assert [each.getMessage() for each in caplog.records] == []
