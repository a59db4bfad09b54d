"""JSON Schema checks of contexts and payloads (C.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from stateous_contract.codes import Code, Refused

from stateous_control.graph.document import Machine
from stateous_control.graph.loading import load
from stateous_control.graph.schema import (
    SchemaInvalid,
    check_context,
    check_payload,
    compile_check,
    with_defaults,
)


def machine(schema: Any, **schemas: Any) -> Machine:
    document = {
        "stateous": 1,
        "workflow": "w",
        "context": "Model",
        "states": {},
        "events": {"go": {"payload": "Model"}, "bare": {}},
        "transitions": [],
        "schemas": {"Model": schema, **schemas},
    }
    return load(document).main


def fields(**properties: Any) -> Machine:
    return machine({"type": "object", "properties": properties})


def sentence(check: Callable[[], None]) -> tuple[Code, str]:
    with pytest.raises(Refused) as refused:
        check()
    return refused.value.code, refused.value.sentence


@pytest.mark.parametrize(
    "number", ["1", "1.0", "-3", "1e3", "18446744073709551616", "-1" + "0" * 400, "1e300"]
)
def test_an_integer_of_any_size_is_one_and_1_0_too(number: str) -> None:
    check_context(fields(n={"type": "integer"}), {"n": Raw(number.encode())})


@pytest.mark.parametrize("value", ["true", "1.5", '"1"', "null", "[]"])
def test_what_is_no_integer_is_refused(value: str) -> None:
    code, text = sentence(lambda: check_context(fields(n={"type": "integer"}), {"n": Raw(value.encode())}))

    assert code is Code.INVALID_CONTEXT
    assert text.startswith(f"the context breaks the schema: n: {value} is not of type")


def test_bounds_beyond_64_bits_are_exact() -> None:
    bounded = fields(n={"minimum": 2**70})

    check_context(bounded, {"n": 2**70})
    sentence(lambda: check_context(bounded, {"n": 2**70 - 1}))


def test_the_sentence_says_where_and_what_however_deep() -> None:
    deep = machine(
        {"properties": {"items": {"type": "array", "items": {"$ref": "#/schemas/Item"}}}},
        Item={"type": "object", "properties": {"price": {"type": "number"}}},
    )

    _, text = sentence(lambda: check_context(deep, {"items": Raw(b'[{"price":1},{"price":"one"}]')}))

    assert text == 'the context breaks the schema: items[1].price: "one" is not of type "number"'


def test_the_callers_words_begin_the_sentence() -> None:
    ours = fields(n={"type": "integer"})

    _, text = sentence(lambda: check_context(ours, {"n": None}, found="the changes break it"))

    assert text == 'the changes break it: n: null is not of type "integer"'


def test_a_sentence_stays_short_whatever_the_value() -> None:
    _, text = sentence(lambda: check_context(fields(n={"type": "integer"}), {"n": "x" * 100_000}))

    assert len(text) < 400


def test_at_most_three_problems_are_told() -> None:
    many = fields(**{f"n{i}": {"type": "integer"} for i in range(9)})

    _, text = sentence(lambda: check_context(many, {f"n{i}": "x" for i in range(9)}))

    assert text.count(";") == 2


def test_a_format_is_not_asserted() -> None:
    check_context(fields(at={"type": "string", "format": "date-time"}), {"at": "yesterday"})


def test_unknown_keys_pass_unless_the_model_forbids_them() -> None:
    check_context(fields(), {"extra": 1})

    sentence(lambda: check_context(machine({"additionalProperties": False}), {"extra": 1}))


def test_without_a_context_model_nothing_is_even_read() -> None:
    bare = Machine("w", None, {}, {}, {})

    check_context(bare, {"n": Raw(b"this is no JSON")})


@pytest.mark.parametrize("payload", [None, Raw(b"null"), Raw(b" { } "), {}])
def test_an_event_without_a_model_takes_nothing_or_an_empty_object(payload: Any) -> None:
    check_payload(fields(), "bare", payload)


@pytest.mark.parametrize("payload", [Raw(b'{"a":1}'), Raw(b"[]"), Raw(b'"x"'), Raw(b"0"), Raw(b"false")])
def test_an_event_without_a_model_takes_no_payload(payload: Any) -> None:
    code, text = sentence(lambda: check_payload(fields(), "bare", payload))

    assert code is Code.INVALID_PAYLOAD
    assert "'bare'" in text


@pytest.mark.parametrize("payload", [None, Raw(b"null")])
def test_no_payload_is_checked_as_an_empty_object(payload: Any) -> None:
    check_payload(fields(n={"type": "integer"}), "go", payload)

    code, _ = sentence(lambda: check_payload(machine({"required": ["n"]}), "go", payload))
    assert code is Code.INVALID_PAYLOAD


def test_a_payload_that_breaks_its_model_is_refused_with_its_place() -> None:
    _, text = sentence(lambda: check_payload(fields(n={"type": "integer"}), "go", Raw(b'{"n":"x"}')))

    assert text == 'the payload of \'go\' breaks the schema: n: "x" is not of type "integer"'


def test_a_payload_that_is_no_object_is_refused_even_if_the_model_would_take_it() -> None:
    sentence(lambda: check_payload(machine(True), "go", Raw(b"5")))


def test_a_key_that_is_no_unicode_is_refused_and_not_raised() -> None:
    code, _ = sentence(lambda: check_context(fields(n={"type": "integer"}), {"\ud800": 1, "n": "x"}))

    assert code is Code.INVALID_CONTEXT


def test_defaults_come_first_and_a_given_key_keeps_its_place() -> None:
    ours = fields(a={"default": 1}, b={"type": "string"}, c={"default": [1.0, "é"]}, d={"default": None})

    filled = with_defaults(ours, {"z": Raw(b"0"), "c": Raw(b"7")})

    assert [(key, bytes(value)) for key, value in filled.items()] == [
        ("a", b"1"),
        ("c", b"7"),
        ("d", b"null"),
        ("z", b"0"),
    ]


@pytest.mark.parametrize("schema", [True, {}, {"properties": {"a": True}}, {"properties": {"a": {}}}])
def test_a_model_without_defaults_fills_in_nothing(schema: Any) -> None:
    assert with_defaults(machine(schema), {"a": Raw(b"1")}) == {"a": Raw(b"1")}


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"type": "nope"},
        {"properties": {"a": {"type": 5}}},
        {"pattern": "("},
        {"$ref": "#/schemas/Missing"},
        {"items": {"$ref": "https://127.0.0.1:1/schema.json"}},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"\ud800": {}}},
    ],
)
def test_what_is_no_schema_or_refers_elsewhere_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaInvalid):
        compile_check("Model", {"Model": schema})


def test_models_may_refer_to_each_other_and_to_themselves() -> None:
    schemas = {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/schemas/Tree"}}}}
    check = compile_check("Tree", schemas)

    assert check({"left": {"left": {}}}) == []
    assert check({"left": {"left": 1}}) == ['left.left: 1 is not of type "object"']


@pytest.mark.parametrize("name", ["A/B", "A~B", "A B", "É", "A%2FB", "a.b"])
def test_a_model_may_have_any_name(name: str) -> None:
    assert compile_check(name, {name: {"type": "object"}})(5)


def test_a_pattern_that_backtracks_without_end_is_cut_off() -> None:
    check = compile_check("M", {"M": {"pattern": "^(?=(a+)+$)"}})

    assert check("a" * 60 + "b")
