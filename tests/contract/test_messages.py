"""Messages survive the wire: nothing is lost, nothing unknown disturbs, users' numbers keep their digits."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from stateous_contract import messages
from stateous_contract.health import Health
from stateous_contract.messages import Grant, Message, Report, TaskMessages, encode

ALL = sorted(
    (
        m
        for _, m in inspect.getmembers(messages, inspect.isclass)
        if issubclass(m, Message) and m is not Message
    ),
    key=lambda m: m.__name__,
)
BUILDERS: dict[Any, Any] = {
    Raw: Raw(b'{"n":1.0}'),
    str: "x",
    int: 7,
    float: 1.5,
    bool: True,
    messages.Wait: messages.Wait(kind="pause"),
}


def sample(kind: type[Message]) -> Message:
    """Build a message with every field that has no default."""
    told = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            told[field.name] = [] if "list" in str(field.type) else BUILDERS[field.type]
    return kind(**told)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_message_reads_as_it_was_written(kind: type[Message]) -> None:
    message = sample(kind)

    assert encode(msgspec.json.decode(encode(message), type=kind)) == encode(message)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_ignored(kind: type[Message]) -> None:
    told = json.loads(encode(sample(kind))) | {"something_of_tomorrow": [1]}
    compact = json.dumps(told, separators=(",", ":")).encode()

    assert encode(msgspec.json.decode(compact, type=kind)) == encode(sample(kind))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_what_was_not_given_is_not_written(kind: type[Message]) -> None:
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}

    assert set(json.loads(encode(sample(kind)))) == required


@given(st.integers(min_value=10**17, max_value=10**40) | st.sampled_from(["1.0", "1e16", "-0.0", "0.1000"]))
def test_a_users_number_keeps_its_digits(number: int | str) -> None:
    context = f'{{"n":{number}}}'.encode()
    grant = b'{"task":1,"token":"t","state":"s","visit":1,"attempt":1,"context":' + context + b',"memory":{}}'

    assert encode(msgspec.json.decode(grant, type=Grant)) == grant


def test_a_report_of_the_baseline_reads_without_our_fields() -> None:
    report = msgspec.json.decode(
        b'{"kind":"failed","error":"boom","attempt":1,"supervisor":"s"}', type=Report
    )

    assert (report.kind, report.error, report.instance, report.reason) == ("failed", "boom", None, None)


def test_health_of_the_baseline_offers_nothing() -> None:
    health = msgspec.json.decode(b'{"workflow":"w","checksum":"sha256:0"}', type=Health)

    assert (health.protocol, health.features, health.limits) == (None, [], None)


def test_a_memory_message_tells_null_from_absent() -> None:
    text = b'{"supervisor":"s","instance":"i","messages":[{"task":1,"attempt":1,"kind":"memory","key":"k","value":null}]}'

    message = msgspec.json.decode(text, type=TaskMessages).messages[0]

    assert isinstance(message.value, msgspec.Raw)
    assert bytes(message.value) == b"null"
    assert encode(message) == b'{"task":1,"attempt":1,"kind":"memory","key":"k","value":null}'
