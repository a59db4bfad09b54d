"""The strict door for JSON: what passes can be stored and read by anyone; what does not is refused with a sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stateous_contract import scan
from stateous_contract.limits import DEPTH_MAX, INTEGER_DIGITS_MAX


def fields(body: bytes) -> dict[str, object]:
    return {name: json.loads(bytes(raw)) for name, raw in scan.read_object(body).values.items()}


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
def test_every_encoding_of_json_is_taken(encoding: str) -> None:
    assert fields('{"é": "😀"}'.encode(encoding)) == {"é": "😀"}


@pytest.mark.parametrize("body", [b"", b"  \n", "\ufeff".encode(), " ".encode("utf-16")])
def test_an_empty_body_stands_for_an_empty_object(body: bytes) -> None:
    assert fields(body) == {}


def test_of_a_duplicate_key_the_last_wins() -> None:
    assert fields(b'{"a": 1, "a": 2}') == {"a": 2}


def test_a_value_stays_the_text_it_came_as() -> None:
    values = scan.read_object(b'{"a": {"z": 1.0, "b": 100000000000000000000001, "c": 1e2}}').values
    assert bytes(values["a"]) == b'{"z": 1.0, "b": 100000000000000000000001, "c": 1e2}'


@pytest.mark.parametrize(
    "body",
    [
        b"{nope", b"{'a': 1}", b'{"a": 1,}', b'{"a": 01}', b'{"a": 1.}', b'{"a": +1}', b'{"a": 1} x',
        b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b"NaN",
        b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'{"\xff": 1}', b'{"a": "\x01"}', b'{"a": "tab\there"}',
        rb'{"a": "\ud800"}', rb'{"a": "\udc00x"}', rb'{"a": {"b": ["\ud800\u0041"]}}', rb'{"\ud800": 1}',
        '{"a": "\ud800"}'.encode("utf-16-le", "surrogatepass"),
        rb'{"a": "\q"}', rb'{"a": "\u12"}', b'{"a": "open',
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(scan.Malformed, match=r"^this is not|^it has|^the text has"):
        scan.read_object(body)


@pytest.mark.parametrize(
    "body", [rb'{"a": "x\u0000"}', rb'{"a": "\\\u0000"}', rb'{"\u0000": 1}', b'{"a": "\0"}']
)
def test_a_nul_is_refused(body: bytes) -> None:
    with pytest.raises(scan.Malformed):
        scan.read_object(body)


@pytest.mark.parametrize("body", [rb'{"a": "\\u0000"}', rb'{"a": "\\\\u0000"}'])
def test_a_backslash_that_stands_for_itself_makes_no_nul(body: bytes) -> None:
    assert "u0000" in str(fields(body)["a"])


def test_the_deepest_allowed_value_passes() -> None:
    assert scan.read_object(b'{"a":' + nested(DEPTH_MAX - 1) + b"}").values


@pytest.mark.parametrize("levels", [DEPTH_MAX, 2_000, 200_000])
def test_a_deeper_value_is_refused(levels: int) -> None:
    with pytest.raises(scan.Malformed, match=f"more than {DEPTH_MAX} levels"):
        scan.read_object(b'{"a":' + nested(levels) + b"}")


def test_brackets_in_strings_and_side_by_side_do_not_count_as_depth() -> None:
    body = json.dumps({"a": "[" * 500 + '\\"{', "b": [[] for _ in range(500)]}).encode()
    assert len(fields(body)) == 2


def test_the_longest_integer_passes_and_one_digit_more_is_refused() -> None:
    assert scan.read_object(b'{"a":' + b"9" * INTEGER_DIGITS_MAX + b"}").is_finite
    with pytest.raises(scan.Malformed, match="more than 4300 digits"):
        scan.read_object(b'{"a":' + b"9" * (INTEGER_DIGITS_MAX + 1) + b"}")


def test_many_digits_in_a_string_are_no_number() -> None:
    assert scan.read_object(b'{"a":"' + b"9" * 10_000 + b'"}').is_finite


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400 + b".0", b"1.8e308"])
def test_a_number_that_overflows_a_float_is_told(number: bytes) -> None:
    found = scan.read_object(b'{"a": 1, "b": [' + number + b"]}")
    assert not found.is_finite
    assert (scan.is_finite(found.values["a"]), scan.is_finite(found.values["b"])) == (True, False)


@pytest.mark.parametrize("body", [b"[1]", b"1", b'"a"', b"null", b"true", b" []"])
def test_json_that_is_no_object_is_told_apart(body: bytes) -> None:
    with pytest.raises(scan.NotAnObject):
        scan.read_object(body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab\\"[{é', max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(anything, st.booleans())
def test_whatever_python_writes_as_json_passes_unchanged(value: object, ascii_only: bool) -> None:
    body = json.dumps({"a": value}, ensure_ascii=ascii_only).encode()
    assert fields(body) == {"a": value}


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_malformed(body: bytes) -> None:
    try:
        text, _ = scan.read(body)
    except scan.Malformed:
        return
    json.loads(text)


@given(st.text('[]{}"\\u0de,:8 1', max_size=40))
def test_what_passes_is_json_for_python_too(body: str) -> None:
    try:
        text, _ = scan.read(body.encode())
    except scan.Malformed:
        return
    assert isinstance(json.dumps(json.loads(text)), str)
