"""Messages out, values in; answers that are not trusted (A-53)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import httpx
import pytest
from msgspec import Raw
from stateous_contract.messages import ClaimRequest, TaskMessage

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.control_plane import BadGrant, ControlPlane, Granted, Terms, is_deeper
from stateous_supervisor.agent.faults import PeerViolation, Refused

T = TypeVar("T")
BOX = Identity("box", "i1")
GRANT = {"task": 1, "token": "t", "state": "s", "visit": 1, "attempt": 1, "context": {}, "memory": {}}
EXTENDED = {
    "workflow": "w",
    "checksum": "sha256:x",
    "protocol": 1,
    "features": ["wait", "batch"],
    "limits": {"claim_max": 50, "messages_max": 10, "wait_s_max": 99, "body_bytes_max": 500},
    "lease_s": 8.0,
    "heartbeat_s": 2.0,
}


class Peer:
    """Answers what it is told, and remembers what it was asked."""

    def __init__(self, status: int, body: Any, kind: str = "application/json") -> None:
        self.asked: list[httpx.Request] = []
        self._answer = (status, body if isinstance(body, bytes) else json.dumps(body).encode(), kind)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        status, body, kind = self._answer
        return httpx.Response(status, content=body, headers={"content-type": kind})

    @property
    def heard(self) -> Any:
        return json.loads(self.asked[-1].content)

    def ask(self, call: Callable[[ControlPlane], Awaitable[T]], terms: Terms | None = None) -> T:
        async def main() -> T:
            client = Client("http://cp", product="x", transport=httpx.MockTransport(self))
            control_plane = ControlPlane(client)
            control_plane.terms = terms or Terms()
            try:
                return await call(control_plane)
            finally:
                await client.close()

        return anyio.run(main)


def claim(peer: Peer, **more: Any) -> list[Granted | BadGrant]:
    return peer.ask(lambda cp: cp.claim(ClaimRequest(supervisor="box", states=["s"], request="r", **more)))


def test_a_baseline_health_means_the_baseline() -> None:
    terms = Peer(200, {"workflow": "w", "checksum": "sha256:x"}).ask(lambda cp: cp.greet())

    assert terms == Terms(checksum="sha256:x")
    assert (terms.lease_s, terms.heartbeat_s, terms.claim_max, terms.wait_s) == (120.0, 30.0, 1, 0.0)


def test_an_extended_health_says_what_it_offers() -> None:
    terms = Peer(200, EXTENDED).ask(lambda cp: cp.greet())

    assert terms.offers("batch")
    assert not terms.offers("release")
    assert (terms.claim_max, terms.messages_max, terms.lease_s, terms.heartbeat_s) == (50, 10, 8.0, 2.0)


def test_a_wait_is_bounded_whatever_is_offered_a_53() -> None:
    assert Peer(200, EXTENDED).ask(lambda cp: cp.greet()).wait_s == 25.0


@pytest.mark.parametrize(
    "more",
    [{"lease_s": -5}, {"heartbeat_s": 0}, {"limits": {"claim_max": -1, "wait_s_max": -9}}, {"limits": {}}],
)
def test_limits_that_make_no_sense_are_the_defaults_a_53(more: dict[str, Any]) -> None:
    terms = Peer(200, EXTENDED | more).ask(lambda cp: cp.greet())

    assert terms.lease_s > 0
    assert 0 < terms.heartbeat_s <= terms.lease_s
    assert terms.claim_max >= 1
    assert terms.wait_s >= 0


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>welcome</html>", "text/html"),
        (200, b"{}", "text/html"),
        (200, b"{", "application/json"),
        (200, b"\xff\xfe", "application/json"),
        (200, b"[]", "application/json"),
        (200, b'{"checksum":5,"workflow":"w"}', "application/json"),
        (200, b"[" * 100_000, "application/json"),
        (404, b"<html>not here</html>", "text/html"),
        (400, b"nope", "text/plain"),
        (404, b'{"error":"no such path","code":"not_found"}', "application/json"),
    ],
)
def test_what_a_control_plane_would_not_say_counts_as_not_answered_a_37(
    status: int, body: bytes, kind: str
) -> None:
    with pytest.raises(PeerViolation):
        Peer(status, body, kind).ask(lambda cp: cp.greet())


def test_a_refusal_carries_its_code_and_sentence() -> None:
    with pytest.raises(Refused) as caught:
        claim(Peer(422, {"error": "no such thing", "code": "invalid_argument"}))

    assert (caught.value.status, caught.value.code, caught.value.sentence) == (
        422,
        "invalid_argument",
        "no such thing",
    )


def test_a_proxys_413_is_a_refusal_whatever_it_says_bh_040() -> None:
    with pytest.raises(Refused) as caught:
        claim(Peer(413, b"<html>too large</html>", "text/html"))

    assert caught.value.status == 413


def test_no_work_is_an_empty_list() -> None:
    assert claim(Peer(204, b"")) == []


def test_without_max_the_answer_is_one_grant() -> None:
    (granted,) = claim(Peer(200, GRANT))

    assert isinstance(granted, Granted)
    assert (granted.grant.task, granted.grant.attempt) == (1, 1)


def test_with_max_the_answer_is_a_list() -> None:
    grants = claim(Peer(200, {"tasks": [GRANT, GRANT | {"task": 2}]}), max=5)

    assert [g.grant.task for g in grants if isinstance(g, Granted)] == [1, 2]


@pytest.mark.parametrize("body", [[], 3, None, {"tasks": 5}, {"task": "one", "attempt": 1}])
def test_what_names_no_attempt_is_no_answer_to_a_single_claim_a_11(body: Any) -> None:
    with pytest.raises(PeerViolation, match="no grant"):
        claim(Peer(200, body))


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (TaskMessage(task=1, attempt=1, kind="report", outcome="waiting"), []),
        (TaskMessage(task=1, attempt=1, kind="report", outcome="waiting"), {"tasks": 5}),
        (TaskMessage(task=1, attempt=1, kind="note", text="x"), {}),
        (TaskMessage(task=1, attempt=1, kind="memory", key="k", value=Raw(b"1")), 3),
    ],
)
def test_what_is_not_agreed_is_no_answer_to_a_single_message_a_53(message: TaskMessage, body: Any) -> None:
    with pytest.raises(PeerViolation):
        Peer(200, body).ask(lambda cp: cp.tell_one(BOX, message))


def test_a_grant_goes_on_as_the_text_it_came_as() -> None:
    text = b'{"tasks":[{"task":1,"token":"t","state":"s","visit":1,"attempt":1,"context":{"a":1.0},"memory":{},"new":1}]}'

    (granted,) = claim(Peer(200, text), max=5)

    assert isinstance(granted, Granted)
    assert bytes(granted.raw) == text[10:-2]


@pytest.mark.parametrize(
    "more",
    [
        {"task": 0},
        {"attempt": 0},
        {"task": 2**63},
        {"task": True},
        {"task": "1"},
        {"context": []},
        {"context": None},
        {"memory": 5},
        {"state": None},
        {"visit": "x"},
        {"entered_by": 5},
        {"context": json.loads('{"a":' * 70 + "1" + "}" * 70)},
    ],
)
def test_one_bad_grant_leaves_the_others_usable_a_53(more: dict[str, Any]) -> None:
    bad, good = claim(Peer(200, {"tasks": [GRANT | {"task": 7} | more, GRANT]}), max=5)

    assert isinstance(bad, BadGrant)
    assert isinstance(good, Granted)


def test_a_bad_grant_is_named_where_it_can_be() -> None:
    (bad,) = claim(Peer(200, {"tasks": [GRANT | {"task": 7, "attempt": 2, "context": []}]}), max=5)

    assert isinstance(bad, BadGrant)
    assert (bad.task, bad.attempt) == (7, 2)


def test_a_heartbeat_on_the_baseline_names_tasks_only() -> None:
    peer = Peer(200, {"lost": [2]})

    answer = peer.ask(lambda cp: cp.beat(BOX, [(2, 1), (1, 3)], deadline_s=5))

    assert answer.lost == [2]
    assert peer.heard == {"supervisor": "box", "tasks": [1, 2]}


def test_an_extended_heartbeat_names_attempts_and_the_instance() -> None:
    peer = Peer(200, {"lost": []})

    peer.ask(lambda cp: cp.beat(BOX, [(2, 1)], deadline_s=5), Terms(is_extended=True))

    assert peer.heard == {"supervisor": "box", "tasks": [2], "instance": "i1", "attempts": {"2": 1}}


def test_many_messages_go_in_one_request() -> None:
    peer = Peer(
        200,
        {
            "results": [
                {"task": 1, "status": 200, "token": {"context": {}}},
                {"task": 1, "status": 409, "code": "c"},
            ]
        },
    )

    results = peer.ask(lambda cp: cp.tell(BOX, [b'{"task":1}', b'{"task":1,"x":1.0}']))

    assert [(result.status, result.code) for result in results] == [(200, None), (409, "c")]
    assert (
        peer.asked[0].content
        == b'{"supervisor":"box","instance":"i1","messages":[{"task":1},{"task":1,"x":1.0}]}'
    )


def test_a_wrong_number_of_results_counts_as_not_answered_a_53() -> None:
    with pytest.raises(PeerViolation, match="2 messages were sent and 1 results came back"):
        Peer(200, {"results": [{"task": 1, "status": 200}]}).ask(lambda cp: cp.tell(BOX, [b"{}", b"{}"]))


@pytest.mark.parametrize(
    ("message", "method", "path", "body"),
    [
        (
            TaskMessage(task=7, attempt=2, kind="note", text="hi"),
            "POST",
            "/tasks/7/note",
            {"text": "hi", "attempt": 2},
        ),
        (
            TaskMessage(task=7, attempt=2, kind="memory", key="k", value=Raw(b"[1]")),
            "PUT",
            "/tasks/7/memory",
            {"key": "k", "value": [1], "attempt": 2},
        ),
        (
            TaskMessage(task=7, attempt=2, kind="memory", key="k", value=Raw(b"null")),
            "PUT",
            "/tasks/7/memory",
            {"key": "k", "value": None, "attempt": 2},
        ),
        (
            TaskMessage(task=7, attempt=2, kind="report", outcome="failed", error="x"),
            "POST",
            "/tasks/7/report",
            {"kind": "failed", "error": "x", "attempt": 2, "supervisor": "box"},
        ),
    ],
)
def test_on_the_baseline_each_kind_has_its_own_call(
    message: TaskMessage, method: str, path: str, body: Any
) -> None:
    peer = Peer(200, {"token": "t"}) if message.kind == "report" else Peer(204, b"")

    peer.ask(lambda cp: cp.tell_one(BOX, message))

    assert (peer.asked[0].method, peer.asked[0].url.path, peer.heard) == (method, path, body)


@pytest.mark.parametrize(
    ("text", "depth_max", "is_too_deep"),
    [
        ("[" * 5 + "]" * 5, 5, False),
        ("[" * 6 + "]" * 6, 5, True),
        ("[" + "[]," * 100 + "1]", 5, False),
        ('["' + "[" * 100 + '"]', 5, False),
        ('["\\"' + "[" * 100 + '"]', 5, False),
        ('{"a":' * 6 + "1" + "}" * 6, 5, True),
    ],
)
def test_depth_is_that_of_brackets_outside_of_texts(text: str, depth_max: int, is_too_deep: bool) -> None:
    assert is_deeper(Raw(text.encode()), depth_max) is is_too_deep
