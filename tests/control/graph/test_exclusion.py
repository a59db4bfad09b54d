"""When two guards exclude each other: a proof where there is one, never a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateous_control.graph.exclusion import overlap
from stateous_control.graph.expressions import Accessor
from stateous_control.graph.guards import parse_guard
from stateous_control.graph.models import ANYTHING, Domain

INTEGER = Domain(frozenset({"integer"}))


def witness(one: str, other: str, domain: Domain = ANYTHING) -> str | None:
    """None: shown to exclude each other. Else when they overlap, or "?" where that is not known."""
    found = overlap(parse_guard(one).expression, parse_guard(other).expression, lambda _accessor: domain)
    return None if found is None else found.witness or "?"


EXCLUSIVE = [
    ("payload.a == true", "payload.a == false"),
    ("payload.a == 1", "payload.a == 2"),
    ("payload.a == 'x'", "payload.a == 'y'"),
    ("payload.a == 'x'", "payload.a == null"),
    ("payload.a == 'x'", "payload.a == 1"),
    ("payload.a < 3", "payload.a >= 3"),
    ("payload.a < 3", "3 <= payload.a"),
    ("payload.a < 1.5", "payload.a > 1.5"),
    ("payload.a < 'm'", "payload.a >= 'm'"),
    ("payload.a", "not payload.a"),
    ("payload.a", "payload.a == null"),
    ("payload.a in [1, 2]", "payload.a in [3, 'x']"),
    ("payload.a in [1, 2]", "payload.a not in [1, 2, 3]"),
    ("0 < payload.a < 5", "payload.a >= 5"),
    ("payload.a == 1 and ctx['b'] == 1", "payload.a == 1 and ctx['b'] == 2"),
    ("payload.a == 1 or payload.a == 2", "payload.a == 3"),
    ("payload.a == ctx['b']", "payload.a != ctx['b']"),
    ("payload.a < ctx['b']", "ctx['b'] <= payload.a"),
    ("payload.a == [1]", "payload.a != [1]"),
    ("'x' in ctx['b']", "not ('x' in ctx['b'])"),
    ("'x' in ctx['b']", "'x' not in ctx['b']"),
    ("branches.all(status == 'completed')", "not branches.all(status == 'completed')"),
    ("false", "true"),
]

OVERLAPPING = [
    ("payload.a > 1", "payload.a > 2", "payload.a"),
    ("payload.a == 1", "payload.a == true", "payload.a"),
    ("payload.a == 1", "ctx['b'] == 1", "ctx['b'] is 1"),
    ("payload.a != 'x'", "payload.a != 'y'", "payload.a"),
    ("payload.a == 0", "not payload.a", "payload.a is 0"),
    ("payload.a > 1", "payload.a < 2", "payload.a is 1.5"),
    ("true", "true", "always"),
]

UNKNOWN = [
    ("payload.a == ctx['b']", "payload.a == ctx['c']"),
    ("'x' in ctx['b']", "'y' in ctx['b']"),
    ("branches.any(status == 'failed')", "branches.any(status == 'completed')"),
    ("payload.a == [1]", "payload.a == [2]"),
    ("(payload.a == 1) == true", "(payload.a == 2) == true"),
]


@pytest.mark.parametrize(("one", "other"), EXCLUSIVE)
def test_they_exclude_each_other(one: str, other: str) -> None:
    assert witness(one, other) is None
    assert witness(other, one) is None


@pytest.mark.parametrize(("one", "other", "when"), OVERLAPPING)
def test_they_overlap_and_it_is_said_when(one: str, other: str, when: str) -> None:
    assert when in (witness(one, other) or "excluded")


def test_a_number_is_never_less_than_a_text() -> None:
    assert witness("payload.a < 1", "payload.a < 'm'") is None


@pytest.mark.parametrize(("one", "other"), UNKNOWN)
def test_what_cannot_be_shown_is_not_claimed(one: str, other: str) -> None:
    assert witness(one, other) == "?"


def test_between_two_neighbouring_integers_there_is_none() -> None:
    assert witness("payload.a > 1", "payload.a < 2", INTEGER) is None
    assert witness("payload.a > 1", "payload.a < 2", Domain(frozenset({"number"}))) == "when payload.a is 1.5"


def test_a_closed_list_of_values_decides() -> None:
    colours = Domain(values=("red", "green"))

    assert witness("payload.a != 'red'", "payload.a != 'green'", colours) is None
    assert (
        witness("payload.a != 'red'", "payload.a != 'green'", colours.or_absent()) == "when payload.a is null"
    )


def test_a_least_value_decides() -> None:
    assert witness("count('a') < 1", "count('a') != 0", Domain(frozenset({"integer"}), least=0)) is None
    assert witness("count('a') <= 1", "count('a') != 1", Domain(frozenset({"integer"}), least=1)) is None


def test_infinity_and_far_numbers_are_told_apart() -> None:
    assert witness("payload.a > 1e999", "payload.a > 1") is None
    assert witness(f"payload.a < {10**400}", f"payload.a > {10**400 - 1}", INTEGER) is None
    assert witness("payload.a > 1e308", "payload.a < 1.5e308") != "?"


def test_too_many_cases_are_not_gone_through() -> None:
    one = " or ".join(f"payload.a{i} == {i}" for i in range(12))
    other = " and ".join(f"payload.a{i} == -1" for i in range(12))

    assert witness(one, other) == "?"


JSON = (
    st.none()
    | st.booleans()
    | st.integers(-3, 4)
    | st.sampled_from([0.5, 1.5, "", "a", "b", "ab", [], [1], {}])
)
LITERALS = st.sampled_from(["0", "1", "2", "-1", "0.5", "true", "false", "null", "''", "'a'", "'b'", "[1]"])
ACCESSORS = st.sampled_from(["payload.a", "ctx['b']"])
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
ATOMS = (
    st.tuples(ACCESSORS, OPERATORS, LITERALS | ACCESSORS).map(" ".join)
    | st.tuples(LITERALS, OPERATORS, ACCESSORS).map(" ".join)
    | st.tuples(ACCESSORS, st.sampled_from(["in [1, 'a']", "not in [0, null, 'b']"])).map(" ".join)
    | st.tuples(LITERALS, st.sampled_from(["in", "not in"]), ACCESSORS).map(" ".join)
    | ACCESSORS
)
GUARDS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
        | inner.map("not ({})".format)
    ),
    max_leaves=4,
)


@given(GUARDS, GUARDS, st.lists(st.tuples(JSON, JSON), min_size=20, max_size=20))
def test_guards_that_were_shown_to_exclude_each_other_never_both_hold(
    one: str, other: str, values: list[tuple[Any, Any]]
) -> None:
    first, second = parse_guard(one), parse_guard(other)
    if overlap(first.expression, second.expression, lambda _accessor: ANYTHING) is not None:
        return

    for a, b in values:
        assert not (first.holds({"b": b}, {"a": a}, {}) and second.holds({"b": b}, {"a": a}, {}))


def test_a_domain_is_asked_for_each_accessor_by_itself() -> None:
    asked: list[str] = []

    def domain(accessor: Accessor) -> Domain:
        asked.append(accessor.text)
        return INTEGER

    overlap(parse_guard("payload.a == 1").expression, parse_guard("ctx['b'] == 1").expression, domain)

    assert sorted(asked) == ["ctx['b']", "payload.a"]
