"""Users' values as JSON (A-17, A-18)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateous_supervisor.sdk.values import VALUE_DEPTH_MAX, json_size_checked, json_text, read

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(plain)
@settings(max_examples=100, deadline=None)
def test_what_json_can_say_comes_back_equal(value: Any) -> None:
    assert read(json_text(value, "it")) == value


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_text_is_taken_exactly_when_utf8_and_postgresql_take_it(text: str) -> None:
    is_good = "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text)
    try:
        json_text({text: [text]}, "it")
    except TypeError:
        assert not is_good
    else:
        assert is_good


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\u0000b"])
def test_a_backslash_that_only_looks_like_nul_is_taken(text: str) -> None:
    assert json.loads(json_text(text, "it")) == text


@pytest.mark.parametrize("text", ["\x00", "\\\x00", "\\\\\x00"])
def test_nul_behind_backslashes_is_found(text: str) -> None:
    with pytest.raises(TypeError, match="NUL"):
        json_text(text, "it")


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_the_depth_is_exact_and_brackets_in_text_do_not_count(make: Any) -> None:
    value: Any = "[{" * 100
    for _ in range(VALUE_DEPTH_MAX):
        value = make(value)
    assert json_text(value, "it")
    with pytest.raises(TypeError, match="nested more than 60 levels deep"):
        json_text(make(value), "it")


def test_the_size_is_counted_in_bytes() -> None:
    with pytest.raises(ValueError, match="it is 1,200,002 bytes of JSON; at most 1,044,480 are allowed"):
        json_size_checked(json_text("é" * 600_000, "it"), "it")


def test_numbers_keep_their_kind() -> None:
    assert (
        json_text([1, 1.0, 10**30, 1e300, -0.0], "it")
        == "[1,1.0,1000000000000000000000000000000,1e+300,-0.0]"
    )
