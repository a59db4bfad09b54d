"""`openapi.yaml` tells the whole truth: every route, every code, every message of the wire stands in it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from conformance.description import answer_fault, document
from stateous_contract import health, limits, messages
from stateous_contract.codes import Code

from stateous_control.engine import people
from stateous_control.http.routes import ROUTES

DESCRIBED = {
    (method.upper(), path)
    for path, item in document()["paths"].items()
    for method in item
    if method != "parameters"
}
SCHEMAS: dict[str, Any] = document()["components"]["schemas"]
MESSAGES: dict[str, type[msgspec.Struct]] = {
    "Claim": messages.ClaimRequest,
    "Grant": messages.Grant,
    "Grants": messages.Grants,
    "Heartbeat": messages.HeartbeatRequest,
    "HeartbeatAnswer": messages.HeartbeatAnswer,
    "Report": messages.Report,
    "Schedule": messages.Schedule,
    "TaskMessage": messages.TaskMessage,
    "Messages": messages.TaskMessages,
    "Result": messages.MessageResult,
    "Results": messages.MessageResults,
    "Token": messages.TokenView,
    "Health": health.Health,
    "HistoryEntry": messages.HistoryEntry,
    "Refusal": messages.Refusal,
    "GivenAnswer": messages.GivenAnswer,
    "PassedStep": messages.PassedStep,
    "Checkpoint": messages.Checkpoint,
    "Standing": messages.Standing,
    "Ask": messages.Ask,
    "Asked": messages.Asked,
    "Park": messages.Park,
    "Parked": messages.Parked,
    "Signalled": messages.Signalled,
    "StartTask": messages.Start,
    "StartToken": messages.StartToken,
    "StartResult": messages.StartResult,
    "StartResults": messages.StartResults,
    "Spawn": messages.Spawn,
    "Spawned": messages.Spawned,
    "Task": people.TaskView,
    "Question": people.QuestionView,
    "LogEntry": people.LogEntry,
    "CheckpointView": people.CheckpointView,
}
LATER: dict[str, set[str]] = {}  # Fields that wait for a feature that no control plane lists yet.


def test_every_route_is_described_and_nothing_else() -> None:
    served = {(method, re.sub(r":\w+", "", path)) for path, handlers in ROUTES for method in handlers}

    assert served == DESCRIBED


def test_every_code_is_described_with_its_status() -> None:
    statuses: dict[str, list[int]] = {}
    for code in Code:
        statuses.setdefault(code.wire, []).append(code.status)

    assert SCHEMAS["Code"]["x-status"] == statuses
    assert SCHEMAS["Code"]["enum"] == list(statuses)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_and_its_description_have_the_same_fields(name: str) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(MESSAGES[name])}

    assert set(SCHEMAS[name]["properties"]) == fields - LATER.get(name, set())


def test_limits_are_described_as_they_are() -> None:
    claim, note = SCHEMAS["Claim"]["properties"], SCHEMAS["Memory"]["properties"]

    assert claim["max"]["maximum"] == limits.CLAIM_MAX
    assert claim["states"]["maxItems"] == limits.STATES_MAX
    assert claim["states"]["items"]["maxLength"] == limits.STATE_CHARS_MAX
    assert claim["request"]["pattern"] == f"^{limits.REQUEST_PATTERN}$"
    assert SCHEMAS["Instance"]["pattern"] == f"^{limits.INSTANCE_PATTERN}$"
    assert SCHEMAS["Start"]["properties"]["token"]["pattern"] == f"^{limits.TOKEN_PATTERN}$"
    assert SCHEMAS["Heartbeat"]["properties"]["tasks"]["maxItems"] == limits.HEARTBEAT_MAX
    assert SCHEMAS["Messages"]["properties"]["messages"]["maxItems"] == limits.MESSAGES_MAX
    assert note["key"]["maxLength"] == limits.MEMORY_KEY_CHARS_MAX
    assert SCHEMAS["Supervisor"]["maxLength"] == limits.SUPERVISOR_CHARS_MAX


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/tokens/a", 200, {"token": "a"}),
        ("GET", "/tokens/a", 404, {"error": "x", "code": "unheard_of"}),
        ("GET", "/tokens/a", 409, {"error": "x", "code": "token_not_found"}),
        ("GET", "/tokens/a", 404, {"error": "x", "code": "token_not_found", "more": 1}),
        ("GET", "/tokens/a", 202, {}),
        ("GET", "/nowhere", 200, {}),
        ("POST", "/tasks/heartbeat", 200, {"lost": [0]}),
    ],
)
def test_an_answer_that_is_not_described_is_told(method: str, path: str, status: int, body: Any) -> None:
    assert answer_fault(method, path, status, body)


def test_every_operation_but_two_asks_for_a_key_and_says_how_it_refuses() -> None:
    described = document()
    open_to_all = {
        path for path, item in described["paths"].items() if item.get("get", {}).get("security") == []
    }
    refusals = {
        path: {"401", "403", "429"} - operation["responses"].keys()
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if method != "parameters" and path not in open_to_all
    }

    assert described["security"] == [{"key": []}]
    assert open_to_all == {"/health", "/ready"}
    assert set().union(*refusals.values()) == set()
