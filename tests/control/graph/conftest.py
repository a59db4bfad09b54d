"""A workflow to start from, as a document and as YAML with known lines."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

TICKET: dict[str, Any] = {
    "stateous": 1,
    "workflow": "ticket",
    "context": "Ticket",
    "states": {
        "coding": {"timeout": "4h", "retries": 2, "emits": ["written"]},
        "testing": {"emits": ["passed", "failed"]},
    },
    "events": {"written": {}, "passed": {"payload": "Tests"}, "failed": {"payload": "Tests"}},
    "transitions": [
        {"from": "__start__", "to": "coding"},
        {"from": "coding", "to": "testing", "on": "written"},
        {"from": "coding", "to": "__end__", "on": "timeout"},
        {"from": "coding", "to": "__end__", "on": "error"},
        {"from": "testing", "to": "__end__", "on": "passed"},
        {"from": "testing", "to": "coding", "on": "failed", "when": "payload.failures < 3"},
        {"from": "testing", "to": "__end__", "on": "failed", "otherwise": True},
        {"from": "testing", "to": "coding", "on": "error"},
    ],
    "schemas": {
        "Tests": {
            "type": "object",
            "properties": {"failures": {"type": "integer"}},
            "required": ["failures"],
        },
        "Ticket": {
            "type": "object",
            "properties": {"title": {"type": "string", "default": ""}, "tries": {"type": "integer"}},
        },
    },
}

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def ticket() -> dict[str, Any]:
    """A workflow without a fault or a warning, free to be changed."""
    return copy.deepcopy(TICKET)
