"""`contract.py` as text: what it keeps of a schema, checked by importing it as routines do."""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from stateous_contract.canonical import checksum_of
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.agent import folder as agent_folder
from stateous_supervisor.scaffold.codegen import contract_text, names_of
from stateous_supervisor.scaffold.document import DocumentInvalid, read_document

GOOD = {"sku": "AB", "at": "2026-01-01T00:00:00Z"}


def contract_of(document: dict[str, Any], folder: Path) -> ModuleType:
    """Write the contract of `document` into `folder` and import it under a name of its own."""
    path = folder / "contract.py"
    path.write_text(contract_text(read_document(document), checksum_of(document)), "utf-8")
    name = f"contract_{random.getrandbits(64):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return contract_of(KITCHEN, tmp_path_factory.mktemp("kitchen"))


def document_with(schema: Any) -> dict[str, Any]:
    return {
        "stateous": 1,
        "workflow": "w",
        "states": {"a": {"emits": ["e"]}},
        "events": {"e": {"payload": "M"}},
        "transitions": [],
        "schemas": {"M": {"type": "object", "properties": {"f": schema}, "required": ["f"]}},
    }


@pytest.mark.parametrize(
    "bad",
    [
        {"sku": "abc"},
        {"at": "yesterday"},
        {"qty": 0},
        {"color": "green"},
        {"other": 1},
        {"my-key": "ac"},
        {"tags": ["a", "b", "c", "d"]},
        {"weights": {"a": 0}},
        {"shape": {"kind": "triangle"}},
        {"pair": [1]},
        {"size": {}},
        {"kids": [{"sku": "AB"}]},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_what_breaks_the_schema_breaks_the_model(kitchen: ModuleType, bad: dict[str, Any]) -> None:
    """A-08: pattern, format, bounds, enum, closed objects, uniqueness, unions, tuples and nesting are kept."""
    with pytest.raises(ValidationError):
        kitchen.Item.model_validate({**GOOD, **bad})


def test_what_fits_the_schema_fits_the_model_and_comes_back_the_same(kitchen: ModuleType) -> None:
    value = {
        **GOOD,
        "qty": 5,
        "color": "blue",
        "link": "http://a.b",
        "json": 1,
        "my-key": "ab",
        "tags": ["x"],
        "pair": [1, "x"],
        "weights": {"a": 0.5},
        "size": {"w": 1.5},
        "when": "2026-01-01",
        "kids": [],
        "list": ["y"],
        "model_no": 4,
        "half": 1.5,
        "nest": {"x": 1},
        "not_x": "y",
        "shape": {"kind": "square", "a": 2.0},
        "start": "11:00:00",
    }
    assert kitchen.Item.model_validate(value).model_dump(mode="json") == value


def test_a_field_that_may_be_absent_is_left_out_and_not_sent_as_null(kitchen: ModuleType) -> None:
    dumped = kitchen.Item(**GOOD).model_dump(mode="json")

    assert not {"link", "json", "my-key", "pair", "size", "half", "shape"} & set(dumped)


def test_a_null_that_the_schema_asks_for_is_sent(kitchen: ModuleType) -> None:
    assert kitchen.Item(**GOOD).model_dump(mode="json")["when"] is None


def test_defaults_of_every_kind_are_kept(kitchen: ModuleType) -> None:
    dumped = kitchen.Item(**GOOD).model_dump(mode="json")

    kept = {key: dumped[key] for key in ("qty", "color", "list", "nest", "start", "model_no", "not_x")}
    assert kept == {
        "qty": 1,
        "color": "red",
        "list": ["x"],
        "nest": {"x": 3},
        "start": "10:00:00",
        "model_no": 3,
        "not_x": "q",
    }


def test_a_payload_of_any_fields_takes_any_fields(kitchen: ModuleType) -> None:
    assert kitchen.Anything(x=1).model_dump(mode="json") == {"x": 1}


def test_states_of_a_child_workflow_are_claimed_with_its_name(kitchen: ModuleType) -> None:
    assert kitchen.states.oven.prepare.name == "oven/prepare"


def test_a_parallel_state_has_no_reference_because_it_has_no_task(kitchen: ModuleType) -> None:
    assert not hasattr(kitchen.states, "both")


def test_an_event_has_its_wire_name_and_its_model(kitchen: ModuleType) -> None:
    assert kitchen.events.nothing_new.name == "nothing-new"
    assert kitchen.events.ready.payload_model() is kitchen.Item
    assert kitchen.events.nothing_new.payload_model() is None


def test_two_names_that_look_alike_in_python_are_kept_apart(kitchen: ModuleType) -> None:
    assert (kitchen.events.a_b.name, kitchen.events.a_b_2.name) == ("a-b", "a_b")


def test_a_state_without_emits_emits_what_leads_out_of_it(kitchen: ModuleType) -> None:
    assert kitchen.states.wait.emits == (kitchen.events.a_b,)


def test_a_context_knows_its_model(kitchen: ModuleType) -> None:
    assert get_args(kitchen.OrderContext) == (kitchen.Order,)
    assert get_args(kitchen.AsyncOrderContext) == (kitchen.Order,)


def test_a_state_that_emits_nothing_says_so() -> None:
    text = contract_text(read_document(KITCHEN), "sha256:0")

    assert "stuck: ClassVar[StateRef[Never]]" in text


def test_the_agent_finds_the_checksum_without_importing(tmp_path: Path) -> None:
    contract_of(KITCHEN, tmp_path)

    assert agent_folder.checksum_of(tmp_path) == checksum_of(KITCHEN)


def test_the_same_workflow_gives_the_same_text() -> None:
    reordered = {**KITCHEN, "schemas": dict(reversed(KITCHEN["schemas"].items()))}

    first = contract_text(read_document(KITCHEN), "sha256:0")
    assert contract_text(read_document(reordered), "sha256:0") == first


def test_models_that_need_each_other_can_be_used(tmp_path: Path) -> None:
    document = document_with({"$ref": "#/schemas/B"})
    document["schemas"]["B"] = {"type": "object", "properties": {"m": {"$ref": "#/schemas/M"}}}

    module = contract_of(document, tmp_path)

    assert module.M(f=module.B(m=module.M(f=module.B()))).model_dump(mode="json") == {"f": {"m": {"f": {}}}}


def test_a_model_may_have_the_name_of_anything_in_the_contract(tmp_path: Path) -> None:
    document = document_with({"type": "string"})
    document["schemas"] = {"events": document["schemas"]["M"], "Field": {"type": "string"}}
    document["events"]["e"]["payload"] = "events"

    module = contract_of(document, tmp_path)

    assert module.events.e.payload_model()(f="x").model_dump() == {"f": "x"}


def test_definitions_inside_a_schema_become_models(tmp_path: Path) -> None:
    document = document_with({"$ref": "#/$defs/Inner"})
    document["schemas"]["M"]["$defs"] = {
        "Inner": {"type": "object", "properties": {"n": {"type": "integer"}}}
    }

    module = contract_of(document, tmp_path)

    assert module.M(f=module.Inner(n=1)).model_dump() == {"f": {"n": 1}}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stateous": 2}, "'stateous' is 2"),
        ({"workflow": "Bad Name"}, "'workflow' is 'Bad Name'"),
        ({"states": []}, "'states' of the document is a list"),
        ({"states": {"a": {"emits": ["x"]}}}, "state 'a' emits 'x'"),
        ({"states": {"A": {}}}, "has the name 'A'"),
        ({"events": {"e": {"payload": "X"}}}, "payload 'X', which is not among the schemas"),
        ({"context": "X"}, "the context is 'X'"),
    ],
)
def test_a_document_that_is_no_workflow_is_refused_in_one_sentence(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DocumentInvalid) as refused:
        read_document({**document_with({}), **change})

    assert sentence in str(refused.value)


