"""contract/workflow.schema.json, which editors read, agrees with what the control plane loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from stateous_control.graph.source import read_source

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "contract" / "workflow.schema.json").read_text())
EXAMPLES = sorted((ROOT / "examples").glob("*/workflow.*"))


def is_valid(document: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(SCHEMA).is_valid(document)


def test_the_schema_is_one() -> None:
    assert jsonschema_rs.meta.is_valid(SCHEMA)


def test_a_workflow_is_valid(ticket: dict[str, Any]) -> None:
    assert is_valid(ticket)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_valid(path: Path) -> None:
    assert is_valid(read_source(path.read_bytes(), name=path.name).document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["stateous"], 2),
        (["stateous"], True),
        (["workflow"], "Bad"),
        (["states", "Bad"], {}),
        (["states", "coding"], None),
        (["states", "coding", "timeout"], "4 hours"),
        (["states", "coding", "retries"], -1),
        (["states", "coding", "retries"], True),
        (["states", "coding", "emits"], ["A"]),
        (["states", "coding", "parallel"], []),
        (["states", "coding", "join"], "some"),
        (["events", "written"], None),
        (["events", "written"], {"payload": 5}),
        (["context"], 5),
        (["transitions"], {}),
        (["transitions", 0, "on"], "written"),
        (["transitions", 1], {"from": "coding", "to": "testing"}),
        (["transitions", 1, "from"], "__end__"),
        (["transitions", 1, "to"], "__start__"),
        (["transitions", 5, "when"], True),
        (["transitions", 6, "otherwise"], "yes"),
        (["schemas", "Tests"], 5),
        (["workflows"], {"child": {}}),
    ],
)
def test_what_the_control_plane_refuses_by_shape_is_invalid(
    ticket: dict[str, Any], path: list[str | int], value: Any
) -> None:
    node: Any = ticket
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value

    assert not is_valid(ticket)
