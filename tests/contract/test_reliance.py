"""What a routine relies on, and which changes of a workflow take something of it away."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from stateous_contract.reliance import changed_parts, reliance_of

DOCUMENT: dict[str, Any] = {
    "stateous": 1,
    "workflow": "ticket",
    "context": "Ticket",
    "states": {
        "coding": {"timeout": "4h", "retries": 2, "emits": ["written"]},
        "testing": {"emits": ["passed", "failed"]},
        "reviews": {"parallel": ["review"], "join": "all"},
    },
    "events": {"written": {}, "passed": {"payload": "Tests"}, "failed": {"payload": "Tests"}},
    "transitions": [{"from": "__start__", "to": "coding"}, {"from": "coding", "to": "testing", "on": "written"}],
    "workflows": {
        "review": {
            "context": "Review",
            "states": {"check": {"emits": ["verdict"]}},
            "events": {"verdict": {"payload": "Verdict"}},
            "transitions": [],
        }
    },
    "schemas": {
        "Review": {"type": "object", "properties": {"title": {"type": "string"}}},
        "Tests": {
            "type": "object",
            "properties": {"failures": {"type": "integer"}, "where": {"$ref": "#/schemas/Place"}},
            "required": ["failures"],
        },
        "Place": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
        "Ticket": {"type": "object", "properties": {"title": {"type": "string", "default": ""}}},
        "Verdict": {"enum": ["yes", "no"]},
    },
}  # fmt: skip
EVERYONE = ["coding", "review/check", "testing"]


def changed_by(path: list[Any], value: Any) -> list[str]:
    """The states whose routines lose something when the thing at `path` becomes `value`; ... takes it out."""
    after = copy.deepcopy(DOCUMENT)
    node = after
    for step in path[:-1]:
        node = node[step]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    ours, theirs = reliance_of(DOCUMENT), reliance_of(after)
    return [state for state in EVERYONE if changed_parts(ours, theirs, state)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["states", "coding", "retries"], 5),
        (["states", "coding", "timeout"], "9h"),
        (["states", "new"], {"emits": []}),
        (["states", "reviews", "join"], "any"),
        (["events", "more"], {"payload": "Tests"}),
        (["transitions"], [{"from": "__start__", "to": "testing"}]),
        (["states", "coding", "emits"], ["written", "passed"]),
        (["states", "testing", "emits"], ["failed", "passed"]),
        (["schemas", "Ticket", "properties", "more"], {"type": "integer"}),
        (["schemas", "Ticket", "properties", "title", "default"], "untitled"),
        (["schemas", "Ticket", "title"], "A ticket"),
        (["schemas", "Tests", "properties", "seconds"], {"type": "number"}),
        (["schemas", "Place", "properties", "line"], {"type": "integer"}),
        (["schemas", "Unused"], {"type": "object"}),
    ],
)
def test_what_is_added_or_only_a_setting_concerns_nobody(path: list[Any], value: Any) -> None:
    assert changed_by(path, value) == []


@pytest.mark.parametrize(
    ("path", "value", "states"),
    [
        (["schemas", "Ticket", "properties", "title", "type"], "integer", ["coding", "testing"]),
        (["schemas", "Ticket", "properties", "title"], ..., ["coding", "testing"]),
        (["context"], "Tests", ["coding", "testing"]),
        (["context"], ..., ["coding", "testing"]),
        (["states", "testing", "emits"], ["passed"], ["testing"]),
        (["events", "failed"], {}, ["testing"]),
        (["schemas", "Tests", "required"], ["failures", "where"], ["testing"]),
        (["schemas", "Tests", "additionalProperties"], False, ["testing"]),
        (["schemas", "Place", "properties", "file"], {"type": "integer"}, ["testing"]),
        (["schemas", "Verdict"], {"enum": ["yes"]}, ["review/check"]),
        (["schemas", "Review", "properties", "title"], ..., ["review/check"]),
        (["workflows", "review", "states", "check", "emits"], [], ["review/check"]),
    ],
)
def test_what_a_routine_loses_concerns_its_state_alone(
    path: list[Any], value: Any, states: list[str]
) -> None:
    assert changed_by(path, value) == states


def test_the_changed_part_is_named() -> None:
    after = copy.deepcopy(DOCUMENT)
    after["schemas"]["Place"]["properties"]["file"] = {"type": "integer"}

    assert changed_parts(reliance_of(DOCUMENT), reliance_of(after), "testing") == ["Place.file"]


def test_a_state_that_is_gone_is_served_for_the_tokens_that_are_left() -> None:
    assert changed_by(["states", "testing"], ...) == []


def test_a_state_that_the_contract_does_not_know_relies_on_nothing_but_the_context() -> None:
    assert changed_parts({"*": {"context": "x"}}, {"*": {"context": "y"}, "new": {}}, "new") == ["context"]
    assert changed_parts({}, {"*": {"context": "y"}, "new": {}}, "new") == []


def test_emits_that_are_left_out_are_those_of_the_transitions() -> None:
    bare = copy.deepcopy(DOCUMENT)
    del bare["states"]["coding"]["emits"]

    assert reliance_of(bare) == reliance_of(DOCUMENT)


@pytest.mark.parametrize("value", [None, [], {}, {"states": {}}, {"schemas": [], "states": {"a": 1}}, "x"])
def test_what_is_no_workflow_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="no workflow document"):
        reliance_of(value)
