"""The door to HTTP: what an answer is before anybody reads it (A-37, A-49, A-53, BH-034)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import anyio
import httpx
import pytest
import respx

from stateous_supervisor.agent.client import Answer, Client, options_for, seconds_of
from stateous_supervisor.agent.faults import Denied, PeerViolation, Unreachable

URL = "http://cp.example"


def ask(
    path: str = "/health", *, deadline_s: float = 5.0, bytes_max: int = 1000, url: str = URL, **more: object
) -> Answer:
    async def main() -> Answer:
        client = Client(url, product="agent/1", options=options_for(url), **more)  # type: ignore[arg-type]
        try:
            return await client.call("POST", path, b"{}", deadline_s=deadline_s, bytes_max=bytes_max)
        finally:
            await client.close()

    return anyio.run(main)


@respx.mock
def test_an_answer_is_status_body_and_whether_it_is_json() -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(200, json={"a": 1}))

    assert ask() == Answer(200, b'{"a":1}', is_json=True)


@respx.mock
def test_a_refusal_is_an_answer_too() -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(409, json={"code": "attempt_over"}))

    assert ask().status == 409


@respx.mock
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_these_statuses_are_no_answer_a_37(status: int) -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(status, json={"error": "x", "code": "y"}))

    with pytest.raises(Unreachable, match=str(status)):
        ask()


@respx.mock
def test_retry_after_is_told_a_37() -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(503, headers={"retry-after": "7"}))

    with pytest.raises(Unreachable) as caught:
        ask()

    assert caught.value.asked_s == 7.0


@respx.mock
@pytest.mark.parametrize("value", ["soon", "-5", "Wed, 21 Oct 2015 07:28:00 GMT", "1e9"])
def test_a_retry_after_that_is_no_number_of_seconds_is_nothing(value: str) -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(503, headers={"retry-after": value}))

    with pytest.raises(Unreachable) as caught:
        ask()

    assert caught.value.asked_s is None


@pytest.mark.parametrize(
    ("value", "date", "asked_s"),
    [
        ("7", None, 7.0),
        (" 7 ", None, 7.0),
        ("0", None, 0.0),
        ("999999999", None, 999_999_999.0),
        ("9" * 400, None, 999_999_999_999.0),
        ("-1", None, None),
        ("+7", None, None),
        ("soon", None, None),
        ("", None, None),
        ("\u0667", None, None),
        (None, None, None),
        ("Wed, 21 Oct 2015 07:28:07 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", 7.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:07 GMT", None, None),
        ("Wed, 21 Oct 2015 07:28:07 GMT", "garbage", None),
        ("Wed, 21 Oct 2015 07:28:07 GMT", "Wed, 21 Oct 2015 07:28:00", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_clock_bh_035(
    value: str | None, date: str | None, asked_s: float | None
) -> None:
    """BH-011: our own clock, which may be years off, is not asked."""
    assert seconds_of(value, date) == asked_s


@respx.mock
@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_is_denied(status: int) -> None:
    respx.post(f"{URL}/health").mock(return_value=httpx.Response(status))

    with pytest.raises(Denied):
        ask()


@respx.mock
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_is_no_success_a_49(status: int) -> None:
    elsewhere = respx.route(host="other.example").mock(return_value=httpx.Response(200, json={}))
    respx.post(f"{URL}/health").mock(
        return_value=httpx.Response(status, headers={"location": "http://other.example/"})
    )

    with pytest.raises(PeerViolation, match=r"other\.example"):
        ask()

    assert not elsewhere.called


@respx.mock
def test_a_body_beyond_the_limit_is_not_read_a_53() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    respx.post(f"{URL}/health").mock(return_value=httpx.Response(200, content=endless()))

    with pytest.raises(PeerViolation, match="more than 5000 bytes"):
        ask(bytes_max=5000)


@respx.mock
@pytest.mark.parametrize(
    "error",
    [httpx.ConnectError("no"), httpx.ConnectTimeout("no"), httpx.PoolTimeout("no"), httpx.ProxyError("no")],
)
def test_no_connection_is_unreachable_and_tried_once(error: Exception) -> None:
    route = respx.post(f"{URL}/health").mock(side_effect=error)

    with pytest.raises(Unreachable, match="cannot be reached"):
        ask()

    assert route.call_count == 1


@respx.mock
@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadError("reset"),
        httpx.WriteError("pipe"),
        httpx.RemoteProtocolError("closed"),
        httpx.CloseError("x"),
    ],
)
def test_a_connection_that_broke_costs_one_repeat_at_once_bh_034(error: Exception) -> None:
    route = respx.post(f"{URL}/health").mock(side_effect=[error, httpx.Response(200, json={})])

    assert ask().status == 200
    assert route.call_count == 2


@respx.mock
def test_a_connection_that_breaks_again_is_unreachable() -> None:
    route = respx.post(f"{URL}/health").mock(side_effect=httpx.ReadError("reset"))

    with pytest.raises(Unreachable):
        ask()

    assert route.call_count == 2


@respx.mock
def test_the_key_goes_into_the_header_and_is_asked_for_each_time() -> None:
    route = respx.post(f"{URL}/health").mock(return_value=httpx.Response(204))
    keys = iter(["one", "two"])

    async def main() -> None:
        client = Client(URL, product="agent/1", key=lambda: next(keys))
        for _ in range(2):
            await client.call("POST", "/health", deadline_s=5, bytes_max=10)
        await client.close()

    anyio.run(main)

    assert [call.request.headers["authorization"] for call in route.calls] == ["Bearer one", "Bearer two"]


@respx.mock
def test_a_path_is_added_to_the_urls_own() -> None:
    route = respx.post(f"{URL}/prefix/health").mock(return_value=httpx.Response(204))

    ask(url=f"{URL}/prefix")

    assert route.called


@contextmanager
def server(*behaviours: Callable[[socket.socket], None]) -> Iterator[str]:
    """Each connection gets the next behaviour, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for behave in behaviours:
            connection, _ = listening.accept()
            with connection:
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
    thread.join(5)


