"""Answers that never arrive, and answers of somebody else. Nothing is done twice and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
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
BEAT = r"POST /tasks/heartbeat"


@pytest.fixture(scope="module")
def proxy(plane_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(plane_url) as between:
        yield between


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy
) -> Iterator[tuple[Path, AgentProgram]]:
    made = folders.make(tmp_path_factory.mktemp("lost") / "box", proxy.url)
    with AgentProgram(made, proxy.url) as agent:
        yield made, agent


@pytest.fixture(scope="module")
def folder(running: tuple[Path, AgentProgram]) -> Path:
    return running[0]


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


CLOSES: dict[str, Callable[[str], Rule]] = {
    "unread": partial(Rule, reads=False),
    "read": partial(Rule, forwards=False),
    "done": Rule,
}


def repeated(proxy: FaultProxy, match: str, close: Callable[[str], Rule], act: Callable[[], object]) -> float:
    """Close the connection under the next such request, and return how long it took to come again on another one."""
    heard = len(proxy.heard)
    rule = close(match)
    proxy.rules.append(rule)
    act()
    wait_for(lambda: not proxy.rules, within_s=20, what=f"{match} that meets the close")
    closed_at, connection = proxy.used[-1]

    def again() -> tuple[float, bytes] | None:
        new = [each for each in proxy.heard[heard:] if each[0] >= closed_at and each[1] != connection]
        return next(((at, body) for at, _, name, body in new if re.match(match, name)), None)

    at, body = wait_for(again, within_s=20, what=f"repeat of {match}")
    sent = [each for each in proxy.heard[heard:] if each[1] == connection and re.match(match, each[2])]
    assert not rule.reads or sent[-1][3] == body
    return float(at - closed_at)


@pytest.mark.parametrize("close", CLOSES)
def test_a_connection_that_closes_under_a_request_costs_one_repeat_at_once(
    running: tuple[Path, AgentProgram],
    proxy: FaultProxy,
    plane: ControlPlaneClient,
    close: str,
    tmp_path: Path,
) -> None:
    """BH-034, A-50, S3-45: claim, heartbeat and report come again with the same content (the same request id) on a new
    connection; nothing waits, nothing warns, nothing is done twice.
    """
    made, agent = running
    token, gate, how = f"close-{close}", tmp_path / "gate", CLOSES[close]
    told = len(agent.lines)

    def goes_on() -> None:
        wait_for(lambda: folders.phases(made, token), within_s=20, what="routine")

    took_s = [repeated(proxy, CLAIM, how, lambda: plane.start(token, gate=str(gate)))]
    goes_on()
    took_s += [repeated(proxy, BEAT, how, lambda: None), repeated(proxy, REPORT, how, gate.touch)]
    plane.until(token, status="completed")

    assert claims_of(plane, token) == [1, 1]
    assert plane.kinds(token).count("event_accepted") == 3
    assert folders.phases(made, token) == [(1, "begin"), (1, "end"), (1, "begin")]
    assert min(took_s) < 0.5
    assert max(took_s) < 1.0
    levels = {json.loads(line)["level"] for line in agent.lines[told:] if line.startswith("{")}
    assert not levels & {"warning", "error"}


def test_the_agent_drops_idle_connections_before_any_server_does() -> None:
    """BH-034, as shipped: before ours, before those that close after 5 s, and no claim waits for a minute."""
    assert KEEPALIVE_S < 5 < KEEP_ALIVE_S
    assert WAIT_S_MAX < 60
