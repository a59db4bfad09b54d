"""Whatever the description allows or forbids is sent to a real control plane, and its answers are held to the description."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import schemathesis
from conformance.description import OPENAPI
from control.databases import fresh
from control.http.keyed import BODIES, Keyed, keyed
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers
from schemathesis import Case, GenerationMode, checks
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

API: dict[str, APIOperation[Any, Any, Any, Any]] = {}
for each in schemathesis.openapi.from_path(OPENAPI).get_all_operations():
    assert isinstance(each, Ok), each
    API[each.ok().label] = each.ok()
OPERATIONS = [
    pytest.param(label, mode, id=f"{label} {mode.value}")
    for label, operation in API.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or "{" in label
    or operation.definition.raw.keys() & {"parameters", "requestBody"}
]
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
LONG = 500
COUNTS = [
    pytest.param(5, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.prove, pytest.mark.timeout(3600)]),
]
TOKENS = ("claimed", "waiting", "asked", "answered", "cancelled", "paused", "failed", "queued")
EVENTS = ("coded", "again", "passed", "broken", "stopped", "error")
HOLDER: dict[str, Any] = {"supervisor": "box", "instance": "i", "attempt": 1}


@dataclass
class There:
    """A control plane that asks for no keys, and what is there: a token and a task in every state that one can be in."""

    url: str
    tokens: list[str] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)

    def known(self, name: str) -> Sequence[Any]:
        """What a path may name; of what has no list any name does."""
        lists: dict[str, Sequence[Any]] = {
            "task": self.tasks,
            "question": self.questions,
            "token": self.tokens,
            "event": EVENTS,
        }
        return lists.get(name, ["go"])


@pytest.fixture(scope="module")
def server(postgres: str, migrated_template: str) -> Iterator[Keyed]:
    with fresh(postgres, migrated_template) as database, keyed(database) as plane:
        yield plane


@pytest.fixture(scope="module")
def shared(server: Keyed) -> There:
    return populated(server.url)


def populated(url: str) -> There:
    made = There(url)
    prefix = uuid.uuid4().hex[:8]
    with httpx.Client(base_url=url, timeout=10) as http:
        for token in TOKENS:
            name = f"{prefix}-{token}"
            assert http.post("/tokens", json={"token": name}).status_code == 201
            made.tokens.append(name)
            made.tasks.append(http.get("/tasks", params={"token": name}).json()["entries"][0]["task"])
            if token != "queued":
                _bring(http, token, name, made)
    return made


def _bring(http: httpx.Client, state: str, name: str, made: There) -> None:
    """Claim the newest task until it is had, and bring it where its token's name says."""

    def say(path: str, **body: Any) -> Any:
        answer = http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    task = made.tasks[-1]
    claimed = say("/tasks/claim", supervisor="box", instance="i", states=["coding"], max=1000)["tasks"]
    assert task in [grant["task"] for grant in claimed]
    if state in ("asked", "answered"):
        made.questions.append(
            say(f"/tasks/{task}/questions", **BODIES["questions"] | {"ttl_s": 1e6})["question"]
        )
    if state == "answered":
        seen = http.get(f"/questions/{made.questions[-1]}").json()
        say(f"/questions/{made.questions[-1]}/answer", answer=1, expected_generation=seen["generation"])
    if state in ("cancelled", "paused"):
        say(f"/tokens/{name}/{state.removesuffix('led').removesuffix('d')}")
    if state == "waiting":
        say(f"/tasks/{task}/report", **HOLDER, kind="waiting")
    if state == "failed":
        say(f"/tasks/{task}/report", **HOLDER, kind="failed", error="", retryable=False)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("operation", "mode"), OPERATIONS)
def test_every_answer_is_one_that_is_described(
    shared: There, operation: str, mode: GenerationMode, count: int
) -> None:
    """No 5xx, and no status, header, type or shape that `openapi.yaml` does not name."""

    there = shared if count < LONG else populated(shared.url)

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=API[operation].as_strategy(generation_mode=mode), luck=integers(0, 2**16))
    def play(case: Case[Any], luck: int) -> None:
        aim(case, there, luck)
        case.call_and_validate(base_url=there.url, checks=CHECKS, timeout=30)

    play()


@pytest.mark.parametrize("operation", API)
def test_every_answer_about_what_is_there_is_described(shared: There, operation: str) -> None:
    """Each operation on each token, task or question, once with a body that means something and once with none."""
    there = shared if operation.startswith("GET") else populated(shared.url)
    names = re.findall(r"{(\w+)}", operation)
    for values in itertools.product(*(there.known(name) for name in names)):
        for body in bodies(operation):
            case = API[operation].Case(
                path_parameters=dict(zip(names, map(str, values), strict=True)), **body
            )
            case.call_and_validate(base_url=there.url, checks=CHECKS, timeout=30)


def bodies(operation: str) -> list[dict[str, Any]]:
    if operation.startswith("GET"):
        return [{}]
    good = BODIES.get(operation.rpartition("/")[2], HOLDER)
    return [{"body": body, "media_type": "application/json"} for body in (good, {})]


def aim(case: Case[Any], there: There, luck: int) -> None:
    """Put what is there in place of most ids and names that were made up, and let nothing wait for long."""
    for name in case.path_parameters or {}:
        if luck % 5:
            case.path_parameters[name] = str(there.known(name)[luck % len(there.known(name))])
    if isinstance(case.body, dict) and luck % 3:
        said = HOLDER | {
            "expected_generation": luck % 4 + 1,
            "event": EVENTS[luck % len(EVENTS)],
            "states": ["coding"],
        }
        case.body |= {name: said[name] for name in case.body.keys() & said.keys()}
    for place in (case.body, case.query):
        if isinstance(place, dict):
            wait = place.get("wait")
            if isinstance(wait, int | float) and not isinstance(wait, bool):
                place["wait"] = min(wait, 0.01)
