"""How the server listens and stops, with a real process and real signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stateous_control.http.server import Address, CannotListen, bind, url_of

PROGRAM = """
import asyncio, sys
from control.http.plane import SilentPlane
from stateous_control.http import server
server.STOP_S = 1

class SlowPlane(SilentPlane):
    async def token(self, name, *, owner="default"):
        await asyncio.sleep(60 if name == "slow" else 0.3)
        return self.view(name)

async def main():
    listener = server.bind(server.Address("127.0.0.1", 0))
    url = server.url_of(listener)
    return await server.serve(SlowPlane(), listener, on_listening=lambda: print(url, flush=True))

sys.exit(0 if asyncio.run(main()) else 1)
"""


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    yield child, child.stdout.readline().strip()
    child.kill()
    child.wait()
    child.stdout.close()


def in_thread(
    answers: list[httpx.Response | Exception], url: str, path: str, **more: object
) -> threading.Thread:
    def ask() -> None:
        try:
            answers.append(httpx.request("POST" if more else "GET", url + path, timeout=30, **more))
        except httpx.HTTPError as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.15)  # it must have arrived; nothing tells from outside that it has
    return thread


WAITING = {"supervisor": "s", "states": ["a"], "request": "r", "instance": "i", "wait": 20}


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_waiting_claims_at_once_and_ends_with_0(
    process: tuple[subprocess.Popen[str], str], kind: signal.Signals
) -> None:
    child, url = process
    answers: list[httpx.Response | Exception] = []
    thread = in_thread(answers, url, "/tasks/claim", json=WAITING)
    began = time.monotonic()
    child.send_signal(kind)
    thread.join()
    assert time.monotonic() - began < 0.2
    [answer] = answers
    assert isinstance(answer, httpx.Response)
    assert (answer.status_code, answer.headers["connection"]) == (204, "close")
    assert child.wait(5) == 0


def test_a_request_that_is_under_way_is_finished(process: tuple[subprocess.Popen[str], str]) -> None:
    child, url = process
    answers: list[httpx.Response | Exception] = []
    thread = in_thread(answers, url, "/tokens/quick")
    child.send_signal(signal.SIGTERM)
    thread.join()
    assert isinstance(answers[0], httpx.Response)
    assert answers[0].status_code == 200
    assert child.wait(5) == 0


def test_a_request_that_takes_too_long_does_not_hold_the_stop(
    process: tuple[subprocess.Popen[str], str],
) -> None:
    child, url = process
    thread = in_thread([], url, "/tokens/slow")
    child.send_signal(signal.SIGTERM)
    assert child.wait(5) == 0
    thread.join()


def test_a_second_signal_ends_now(process: tuple[subprocess.Popen[str], str]) -> None:
    child, url = process
    thread = in_thread([], url, "/tokens/slow")
    child.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    assert child.wait(5) == 1
    assert time.monotonic() - began < 0.5
    thread.join()


def test_nothing_new_is_taken_after_the_signal(process: tuple[subprocess.Popen[str], str]) -> None:
    child, url = process
    thread = in_thread([], url, "/tokens/slow")
    child.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health")
    assert child.wait(5) == 0
    thread.join()


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8080", Address("127.0.0.1", 8080)), ("localhost:0", Address("127.0.0.1", 0)), ("[::1]:80", Address("::1", 80))],
)  # fmt: skip
def test_an_address_of_this_machine_is_read(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:8080", "[::]:8080", "192.168.1.5:80", "example.com:80", "10.0.0.1:1"]
)
def test_an_address_that_others_could_reach_is_known_for_one(text: str) -> None:
    assert not Address.parse(text).is_loopback


@pytest.mark.parametrize(
    "text", ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CannotListen, match="--listen is"):
        Address.parse(text)


def test_a_port_in_use_is_refused_with_a_sentence() -> None:
    with bind(Address("127.0.0.1", 0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(
            CannotListen, match=f"127.0.0.1:{port} cannot be listened on: Address already in use"
        ):
            bind(Address("127.0.0.1", port))


def test_the_listening_socket_says_that_it_is_tcp() -> None:
    with bind(Address("127.0.0.1", 0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert url_of(listener).startswith("http://127.0.0.1:")
