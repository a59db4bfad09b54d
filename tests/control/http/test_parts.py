"""Bodies, part by part: which code each wrong part has, and which part is looked at first (A.2 to A.8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from stateous_contract.codes import Refused
from stateous_contract.scan import Fields, read_object

from stateous_control.http import parts


def body(values: dict[str, Any] | str) -> Fields:
    return read_object((values if isinstance(values, str) else json.dumps(values)).encode())


def code(read: Any, values: dict[str, Any] | str) -> str:
    with pytest.raises(Refused) as refused:
        read(body(values))
    return refused.value.code.value


CLAIM = {"supervisor": "s", "states": ["a"]}
BEAT = {"supervisor": "s", "tasks": [1]}
EVENT = {"kind": "event", "event": "e"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"supervisor": None}, "invalid_argument"), ({"supervisor": ""}, "invalid_argument"),
        ({"supervisor": "s" * 257}, "invalid_argument"), ({"supervisor": 1}, "invalid_argument"),
        ({"states": None}, "invalid_body"), ({"states": "a"}, "invalid_body"), ({"states": [1]}, "invalid_body"),
        ({"states": [""]}, "invalid_body"), ({"states": ["a" * 130]}, "invalid_body"),
        ({"states": ["a"] * 1001}, "invalid_argument"),
        ({"request": ""}, "invalid_argument"), ({"request": "a b"}, "invalid_argument"),
        ({"request": "a\n"}, "invalid_argument"), ({"request": "a" * 65}, "invalid_argument"), ({"request": 1}, "invalid_argument"),
        ({"instance": "a/b"}, "invalid_argument"),
        ({"max": 0}, "invalid_argument"), ({"max": 1001}, "invalid_argument"), ({"max": True}, "invalid_argument"),
        ({"max": 1.0}, "invalid_argument"), ({"max_by_state": {"a": -1}}, "invalid_argument"),
        ({"max_by_state": [1]}, "invalid_argument"),
        ({"wait": -1}, "invalid_argument"), ({"wait": "1"}, "invalid_argument"), ({"wait": True}, "invalid_argument"),
        ({"withdraw": 1}, "invalid_argument"), ({"versions": {"a": [0]}}, "invalid_argument"), ({"versions": {"a": 1}}, "invalid_argument"),
        ({"supervisor": 1, "states": 1}, "invalid_argument"),
    ],
)  # fmt: skip
def test_a_wrong_part_of_a_claim_has_its_code(change: dict[str, Any], expected: str) -> None:
    assert code(parts.claim, CLAIM | change) == expected


def test_a_claim_with_all_parts_is_read() -> None:
    read = parts.claim(
        body(CLAIM | {"request": "r", "instance": "i", "max": 3, "max_by_state": {"a": 2}, "wait": 2, "withdraw": True,
                      "versions": {"a": [1, 2]}, "other": 1})
    )  # fmt: skip
    assert (read.request, read.instance, read.max, read.wait, read.withdraw) == ("r", "i", 3, 2.0, True)
    assert (read.max_by_state, read.versions) == ({"a": 2}, {"a": [1, 2]})


def test_a_claim_waits_no_longer_than_the_limit() -> None:
    assert parts.claim(body('{"supervisor":"s","states":[],"wait":1e9}')).wait == 25.0


@pytest.mark.parametrize("tasks", [None, "1", [True], ["1"], [0], [-1], [1.0], [2**63], {"1": 1}])
def test_what_is_no_list_of_task_ids_is_refused(tasks: Any) -> None:
    assert code(parts.heartbeat, BEAT | {"tasks": tasks}) == "invalid_body"


def test_too_many_tasks_in_a_heartbeat_are_refused() -> None:
    assert code(parts.heartbeat, BEAT | {"tasks": list(range(1, 1002))}) == "invalid_argument"


@pytest.mark.parametrize("attempts", [[1], {"x": 1}, {"1": 0}, {"1": "1"}, {"-1": 1}])
def test_attempts_that_are_none_are_refused(attempts: Any) -> None:
    assert code(parts.heartbeat, BEAT | {"attempts": attempts}) == "invalid_argument"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "invalid_body"), ({"kind": "done"}, "invalid_body"), ({"kind": ["event"]}, "invalid_body"), ({"kind": "event"}, "invalid_body"),
        ({"kind": "event", "event": 1}, "invalid_body"), ({"kind": "failed"}, "invalid_body"),
        ({"kind": "failed", "error": None}, "invalid_body"),
        (EVENT | {"payload": 1}, "invalid_body"), (EVENT | {"context": []}, "invalid_body"),
        (EVENT | {"schedules": {}}, "invalid_body"), (EVENT | {"schedules": [1]}, "invalid_body"),
        (EVENT | {"schedules": [{"event": 1, "after": "1s"}]}, "invalid_body"),
        (EVENT | {"schedules": [{"event": "e"}]}, "invalid_body"),
        (EVENT | {"schedules": [{"event": "e", "after": "0s"}]}, "invalid_body"),
        (EVENT | {"schedules": [{"event": "e", "after": "1s", "payload": 1}]}, "invalid_body"),
        (EVENT | {"attempt": 0}, "invalid_body"), (EVENT | {"attempt": 1.0}, "invalid_body"), (EVENT | {"attempt": True}, "invalid_body"),
        (EVENT | {"attempt": "1"}, "invalid_body"), (EVENT | {"supervisor": ""}, "invalid_argument"),
        ({"kind": "released"}, "invalid_body"), ({"kind": "released", "reason": "because"}, "invalid_body"),
        (EVENT | {"retryable": 1}, "invalid_body"),
    ],
)  # fmt: skip
def test_a_wrong_part_of_a_report_has_its_code(values: dict[str, Any], expected: str) -> None:
    assert code(parts.report, values) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"kind":"event","event":"e","context":{"a":1e999}}', "invalid_context"),
        ('{"kind":"event","event":"e","payload":{"a":1e999}}', "invalid_payload"),
        (
            '{"kind":"event","event":"e","schedules":[{"event":"e","after":"1s","payload":{"a":-1e999}}]}',
            "invalid_payload",
        ),
    ],
)
def test_an_infinite_number_is_refused_where_it_stands(text: str, expected: str) -> None:
    assert code(parts.report, text) == expected


def test_users_values_in_a_report_stay_text() -> None:
    read = parts.report(body('{"kind":"event","event":"e","payload":{"n":1.0},"context":{"b":2,"a":1e2}}'))
    assert (read.payload, read.context) == (Raw(b'{"n":1.0}'), Raw(b'{"b":2,"a":1e2}'))


def test_null_parts_of_a_report_are_absent_parts() -> None:
    read = parts.report(
        body(
            EVENT | {"payload": None, "context": None, "schedules": None, "attempt": None, "supervisor": None}
        )
    )
    assert read == parts.report(body(EVENT))


@pytest.mark.parametrize("text", ["1s", "90m", "3650d", "87600h"])
def test_a_duration_is_taken(text: str) -> None:
    assert parts.is_duration(text)


@pytest.mark.parametrize(
    "text", ["", "s", "0s", "01s", "1", "1w", "1 s", "1s\n", "3651d", "87601h", "9" * 5000 + "s", "١s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert not parts.is_duration(text)


@pytest.mark.parametrize("text", [None, 1, "", "  \n ", "x" * 501])
def test_a_note_without_text_is_refused(text: Any) -> None:
    with pytest.raises(Refused) as refused:
        parts.note_text(text)
    assert refused.value.code.value == "invalid_payload"


def test_a_note_is_stripped_outside_only() -> None:
    assert parts.note_text("  a\n b ") == "a\n b"
    assert len(parts.note_text(" " * 100 + "x" * 500)) == 500


@pytest.mark.parametrize("key", [None, 1, "", "k" * 129])
def test_a_memory_key_that_is_none_is_refused(key: Any) -> None:
    with pytest.raises(Refused) as refused:
        parts.memory_key(key)
    assert refused.value.code.value == "invalid_payload"


def test_a_memory_write_without_a_value_is_no_memory_write() -> None:
    with pytest.raises(Refused) as refused:
        parts.memory_value(None, body({}))
    assert refused.value.code.value == "invalid_body"
