"""What a control plane says of itself, over an in-memory transport (A-56)."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import anyio
import httpx
import pytest
from stateous_contract.reliance import Reliance, reliance_of

from stateous_supervisor.agent.client import Client
from stateous_supervisor.doctor import plane
from stateous_supervisor.doctor.facts import PlaneFacts

SUM = "sha256:" + "a" * 64
HEALTH: dict[str, Any] = {
    "workflow": "w",
    "checksum": SUM,
    "protocol": 1,
    "features": ["wait", "batch"],
    "limits": {},
}


def asked(
    answer: Callable[[httpx.Request], httpx.Response],
    wall: Callable[[], float] = time.time,
    reliance: Reliance | None = None,
) -> tuple[PlaneFacts, list[str]]:
    """Ask a control plane that answers like this; return the facts and what was asked."""
    heard: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        heard.append(f"{request.method} {request.url.path}")
        return answer(request)

    async def ask() -> PlaneFacts:
        client = Client("http://cp", product="p", key=lambda: "k", transport=httpx.MockTransport(handle))
        try:
            return await plane.ask(
                client,
                url="http://cp",
                name="box",
                checksum=lambda: SUM,
                reliance=lambda: reliance,
                wall=wall,
            )
        finally:
            await client.close()

    return anyio.run(ask), heard


def healthy(**more: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, json={**HEALTH, **more})


def test_another_workflow_is_compared_state_by_state_a_09() -> None:
    document: dict[str, Any] = {
        "stateous": 1, "workflow": "w", "states": {"a": {"emits": ["e"]}, "b": {"emits": []}}, "events": {"e": {}},
        "transitions": [], "schemas": {},
    }  # fmt: skip

    def answer(request: httpx.Request) -> httpx.Response:
        is_health = request.url.path == "/health"
        return httpx.Response(200, json={**HEALTH, "checksum": "sha256:other"} if is_health else document)

    same, changed = reliance_of(document), {"*": {}, "a": {"emits e": "other"}}
    assert asked(answer, reliance=same)[0].changed == ()
    assert asked(answer, reliance=changed)[0].changed == ("a",)
    assert asked(answer)[0].changed is None


def test_what_it_offers_is_told() -> None:
    facts, heard = asked(healthy(lease_s=60, heartbeat_s=15, alarms=["no sweep"]))

    assert (facts.error, facts.features, facts.is_extended) == (None, ("batch", "wait"), True)
    assert (facts.lease_s, facts.heartbeat_s, facts.alarms) == (60, 15, ("no sweep",))
    assert (facts.checksum, facts.folder_checksum) == (SUM, SUM)
    assert set(heard) == {"GET /health"}


def test_the_baseline_has_its_own_times() -> None:
    facts, _ = asked(lambda _: httpx.Response(200, json={"workflow": "w", "checksum": SUM}))

    assert (facts.is_extended, facts.lease_s, facts.heartbeat_s) == (False, 120, 30)


def test_its_clock_is_compared_by_what_it_says() -> None:
    facts, _ = asked(healthy(now="2026-01-01T00:01:00Z"), wall=lambda: 1_767_225_600.0)

    assert facts.skew_s == pytest.approx(60, abs=0.5)
    assert facts.skew_doubt_s < 0.5


def test_without_that_by_the_date_of_its_answers() -> None:
    date = formatdate(1_767_225_660, usegmt=True)

    facts, _ = asked(
        lambda _: httpx.Response(200, json=HEALTH, headers={"date": date}), wall=lambda: 1_767_225_600.0
    )

    assert facts.skew_s == pytest.approx(60.5, abs=0.5)
    assert facts.skew_doubt_s >= 1


def test_with_neither_nothing_is_said_of_the_clock() -> None:
    assert asked(healthy(now="noon"))[0].skew_s is None


def test_a_key_is_tried_where_there_are_keys() -> None:
    """`/health` asks for no key, so something that does is asked too."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            return httpx.Response(200, json={**HEALTH, "features": ["auth"]})
        assert request.headers["authorization"] == "Bearer k"
        return httpx.Response(401, json={"error": "no", "code": "unauthenticated"})

    facts, heard = asked(answer)

    assert facts.is_denied
    assert heard == ["GET /health", "POST /tasks/heartbeat"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.Response(200, html="<p>hello"), "not JSON; a proxy may have sent it"),
        (httpx.Response(302, headers={"location": "http://other"}), "answered 302 to http://other"),
        (httpx.Response(503), "answered 503"),
        (httpx.Response(200, json={"x": 1}), "that is not understood"),
    ],
)
def test_what_is_no_control_plane_is_told(answer: httpx.Response, sentence: str) -> None:
    facts, _ = asked(lambda _: answer)

    assert sentence in (facts.error or "")
    assert not facts.is_denied
