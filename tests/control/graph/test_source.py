from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from stateous_contract.canonical import checksum_of

from stateous_control.graph.document import WorkflowInvalid
from stateous_control.graph.source import WORKFLOW_BYTES_MAX, read_source


def faults(data: bytes, name: str = "a.yaml") -> list[tuple[int | None, str]]:
    with pytest.raises(WorkflowInvalid) as refused:
        read_source(data, name=name)
    return [(fault.line, fault.message) for fault in refused.value.faults]


def value(text: str) -> Any:
    return read_source(f"a: {text}\n".encode()).document["a"]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_yaml_and_json_of_one_document_have_one_checksum(document: dict[str, Any]) -> None:
    as_json = read_source(json.dumps(document).encode(), name="a.json").document
    # JSON is YAML, once it is ASCII and no line is cut in two.
    as_yaml = read_source(json.dumps(document).replace("\x7f", "\\u007f").encode(), name="a.yaml").document

    assert checksum_of(as_yaml) == checksum_of(as_json) == checksum_of(document)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_block_style_stands_for_the_same_document(document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document, default_style='"', width=20)

    assert read_source(text.encode()).document == document


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "n", "On", "1_000", "12:30", "2001-01-01", "<<", "="]
)
def test_words_of_older_yaml_are_text(word: str) -> None:
    assert value(word) == word


def test_on_is_a_key_like_any_other() -> None:
    assert read_source(b"on: on\nyes: no\n").document == {"on": "on", "yes": "no"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("'1'", "1"),
        ('"true"', "true"),
        ("nUll", "nUll"),
        ("0b1", "0b1"),
        ("1__0", "1__0"),
    ],
)
def test_plain_scalars_are_those_of_the_core_schema(text: str, expected: Any) -> None:
    found = value(text)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("1.0", 1.0), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("-0.0", -0.0)]
)
def test_a_number_with_a_point_or_exponent_is_a_float(text: str, expected: float) -> None:
    found = value(text)

    assert isinstance(found, float)
    assert math.copysign(1, found) == math.copysign(1, expected)
    assert found == expected


def test_two_escapes_of_one_character_are_joined_as_in_json() -> None:
    assert value('"\\ud83d\\ude00"') == "😀"


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    assert faults(b"a: 1\nb: 2\na: 3\n") == [(3, "the key 'a' stands twice; first on line 1")]


def test_an_alias_and_its_anchor_are_refused_with_their_lines() -> None:
    assert [line for line, _ in faults(b"a: &x 1\nb: 2\nc: *x\n")] == [1, 3]


@pytest.mark.parametrize("tagged", ["!!str 1", "!mine {a: 1}", "! x", "!!python/object:os.system []"])
def test_a_tag_is_refused_with_its_line(tagged: str) -> None:
    [(line, message)] = faults(f"a: 1\nb: {tagged}\n".encode())

    assert (line, "tag" in message) == (2, True)


@pytest.mark.parametrize("key", ["1", "true", "null", "~", "[1]", "{a: 1}", "1.5"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    assert faults(f"a: 1\n? {key}\n: 2\n".encode()) == [(2, "a key must be text; write it in quotes")]


@pytest.mark.parametrize("number", [".inf", "-.Inf", ".nan", "1e999"])
def test_a_number_that_json_cannot_hold_is_refused_with_its_line(number: str) -> None:
    [(line, _)] = faults(f"a: 1\nb: {number}\n".encode())

    assert line == 2


def test_an_integer_has_at_most_4300_digits() -> None:
    assert value("9" * 4300) == int("9" * 4300)

    assert faults(f"a: {'9' * 4301}".encode()) == faults(f"a: 0x{'f' * 4000}".encode())


def test_every_fault_of_a_yaml_file_is_named() -> None:
    assert [line for line, _ in faults(b"a: &x 1\na: .nan\n3: !t 4\n")] == [1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"a: [\n", 2),
        (b"a: 1\n\tb: 2\n", 2),
        (b"a: 1\nb: 'x\n", 3),
        (b"a: 1\nb: \x00\n", 2),
        (b"a: 1\nb: \xff\n", 2),
        (b"a: \x7f\n", 1),
        (b"a: 1\n--- \nb: 1\n", 2),
        (b"%YAML 2.0\n---\na: 1\n", 1),
        (b"", None),
        (b"# nothing\n", None),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_line(data: bytes, line: int | None) -> None:
    assert [found for found, _ in faults(data)] == [line]


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_64_levels_are_read_and_65_refused(name: str) -> None:
    read_source(b"[" * 64 + b"]" * 64, name=name)

    [(_, message)] = faults(b"[" * 65 + b"]" * 65, name)
    assert message == "it is nested more than 64 levels deep"


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_hostile_nesting_is_one_sentence(name: str, opening: bytes) -> None:
    assert len(faults(opening * 100_000, name)) == 1


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
@pytest.mark.parametrize("text", [b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b'{"a": ["x", {"b": "\\ud83d-"}]}'])
def test_a_lone_surrogate_is_refused(name: str, text: bytes) -> None:
    assert "lone surrogate" in faults(text, name)[0][1]


@pytest.mark.parametrize(
    "text",
    [b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": {"b": 1, "b": 1}}'],
)
def test_json_that_has_no_one_meaning_is_refused(text: bytes) -> None:
    assert len(faults(text, "a.json")) == 1


def test_a_json_integer_has_at_most_4300_digits() -> None:
    assert "4301 digits" in faults(b'{"a": ' + b"9" * 4301 + b"}", "a.json")[0][1]


def test_broken_json_is_refused_with_its_line() -> None:
    assert faults(b'{"a":\n 1,}', "a.json")[0][0] == 2


def test_the_ending_of_the_name_decides_and_then_the_first_character() -> None:
    assert read_source(b'{"a": 1}', name="a.yaml").kind == "yaml"
    assert read_source(b'{"a": 1}', name="a.JSON").kind == "json"
    assert read_source(b' \n{"a": 1}', name="-").kind == "json"
    assert read_source(b"a: 1", name="-").kind == "yaml"


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    assert read_source(b"\xef\xbb\xbf" + b'{"a": 1}', name="a.json").document == {"a": 1}


def test_a_file_that_is_too_large_is_refused_unread() -> None:
    assert "at most" in faults(b"#" * (WORKFLOW_BYTES_MAX + 1))[0][1]


def test_lines_are_those_of_keys_and_items_and_else_of_what_holds_them() -> None:
    source = read_source(b"a:\n  b:\n    - 1\n    - c: 2\n")

    assert source.line_of(("a", "b", 1, "c")) == 4
    assert source.line_of(("a", "b", 0)) == 3
    assert source.line_of(("a", "b", 1, "missing", "more")) == 4
    assert source.line_of(("missing",)) == 1
    assert read_source(b"{}", name="a.json").line_of(("a",)) is None


@given(st.binary(max_size=60), st.sampled_from(["a.yaml", "a.json"]))
def test_no_bytes_do_more_than_refuse(data: bytes, name: str) -> None:
    with contextlib.suppress(WorkflowInvalid):
        assert read_source(data, name=name).kind in name


@given(st.text("{}[]:,-?&*!|>'\"%@` \n\t#ab1.~\\", max_size=30))
def test_no_text_does_more_than_refuse(text: str) -> None:
    with contextlib.suppress(WorkflowInvalid):
        assert () in read_source(text.encode(), name="a.yaml").lines
