"""Answers that never arrive, and answers of somebody else. Nothing is done twice and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import FaultProxy, Rule, page
from programs import AgentProgram, ControlPlaneClient, wait_for
from stateous_contract.limits import WAIT_S_MAX

from journeys import folders
from stateous_control.http.server import KEEP_ALIVE_S
from stateous_supervisor.agent.client import KEEPALIVE_S

REPORT = r"POST /tasks/(messages|\d+/report)"
CLAIM = r"POST /tasks/claim"


@pytest.fixture(scope="module")
def proxy(plane_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(plane_url) as between:
        yield between


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy) -> Iterator[Path]:
    made = folders.make(tmp_path_factory.mktemp("lost") / "box", proxy.url)
    with AgentProgram(made, proxy.url):
        yield made


@pytest.fixture(autouse=True)
def clean(proxy: FaultProxy) -> Iterator[None]:
    yield
    left, proxy.rules = proxy.rules, []
    assert not left, "what should have gone wrong did not"


def claims_of(plane: ControlPlaneClient, token: str) -> list[int]:
    return [entry["data"]["attempt"] for entry in plane.history(token) if entry["kind"] == "task_claimed"]


def test_a_lost_claim_answer_loses_no_task(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient
) -> None:
    """S3-16: asked again with the same id, the same attempt comes."""
    proxy.rules.append(Rule(CLAIM))
    proxy.cut()  # the claim that waits now goes with it, so that the next one meets the rule
    plane.start("claim")

    plane.until("claim", status="completed")

    assert claims_of(plane, "claim") == [1, 1]
    assert folders.phases(folder, "claim") == [(1, "begin"), (1, "end"), (1, "begin")]


def test_a_lost_report_answer_moves_the_token_once(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient
) -> None:
    """S3-45: the same report again is answered 200."""
    proxy.rules.append(Rule(REPORT))
    plane.start("report")

    plane.until("report", status="completed")

    assert claims_of(plane, "report") == [1, 1]
    assert plane.kinds("report").count("event_accepted") == 3
    assert folders.phases(folder, "report") == [(1, "begin"), (1, "end"), (1, "begin")]


@pytest.mark.parametrize(
    "answer",
    [
        page(500),
        page(429, Retry_After="0"),
        page(408),
        page(502),
        page(503, Retry_After="0"),
        page(302, Location="/elsewhere"),
        page(200),
        page(200, '{"results": [{"task": "x"}]}', Content_Type="application/json"),
    ],
    ids=["500", "429", "408", "502", "503", "302", "200-html", "200-wrong"],
)
def test_an_answer_of_a_proxy_is_no_answer(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient, answer: bytes, request: pytest.FixtureRequest
) -> None:
    """A-37: neither a failure nor a delivery; the same report goes out again."""
    token = "proxy-" + re.sub(r"\W", "-", request.node.callspec.id)
    proxy.rules.append(Rule(REPORT, forwards=False, answer=answer))
    plane.start(token)

    plane.until(token, status="completed")

    assert "task_failed" not in plane.kinds(token)
    assert claims_of(plane, token) == [1, 1]


@pytest.mark.parametrize(
    "rule",
    [Rule(CLAIM, reads=False), Rule(CLAIM, forwards=False), Rule(CLAIM)],
    ids=["unread", "read", "done"],
)
def test_a_connection_that_closes_under_a_claim_costs_no_attempt(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient, rule: Rule, request: pytest.FixtureRequest
) -> None:
    """BH-034, A-50: repeated on a new connection with the same id."""
    token = f"close-{request.node.callspec.id}"
    proxy.rules.append(rule)
    proxy.cut()
    plane.start(token)

    plane.until(token, status="completed")

    assert claims_of(plane, token) == [1, 1]


@pytest.mark.parametrize(
    "rule", [Rule(REPORT, reads=False), Rule(REPORT, forwards=False)], ids=["unread", "read"]
)
def test_a_connection_that_closes_under_a_report_loses_no_outcome(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient, rule: Rule, request: pytest.FixtureRequest
) -> None:
    """BH-034, S3-45: closed before or after it was read, and never heard above; when it was done: see above."""
    token = f"report-{request.node.callspec.id}"
    proxy.rules.append(rule)
    plane.start(token)

    plane.until(token, status="completed")

    assert claims_of(plane, token) == [1, 1]
    assert plane.kinds(token).count("event_accepted") == 3


def test_heartbeats_go_on_over_connections_that_close(
    folder: Path, proxy: FaultProxy, plane: ControlPlaneClient, tmp_path: Path
) -> None:
    """BH-034: each kind of close hits a heartbeat; the lease (3 s) is kept all the same."""
    beat = "POST /tasks/heartbeat"
    plane.start("beats", gate=str(tmp_path / "gate"))
    for rule in (Rule(beat, reads=False), Rule(beat, forwards=False), Rule(beat)):
        proxy.rules.append(rule)
        wait_for(lambda: not proxy.rules, within_s=20, what="heartbeat that meets the rule")
        heard = proxy.times_heard(beat)
        wait_for(lambda heard=heard: proxy.times_heard(beat) > heard, within_s=20, what="next heartbeat")
    (tmp_path / "gate").touch()

    plane.until("beats", status="completed")

    assert claims_of(plane, "beats") == [1, 1]


def test_the_agent_drops_idle_connections_before_any_server_does() -> None:
    """BH-034, as shipped: before ours, before those that close after 5 s, and no claim waits for a minute."""
    assert KEEPALIVE_S < 5 < KEEP_ALIVE_S
    assert WAIT_S_MAX < 60
