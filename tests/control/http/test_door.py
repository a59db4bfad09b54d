"""What the door decides by itself: routing, sizes, encodings, codes and headers of A.0, over real HTTP."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from control.http.conftest import Running
from stateous_contract.codes import Code, Refused

from stateous_control.store.failures import Unavailable


def raw(running: Running, request: bytes) -> bytes:
    """Send bytes and return everything that comes back until the server closes or is silent."""
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=2) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def refused(response: httpx.Response) -> tuple[int, str]:
    """Return status and code of a refusal, and check its shape."""
    body = response.json()
    assert set(body) == {"error", "code"}
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["code"]


@pytest.mark.parametrize(
    "path", ["/nope", "/", "/tokens/a%2Fb", "/tasks/abc/report", "/tasks/-1/report", "/tasks/1.0/note", "/tasks/%D9%A1/note",
             "/tokens/a/history/b", "/tasks//report", "/tokens/../health", "/%2e%2e/etc/passwd"],
)  # fmt: skip
def test_a_path_that_does_not_exist_is_not_found(running: Running, path: str) -> None:
    """BH-054"""
    answer = raw(running, f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404")
    assert b'"code":"not_found"' in answer


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/tokens"), ("POST", "/health"), ("GET", "/tasks/claim"), ("PUT", "/tasks/1/note")],
)
def test_another_method_is_not_allowed(running: Running, method: str, path: str) -> None:
    response = running.http.request(method, path)
    assert refused(response) == (405, "method_not_allowed")
    assert "allow" not in response.headers


def test_head_answers_like_get_without_a_body(running: Running) -> None:
    response = running.http.head("/health")
    assert (response.status_code, response.content) == (200, b"")


def test_a_trailing_slash_is_sent_to_the_path_without_it(running: Running) -> None:
    response = running.http.get("/tokens/")
    assert (response.status_code, response.headers["location"]) == (307, f"{running.url}/tokens")


def test_answers_are_compact_json_and_nothing_sniffs_their_type(running: Running) -> None:
    response = running.http.get("/health")
    assert response.content == b'{"workflow":"w","checksum":"sha256:0"}'
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "server" not in response.headers


def test_a_users_value_comes_back_as_the_text_it_came_as(running: Running) -> None:
    body = '{"token":"a","context":{"é":"\\u00e9","n":1.0,"big":123456789012345678901234567890}}'.encode()
    assert (
        b'"context":{"\xc3\xa9":"\\u00e9","n":1.0,"big":123456789012345678901234567890}'
        in running.http.post("/tokens", content=body).content
    )


def test_the_largest_body_is_taken(running: Running) -> None:
    body = json.dumps({"token": "a", "context": {"x": ""}}).encode()
    body = body.replace(b'""', b'"' + b"x" * (1_048_576 - len(body)) + b'"')
    assert len(body) == 1_048_576
    assert running.http.post("/tokens", content=body).status_code == 201


def chunks(count: int) -> Iterator[bytes]:
    yield b'{"token":"'
    for _ in range(count):
        yield b"a" * 65_536
    yield b'"}'


@pytest.mark.parametrize("content", [b" " * 1_048_577, chunks(16)], ids=["with a length", "in chunks"])
def test_a_larger_body_is_refused(running: Running, content: bytes | Iterator[bytes]) -> None:
    assert refused(running.http.post("/tokens", content=content)) == (413, "bad_request")
    assert running.plane.asked == []


def test_a_length_of_nineteen_digits_is_too_large(running: Running) -> None:
    answer = raw(
        running, b"POST /tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000000000\r\n\r\n{}"
    )
    assert answer.startswith(b"HTTP/1.1 413")


def test_messages_may_be_eight_times_as_large(running: Running) -> None:
    body: dict[str, Any] = {"supervisor": "s", "instance": "i", "messages": [], "padding": "x" * 7_000_000}
    assert running.http.post("/tasks/messages", json=body).status_code == 200
    body["padding"] *= 2
    assert refused(running.http.post("/tasks/messages", json=body)) == (413, "bad_request")


@pytest.mark.parametrize("content", [b"", b" \n ", b"{}"])
def test_an_empty_body_is_an_empty_object(running: Running, content: bytes) -> None:
    assert refused(running.http.post("/tokens", content=content)) == (422, "invalid_token_id")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_other_encodings_of_json_are_taken(running: Running, encoding: str) -> None:
    assert running.http.post("/tokens", content='{"token":"a"}'.encode(encoding)).status_code == 201


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"[1]", 422, "invalid_body"),
        (b"null", 422, "invalid_body"),
        (b"{nope", 400, "bad_request"),
        (b'{"token":"a","context":{"n":NaN}}', 400, "bad_request"),
        (b'{"token":"a","context":{"n":1e999}}', 422, "invalid_context"),
        (b'{"token":"a","unknown":1e999}', 201, None),
        (b'{"token":"a","context":{"n":' + b"9" * 4301 + b"}}", 400, "bad_request"),
        (b'{"token":"a","context":' + b'{"a":' * 64 + b"1" + b"}" * 65, 400, "bad_request"),
        (b'{"token":"a","context":{"x":"\\ud800"}}', 400, "bad_request"),
        (b'{"token":"a","context":{"x":"\\u0000"}}', 400, "bad_request"),
        (b'{"token":"a\\u0000"}', 400, "bad_request"),
        (b'{"token":"a","context":[1]}', 422, "invalid_context"),
        (b'{"token":"a","context":null}', 201, None),
        (b'{"token":"-a"}', 422, "invalid_token_id"),
        (b'{"token":"a\\n"}', 422, "invalid_token_id"),
        (b'{"token":"\xc3\xa4"}', 422, "invalid_token_id"),
        (b'{"token":"' + b"a" * 129 + b'"}', 422, "invalid_token_id"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_the_door(
    running: Running, content: bytes, status: int, code: str | None
) -> None:
    response = running.http.post("/tokens", content=content)
    assert response.status_code == status
    assert response.json().get("code") == code
    assert len(running.plane.asked) == (1 if code is None else 0)


@pytest.mark.parametrize("digits", ["9223372036854775808", "9" * 4301, "1" + "0" * 30])
def test_a_task_id_beyond_the_largest_is_not_found(running: Running, digits: str) -> None:
    """The baseline answers 500 to a path of more than 4300 digits."""
    assert refused(running.http.post(f"/tasks/{digits}/note", json={"text": "x"})) == (404, "task_not_found")


@pytest.mark.parametrize("zeros", [30, 5_000])
def test_leading_zeros_do_not_change_a_task_id(running: Running, zeros: int) -> None:
    """BH-054: also more than Python reads as a number."""
    assert running.http.post(f"/tasks/{'0' * zeros}7/note", json={"text": " x "}).status_code == 204
    assert running.plane.asked == [("note", (7, "x", None))]


@pytest.mark.parametrize(
    "path",
    [
        "/tokens/a%00b",
        "/tokens/a%00/history",
        "/%00",
        "/tokens?parent=a%00b",
        "/tokens/%0a",
        "/tokens/%ff%fe",
    ],
)
def test_a_nul_in_a_path_or_query_is_a_client_error(running: Running, path: str) -> None:
    assert 400 <= running.http.get(path).status_code < 500
    assert running.plane.asked == []


@pytest.mark.parametrize(
    "query", ["status=done", "status=", "limit=0", "limit=1001", "limit=-1", "limit=1e3", "limit=", "limit=%D9%A1", "limit=" + "9" * 5000,
              "parent=", "parent=" + "a" * 129, "limit=10;select pg_sleep(5)"],
)  # fmt: skip
def test_a_bad_query_is_refused(running: Running, query: str) -> None:
    """BH-054"""
    assert refused(running.http.get(f"/tokens?{query}")) == (422, "invalid_argument")


@pytest.mark.parametrize("key", ["", "k" * 257, "a\tb"])
def test_a_bad_idempotency_key_is_refused(running: Running, key: str) -> None:
    response = running.http.post("/tokens/a/events/e", headers={"Idempotency-Key": key})
    assert refused(response) == (422, "invalid_payload")


def test_a_mistake_of_ours_is_told_without_its_text(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    running.plane.raises = ValueError("a secret of the inside")
    response = running.http.post("/tokens", json={"token": "a"})
    assert refused(response) == (500, "unexpected")
    assert "secret" not in response.text
    running.plane.raises = None
    assert running.http.get("/tokens/a").status_code == 200, "the connection lives on"
    assert "a secret of the inside" in capsys.readouterr().out, "the log tells it"


def test_a_busy_database_says_when_to_come_back(running: Running) -> None:
    running.plane.raises = Unavailable("the database does not answer", retry_after_s=1.5)
    response = running.http.get("/tokens/a")
    assert refused(response) == (503, "database_busy")
    assert response.headers["retry-after"] == "2"


def test_metrics_tell_the_queues(running: Running) -> None:
    text = running.http.get("/metrics").text
    assert 'stateous_control_queue_depth{state="coding"} 3.0' in text
    assert 'stateous_control_queue_oldest_seconds{state="coding"} 4.5' in text
    assert 'stateous_control_state_unserved{state="coding"} 1.0' in text
    assert "stateous_control_claims_total 7.0" in text


def test_metrics_go_on_without_a_database(running: Running) -> None:
    running.plane.raises = Unavailable("gone")
    text = running.http.get("/metrics").text
    assert "stateous_control_database_up 0.0" in text
    assert "stateous_control_claims_total 7.0" in text


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1.evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
     {"Sec-Fetch-Site": "cross-site"}],
)  # fmt: skip
def test_what_a_page_of_another_site_sends_is_not_taken(running: Running, headers: dict[str, str]) -> None:
    assert refused(running.http.post("/tokens", headers=headers, content=b'{"token":"a"}')) == (
        400,
        "bad_request",
    )
    assert running.plane.asked == []


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "LOCALHOST"])
def test_this_machines_names_are_ours(running: Running, host: str) -> None:
    assert running.http.get("/health", headers={"Host": host}).status_code == 200


def test_a_waiting_claim_of_a_client_that_left_is_taken_back(running: Running) -> None:
    body = b'{"supervisor":"s","states":["a"],"request":"r","instance":"i","wait":20}'
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /tasks/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        wait_until(lambda: bool(running.plane.asked))
    wait_until(lambda: running.plane.cancelled == 1)
    assert running.plane.was_gone == [True]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("stateous-supervisor/0.3.1", "0.3.1"),
        ("stateous-supervisor/0.4.0rc1+local (box)", "0.4.0rc1+local"),
        ("python-httpx/0.28.1", None),
        ("stateous-supervisor/", None),
        ("stateous-supervisor/" + "9" * 65, None),
        ("stateous-supervisor/<b>", None),
        ("", None),
    ],
)
def test_a_claim_tells_the_version_of_the_agent_and_of_no_library(
    running: Running, agent: str, version: str | None
) -> None:
    running.plane.versions.clear()
    body = {"supervisor": "box", "states": ["coding"]}
    assert running.http.post("/tasks/claim", json=body, headers={"user-agent": agent}).status_code == 204
    assert running.plane.versions == [version]


def test_accepted_connections_send_at_once(running: Running) -> None:
    """Without TCP_NODELAY an answer waits 40 ms for the peer's acknowledgement."""
    running.http.get("/health")
    protocols = list(running.server.server_state.connections)
    options = [
        each.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for each in protocols
    ]
    assert options
    assert all(options)


def test_a_refusal_of_the_engine_goes_out_as_it_is(running: Running) -> None:
    assert refused(running.http.post("/tasks/404/report", json={"kind": "event", "event": "e"})) == (
        404,
        "task_not_found",
    )
    running.plane.raises = Refused(Code.CHILD_TOKEN, "a child")
    assert refused(running.http.get("/tokens/a")) == (409, "child_token")


@pytest.mark.parametrize(
    "line",
    [
        b"GET /\xff HTTP/1.1",
        b"GET /%ff%fe HTTP/1.1",
        b"GET http://[::1/x HTTP/1.1",
        b"GET //evil.example HTTP/1.1",
    ],
)
def test_a_strange_request_line_is_a_client_error(running: Running, line: bytes) -> None:
    answer = raw(running, line + b"\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4")