def answered(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def read_and_closed(connection: socket.socket) -> None:
    connection.recv(65536)


def answered_and_reset_at_the_next(connection: socket.socket) -> None:
    answered(connection)
    connection.recv(1)  # the first byte of the next request; the rest is unread, so the close is a reset


def test_a_request_that_was_read_and_not_answered_is_sent_again_at_once_bh_034() -> None:
    with server(read_and_closed, answered) as url:
        assert ask(url=url, deadline_s=2).status == 204


def test_a_kept_connection_that_is_reset_under_a_request_costs_one_repeat_bh_034() -> None:
    async def main(url: str) -> list[int]:
        client = Client(url, product="agent/1", options=options_for(url))
        statuses = [
            (await client.call("POST", "/x", b"{}", deadline_s=2, bytes_max=10)).status for _ in range(2)
        ]
        await client.close()
        return statuses

    with server(answered_and_reset_at_the_next, answered) as url:
        assert anyio.run(main, url) == [204, 204]


def test_a_server_that_says_nothing_costs_the_deadline_and_no_more() -> None:
    over = threading.Event()

    def silent(_: socket.socket) -> None:
        over.wait(5)

    with server(silent) as url:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.2 s"):
            ask(url=url, deadline_s=0.2)
        over.set()


def test_what_is_no_http_is_unreachable() -> None:
    def nonsense(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    with server(nonsense, nonsense) as url, pytest.raises(Unreachable):
        ask(url=url)


def test_without_https_no_certificates_are_loaded() -> None:
    assert options_for("http://cp")["verify"].cert_store_stats()["x509"] == 0


def test_with_https_certificates_are_checked() -> None:
    context = options_for("https://cp")["verify"]

    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"


def test_a_ca_file_that_is_not_there_is_an_error(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OSError, match="No such file"):
        options_for("https://cp", ca_file=tmp_path / "none.pem")


@respx.mock
def test_an_alert_of_tls_after_the_handshake_is_unreachable_a_49() -> None:
    """It comes past httpx, as an error of OpenSSL; with TLS 1.3 so does the want of a client certificate."""
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    route = respx.post(f"{URL}/health").mock(side_effect=alert)

    with pytest.raises(Unreachable, match="asks for a client certificate"):
        ask()

    assert route.call_count == 2