@pytest.mark.parametrize("given", [None, [], "x", {}, {"stateous": 1}])
def test_what_is_no_document_at_all_is_refused(given: Any) -> None:
    with pytest.raises(DocumentInvalid):
        read_document(given)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=4), st.floats(allow_nan=False)
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "default",
        "minimum",
        "pattern",
        "format",
        "items",
        "properties",
        "required",
        "anyOf",
        "$ref",
        "additionalProperties",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "description",
        "allOf",
        "$defs",
        "patternProperties",
        "discriminator",
        "oneOf",
        "not",
    ]
)
WORDS = st.sampled_from(
    ["string", "integer", "array", "object", "null", "#/schemas/M", "#/$defs/x", "date", "["]
)
SCHEMAS = st.recursive(
    LEAVES | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_whatever_a_schema_holds_the_contract_is_python(schema: Any) -> None:
    """A control plane's document is not trusted: its text never becomes code, and never breaks the writer."""
    document = document_with(schema)

    text = contract_text(read_document(document), "sha256:0")

    compile(text, "contract.py", "exec")


@given(st.text(min_size=1, max_size=6), st.text(max_size=12))
@example("0", '\\"')
@example("0", '"')
@example("0", '\\\\"""')
def test_names_and_descriptions_never_become_code(name: str, description: str) -> None:
    document = document_with({"type": "string", "description": description, "default": description})
    document["schemas"]["M"]["properties"][name] = {"const": description}
    document["schemas"][name + "x"] = {"type": "object", "properties": {name: {}}, "description": description}

    text = contract_text(read_document(document), "sha256:0")

    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
    assert calls <= {"ConfigDict", "Field", "StateRef", "model_serializer", "handler", "handler(self).items"}


def test_routines_are_told_the_names_that_the_contract_has() -> None:
    names = names_of(read_document(KITCHEN))

    assert names.state(None, "class") == "states.class_"
    assert names.event("oven", "done") == "events.oven.done"
