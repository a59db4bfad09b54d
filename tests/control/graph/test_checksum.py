from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stateous_contract.canonical import completed

from stateous_control.graph.checksum import canonical_text, checksum_of, structure_of

VECTORS = [
    (
        r'{"é":"é\u2028😀/\\\"\b\f\n\r\t\u0001\u007f"}',
        r'{"\u00e9":"\u00e9\u2028\ud83d\ude00/\\\"\b\f\n\r\t\u0001\u007f"}',
        "sha256:9040bb0e5d977379aa9f0b91e1979f851227459be0f77008f6ee3c173eb66e2a",
    ),
    (
        '{"b":1,"a":[1.0,1e16,1e-7,1e22,-0.0,123456789012345678901234567890]}',
        '{"a":[1.0,1e+16,1e-07,1e+22,-0.0,123456789012345678901234567890],"b":1}',
        "sha256:170aed7d75ac9f4324d3954e1bf2604b0c3782e40bd3eed53d84d9bca494bc9c",
    ),
    (
        '{"\uff5e":1,"😀":2}',
        r'{"\uff5e":1,"\ud83d\ude00":2}',
        "sha256:b71d7ecd44c60f3f73cb8c54c59f9e373a5daf64bc0fd065b053d32136b89fc0",
    ),
]


@pytest.mark.parametrize(("text", "canonical", "checksum"), VECTORS)
def test_the_checked_vectors_come_out(text: str, canonical: str, checksum: str) -> None:
    document = json.loads(text)

    assert canonical_text(document) == canonical
    assert checksum_of(document) == checksum


def test_a_number_with_a_point_is_another_document() -> None:
    assert checksum_of({"a": 1}) != checksum_of({"a": 1.0})


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_the_order_of_keys_does_not_matter(document: dict[str, Any]) -> None:
    assert checksum_of(dict(reversed(document.items()))) == checksum_of(document)


def test_timeouts_and_retries_change_the_checksum_but_not_the_structure(ticket: dict[str, Any]) -> None:
    checksum, structure = checksum_of(ticket), structure_of(ticket)

    ticket["states"]["coding"] = {"emits": ["written"], "timeout": "1m"}

    assert checksum_of(ticket) != checksum
    assert structure_of(ticket) == structure


def test_a_childs_settings_are_no_structure(ticket: dict[str, Any]) -> None:
    child = {"states": {"a": {"retries": 1, "emits": []}}, "events": {}, "transitions": []}
    ticket["workflows"] = {"child": child}
    structure = structure_of(ticket)

    child["states"] = {"a": {"emits": []}}

    assert structure_of(ticket) == structure


@pytest.mark.parametrize("change", [{"events": {"more": {}}}, {"schemas": {}}, {"extra": 1}])
def test_anything_else_changes_the_structure(ticket: dict[str, Any], change: dict[str, Any]) -> None:
    assert structure_of({**ticket, **change}) != structure_of(ticket)


def test_what_a_state_emits_is_filled_in_by_its_transitions(ticket: dict[str, Any]) -> None:
    whole = json.loads(json.dumps(ticket))
    del ticket["states"]["coding"]["emits"], ticket["states"]["testing"]["emits"]

    assert completed(ticket) == whole


def test_a_whole_document_is_completed_to_itself(ticket: dict[str, Any]) -> None:
    ticket["states"]["testing"]["emits"] = []

    assert json.dumps(completed(ticket)) == json.dumps(ticket)


def test_children_are_completed_too(ticket: dict[str, Any]) -> None:
    ticket["workflows"] = {
        "child": {
            "states": {"a": {}},
            "events": {"go": {}},
            "transitions": [{"from": "a", "to": "__end__", "on": "go"}],
        }
    }

    assert completed(ticket)["workflows"]["child"]["states"] == {"a": {"emits": ["go"]}}


@pytest.mark.parametrize(
    "document",
    [None, 5, [], {}, {"states": 5}, {"states": {"a": None}, "events": {}, "transitions": [5, {"from": []}]}],
)
def test_whatever_is_no_document_is_left_for_the_caller_to_refuse(document: Any) -> None:
    assert completed(document) == document
