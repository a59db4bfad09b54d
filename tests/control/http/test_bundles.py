"""Many messages in one request: a bad one is answered alone and stops only the later ones of its attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from stateous_contract.codes import Refused
from stateous_contract.messages import MessageResult
from stateous_contract.scan import read_object

from stateous_control.http.bundles import Bundle, read_bundle

NOTE = {"task": 1, "attempt": 1, "kind": "note", "text": "x"}
DONE = {"task": 1, "attempt": 1, "kind": "report", "outcome": "event", "event": "e"}


def bundle(*messages: Any, **more: Any) -> Bundle:
    return read_bundle(
        read_object(json.dumps({"supervisor": "s", "instance": "i", "messages": messages} | more).encode())
    )


def statuses(read: Bundle, *engine: int) -> list[int]:
    results = [
        MessageResult(task=each.task, status=status, code="attempt_over")
        for each, status in zip(read.good.messages, engine, strict=True)
    ]
    return [result.status for result in read.merge(results).results]


def test_good_messages_go_to_the_engine_as_they_are() -> None:
    read = bundle(
        NOTE,
        {"task": 2, "attempt": 3, "kind": "memory", "key": "k", "value": None},
        DONE | {"payload": {"n": 1.0}},
    )
    assert [each.kind for each in read.good.messages] == ["note", "memory", "report"]
    assert read.good.messages[1].value == Raw(b"null")
    assert read.good.messages[2].payload == Raw(b'{"n": 1.0}')
    assert statuses(read, 204, 204, 200) == [204, 204, 200]


@pytest.mark.parametrize(
    "change",
    [{"text": " "}, {"text": 1}, {"text": None}, {"kind": "shout"}, {"kind": None}, {"kind": "memory"}, {"kind": "memory", "key": "k"},
     {"kind": "report"}, {"kind": "report", "outcome": "event"}, {"kind": "report", "outcome": "event", "event": "e", "payload": 1},
     {"kind": "report", "outcome": "failed"}, {"kind": "report", "outcome": "released", "reason": "x"},
     {"kind": "report", "outcome": "event", "event": "e", "schedules": [{}]}, {"retryable": "yes"}],
)  # fmt: skip
def test_a_bad_message_stops_only_the_later_ones_of_its_attempt(change: dict[str, Any]) -> None:
    other = NOTE | {"task": 2}
    read = bundle(NOTE, NOTE | change, other, DONE)
    assert [each.task for each in read.good.messages] == [1, 2]
    assert statuses(read, 204, 204) == [204, 422, 204, 422]


def test_another_attempt_of_the_same_task_is_not_stopped() -> None:
    assert statuses(bundle(NOTE | {"text": ""}, NOTE | {"attempt": 2}), 204) == [422, 204]


def test_what_the_engine_refused_first_is_what_later_messages_are_told() -> None:
    read = bundle(NOTE, NOTE | {"text": ""})
    assert statuses(read, 409) == [409, 409]


def test_an_infinite_number_spoils_only_its_own_message() -> None:
    message = {"attempt": 1, "kind": "memory", "key": "k"}
    messages = [message | {"task": 1, "value": "endless"}, message | {"task": 2, "value": 1e9}]
    text = json.dumps({"supervisor": "s", "instance": "i", "messages": messages}).replace(
        '"endless"', "1e999"
    )
    read = read_bundle(read_object(text.encode()))
    assert statuses(read, 204) == [422, 204]


@pytest.mark.parametrize(
    "message",
    [
        1,
        [],
        {},
        {"task": 1},
        {"task": 0, "attempt": 1},
        {"task": "1", "attempt": 1},
        {"task": 1, "attempt": 0},
    ],
)
def test_a_message_about_nobody_spoils_the_whole_request(message: Any) -> None:
    with pytest.raises(Refused) as refused:
        bundle(NOTE, message)
    assert refused.value.code.value == "invalid_body"


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"supervisor": None}, "invalid_argument"), ({"instance": None}, "invalid_argument"), ({"messages": None}, "invalid_body"),
     ({"messages": {}}, "invalid_body"), ({"messages": [NOTE] * 1001}, "invalid_argument")],
)  # fmt: skip
def test_a_request_of_the_wrong_shape_is_refused_whole(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(Refused) as refused:
        bundle(**change)
    assert refused.value.code.value == expected
