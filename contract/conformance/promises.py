"""Promises that need more than one request at a time, or a look at bytes and clocks. Each is one claim."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from conformance.peer import Peer, conformance_client, control_plane_key, peer

__all__ = ["conformance_client", "control_plane_key", "peer"]  # and every promise, put there by its decorator


def promise(test: Any) -> Any:
    """Let `suite` take a test over with its star import."""
    __all__.append(test.__name__)  # noqa: PYI056
    return test


@promise
def test_the_checksum_is_of_the_workflow_that_is_served(peer: Peer) -> None:
    document = peer.http.get("/workflow").json()
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    assert peer.health["checksum"] == "sha256:" + hashlib.sha256(canonical).hexdigest()


@promise
def test_head_answers_like_get_without_a_body(peer: Peer) -> None:
    answer = peer.http.head("/health")

    assert (answer.status_code, answer.content) == (200, b"")


@promise
def test_a_context_keeps_its_order_defaults_first(peer: Peer) -> None:
    peer.started.append(f"{peer.run}-a")
    context = {"z": 1, "label": "x", "a": 2}

    answer = peer.http.post("/tokens", json={"token": f"{peer.run}-a", "context": context})

    assert list(answer.json()["context"]) == ["path", "scores", "label", "z", "a"]
    assert list(peer.http.get(f"/tokens/{peer.run}-a").json()["context"]) == [
        "path",
        "scores",
        "label",
        "z",
        "a",
    ]


@promise
def test_answers_are_compact_and_keep_their_letters(peer: Peer) -> None:
    peer.start(label="grün")

    answer = peer.http.get(f"/tokens/{peer.run}-a")

    assert '"label":"grün"'.encode() in answer.content
    assert answer.headers["content-type"] == "application/json"


@promise
def test_twenty_supervisors_and_one_task_make_one_winner(peer: Peer) -> None:
    """S3-11."""
    peer.start()

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda n: peer.claim("plain", supervisor=f"s{n}"), range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] + [204] * 19


@promise
def test_one_request_id_sent_twice_at_once_claims_one_task(peer: Peer) -> None:
    """S3-15, S3-17. The one that came first may hear nothing: its place was taken."""
    peer.start("a")
    peer.start("b")

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: peer.claim("plain", request="r1"), range(2)))

    assert len({answer.json()["token"] for answer in answers if answer.status_code == 200}) == 1
    assert peer.claim("plain", supervisor="t").json()["token"] == f"{peer.run}-b"


@promise
def test_ten_reports_of_one_attempt_move_the_token_once(peer: Peer) -> None:
    peer.start(path="round")
    task = peer.claim("round").json()["task"]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: peer.report(task, "again"), range(10)))

    assert peer.http.get(f"/tokens/{peer.run}-a").json()["visit"] == 2
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert [entry["kind"] for entry in peer.history()].count("event_accepted") == 2


@promise
def test_one_key_fired_ten_times_at_once_is_one_event(peer: Peer) -> None:
    peer.start(path="round")

    def fire(_: int) -> Any:
        headers = {"Idempotency-Key": "once"}
        return peer.http.post(f"/tokens/{peer.run}-a/events/again", headers=headers).json()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(fire, range(10)))

    assert [answer.get("duplicate", False) for answer in answers].count(False) == 1
    assert peer.http.get(f"/tokens/{peer.run}-a").json()["visit"] == 2


@promise
def test_ten_starts_of_one_id_at_once_make_one_token(peer: Peer) -> None:
    peer.started.append(f"{peer.run}-a")
    body = {"token": f"{peer.run}-a", "context": {"path": "plain"}}

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: peer.http.post("/tokens", json=body), range(10)))

    assert {answer.status_code for answer in answers} <= {200, 201}
    assert [entry["kind"] for entry in peer.history()] == [
        "started",
        "event_accepted",
        "entered",
        "task_queued",
    ]


@promise
def test_a_waiting_claim_gets_work_as_soon_as_there_is_some(peer: Peer) -> None:
    peer.needs("wait")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(peer.claim, "plain", wait=20, instance="i1", request="w1")
        time.sleep(0.3)
        assert not waiting.done()
        begun = time.monotonic()
        peer.start()
        answer = waiting.result(timeout=20)

    assert answer.json()["token"] == f"{peer.run}-a"
    assert time.monotonic() - begun < 2


@promise
def test_a_waiting_claim_without_work_is_204_when_its_time_is_up(peer: Peer) -> None:
    peer.needs("wait")
    begun = time.monotonic()

    answer = peer.claim("plain", wait=0.5, instance="i1", request="w1")

    assert answer.status_code == 204
    assert 0.4 <= time.monotonic() - begun < 5


@promise
def test_the_id_of_a_waiting_claim_takes_its_place(peer: Peer) -> None:
    """The older request answers 204 without effect; the newer one is the one that waits."""
    peer.needs("wait")

    with ThreadPoolExecutor(2) as pool:
        older = pool.submit(peer.claim, "plain", wait=20, instance="i1", request="w1")
        time.sleep(0.3)
        newer = pool.submit(peer.claim, "plain", wait=20, instance="i1", request="w1")
        assert older.result(timeout=10).status_code == 204
        peer.start()
        assert newer.result(timeout=10).json()["attempt"] == 1


@promise
def test_nothing_is_granted_to_a_connection_that_closed(peer: Peer) -> None:
    peer.needs("wait")
    at = urlsplit(str(peer.http.base_url))
    body = json.dumps(
        {"supervisor": f"{peer.run}-gone", "instance": "i1", "states": ["plain"], "wait": 20, "request": "g"}
    )
    head = f"POST /tasks/claim HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"

    with socket.create_connection((at.hostname, at.port)) as connection:
        connection.sendall((head + body).encode())
        time.sleep(0.3)
    time.sleep(0.3)
    peer.start()

    assert peer.claim("plain").json()["attempt"] == 1


@promise
def test_a_withdrawn_claim_stops_waiting(peer: Peer) -> None:
    peer.needs("wait")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(peer.claim, "plain", wait=20, instance="i1", request="w1")
        time.sleep(0.3)
        assert peer.claim("plain", instance="i1", request="w1", withdraw=True).status_code == 204
        assert waiting.result(timeout=5).status_code == 204


@promise
def test_an_ended_lease_is_a_failed_attempt(peer: Peer) -> None:
    """S3-26, S3-74, S3-75, S3-76."""
    if peer.lease_s > 5:
        pytest.skip(
            f"this control plane's leases are {peer.lease_s:g} s; serve it with 5 s or less to see one end"
        )
    peer.start(path="sturdy")
    task = peer.claim("sturdy").json()["task"]

    second = _wait_for_claim(peer, "sturdy", supervisor="t", within_s=peer.lease_s + 10)

    assert (second["task"], second["attempt"]) == (task, 2)
    assert peer.report(task, attempt=1).json()["code"] == "attempt_over"
    kinds = [(entry["kind"], entry["data"]) for entry in peer.history()][5:]
    assert [kind for kind, _ in kinds] == ["task_failed", "task_retrying", "task_claimed"]
    assert f"{peer.run}-s" in kinds[0][1]["error"]
    assert kinds[1][1] == {"task": task, "attempt": 2}


@promise
def test_heartbeats_keep_a_lease(peer: Peer) -> None:
    """S3-19, S3-22."""
    if peer.lease_s > 5:
        pytest.skip(
            f"this control plane's leases are {peer.lease_s:g} s; serve it with 5 s or less to see one kept"
        )
    peer.start()
    task = peer.claim("plain").json()["task"]

    end = time.monotonic() + peer.lease_s * 1.6
    while time.monotonic() < end:
        beat = {"supervisor": f"{peer.run}-s", "tasks": [task]}
        assert peer.http.post("/tasks/heartbeat", json=beat).json()["lost"] == []
        time.sleep(peer.lease_s / 4)

    assert peer.report(task).status_code == 200


def _wait_for_claim(peer: Peer, state: str, *, supervisor: str, within_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while True:
        answer = peer.claim(state, supervisor=supervisor)
        if answer.status_code == 200:
            grant: dict[str, Any] = answer.json()
            return grant
        assert time.monotonic() < deadline, f"nothing to claim in {state} after {within_s:g} s"
        threading.Event().wait(0.1)
