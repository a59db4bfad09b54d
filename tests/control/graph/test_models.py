"""What a schema says of a field, as far as compiling relies on it."""

from __future__ import annotations

from typing import Any

import pytest

from stateous_control.graph.models import ANYTHING, Domain, Model, model_of


def model(schema: Any, **schemas: Any) -> Model:
    return model_of("M", {"M": schema, **schemas})


def domain(schema: Any, **schemas: Any) -> Domain:
    """The domain of a required field of that schema."""
    return model({"properties": {"a": schema}, "required": ["a"]}, **schemas).domain("a")


def kinds(*names: str) -> Domain:
    return Domain(frozenset(names))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, kinds("integer")),
        ({"type": ["string", "null"]}, kinds("string", "null")),
        ({"const": 1}, Domain(values=(1,))),
        ({"enum": ["a", None]}, Domain(values=("a", None))),
        ({"type": "string", "enum": ["a"]}, Domain(values=("a",))),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, kinds("integer", "null")),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, Domain(values=(1, 2))),
        ({"oneOf": [{"const": "a"}, {"type": "null"}]}, kinds("string", "null")),
        ({"allOf": [{"type": "string"}]}, kinds("string")),
        ({"$ref": "#/schemas/N"}, kinds("boolean")),
        ({"$ref": "#/schemas/Loop"}, ANYTHING),
        ({"$ref": "https://elsewhere"}, ANYTHING),
        ({"minimum": 1}, ANYTHING),
        (True, ANYTHING),
        ({}, ANYTHING),
    ],
)
def test_a_required_field_can_be_what_its_schema_says(schema: Any, expected: Domain) -> None:
    assert domain(schema, N={"type": "boolean"}, Loop={"$ref": "#/schemas/Loop"}) == expected


def test_a_field_that_may_be_absent_may_be_null() -> None:
    optional = model({"properties": {"a": {"type": "integer"}, "b": {"enum": [1]}}})

    assert optional.domain("a") == kinds("integer", "null")
    assert optional.domain("b") == Domain(values=(1, None))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}},
        {"$ref": "#/schemas/N"},
        {"allOf": [{"properties": {"b": {}}}, {"$ref": "#/schemas/N"}]},
        {"anyOf": [{"properties": {"b": {}}}, {"properties": {"a": {}}}]},
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^a": {}}},
        {"if": {}, "then": {"properties": {"a": {}}}},
        {"$ref": "https://elsewhere"},
        True,
    ],
)
def test_a_field_may_be_there(schema: Any) -> None:
    assert model(schema, N={"properties": {"a": {}}}).has("a")


@pytest.mark.parametrize(
    "schema", [{"properties": {"b": {}}}, {"type": "object"}, {"additionalProperties": False}]
)
def test_a_field_is_not_declared(schema: Any) -> None:
    assert not model(schema).has("a")


def test_what_all_of_the_parts_require_is_required() -> None:
    parts = {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]}

    assert model(parts).domain("a") == kinds("integer")


def test_what_only_one_alternative_requires_is_not() -> None:
    parts = {"properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {}]}

    assert model(parts).domain("a") == kinds("integer", "null")
