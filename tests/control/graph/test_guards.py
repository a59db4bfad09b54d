"""Every row of C.4: what is a guard, and what it means."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateous_control.graph.guards import GUARD_CHARS_MAX, GuardInvalid, parse_guard

VALUES: dict[str, Any] = {
    "null": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "one": 1,
    "onef": 1.0,
    "big": 10**30,
    "text": "abc",
    "empty": "",
    "list": [1, "abc", None],
    "nolist": [],
    "object": {"abc": 1},
    "noobject": {},
}


def holds(text: str, **payload: Any) -> bool:
    return parse_guard(text).holds(VALUES, payload or VALUES, {"go": 2})


ACCEPTED = [
    "payload.x",
    "payload.x == 0x10 or payload.x == 1_000 or payload.x == .5e3",
    "payload.x == 'a' 'b'",
    "payload.x == r'a' or payload.x == '''a'''",
    "payload.x == '\\d'",
    "payload.x  # why",
    "  payload.x\n",
    "(payload.x\n and payload.y)",
    "payload.x == -1",
    "payload.x == -(1)",
    "payload.x in [-1, 'a', true, null, 1.5]",
    "payload.x in []",
    "payload.x in payload.y",
    "1 in count('go')",
    "1 in branches.any(true)",
    "(payload.x == 1) == true",
    "1 < payload.x < 3",
    "not not payload.x",
    "true",
    "[1]",
    "ctx['']",
    "payload.x > 1e999",
    "branches.any(ctx['a'] == 1 and count('go') > 1 and status == 'failed')",
    "(" * 60 + "payload.x" + ")" * 60,
    "payload.x in [" + "1, " * 5_000 + "1]",
]

REFUSED = [
    "",
    "payload.x == True",
    "payload.x == None",
    "payload.x + 1",
    "+payload.x",
    "--5",
    "-payload.x",
    "-true",
    "(1, 2)",
    "{'a': 1}",
    "f'{payload.x}'",
    "b'a'",
    "1j",
    "payload.x is null",
    "1 if payload.x else 2",
    "lambda: 1",
    "len(payload.x)",
    "ctx.a",
    "ctx['a']['b']",
    "ctx['a',]",
    "ctx[1]",
    "ctx[key]",
    "payload.a.b",
    "payload['a']",
    "ctx",
    "payload",
    "branches",
    "count",
    "[[1]]",
    "[payload.x]",
    "payload.x in 'abc'",
    "payload.x in null",
    "payload.x in 5",
    "branches.any('a' in status)",
    "status == 'failed'",
    "workflow",
    "branches.all(branches.any(true))",
    "branches.all(test=true)",
    "branches.all(true, true)",
    "branches.all(*payload.x)",
    "branches.all()",
    "branches.none(true)",
    "count(event)",
    "count('a', 'b')",
    "count(event='a')",
    "count()",
    "...",
    "(payload.x := 1)",
    "payload.x = 1",
    "payload.x; 1",
    "payload.x\nand payload.y",
    "[x for x in payload.y]",
    "await payload.x",
    "payload.class",
    "__import__('os')",
]

HOSTILE = {
    "parentheses": "(" * 10_000,
    "brackets": "[" * 10_000,
    "nots": "not " * 5_000 + "payload.x",
    "signs": "-" * 10_000 + "1",
    "attributes": "payload" + ".x" * 10_000,
    "subscripts": "ctx" + "['a']" * 5_000,
    "lambdas": "lambda:" * 5_000,
    "powers": "9**" * 5_000 + "9",
    "digits": "payload.x == " + "9" * 5_000,
    "hexadecimal": "payload.x == 0x" + "f" * 5_000,
    "unclosed": "'" * 10_001,
    "nul": "payload.x == '\0'",
    "surrogate": "payload.x == '\ud800'",
    "too long": "payload.x" + " " * 5 + "or 1" * GUARD_CHARS_MAX,
    "formatted": "f'{" * 100,
    "braces": "{a:" * 99,
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_it_is_a_guard(text: str) -> None:
    assert parse_guard(text).text == text


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_no_guard(text: str) -> None:
    with pytest.raises(GuardInvalid):
        parse_guard(text)


@pytest.mark.parametrize("text", ["len(ctx)", "payload", "1 + 1", "ctx.title"])
def test_what_is_not_of_the_language_is_told_with_what_is(text: str) -> None:
    with pytest.raises(GuardInvalid) as refused:
        parse_guard(f"{text} == 1")

    assert str(refused.value).startswith(
        f"'{text}' is not part of a guard's language; allowed are ctx['key'], "
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_one_short_sentence(name: str) -> None:
    with pytest.raises(GuardInvalid) as refused:
        parse_guard(HOSTILE[name])

    assert len(str(refused.value)) < 300


@given(st.text("()[]{}'\"notandorinctxpayloadcountbranches.all<>=!-+*#\\ \n\t019", max_size=40))
def test_any_text_is_a_guard_or_one_sentence(text: str) -> None:
    with contextlib.suppress(GuardInvalid):
        assert parse_guard(text).text == text


TRUE = [
    # Equality is Python's.
    "ctx['one'] == 1.0",
    "ctx['one'] == true",
    "ctx['zero'] == false",
    "ctx['null'] == null",
    "ctx['missing'] == null",
    "payload.missing == null",
    "ctx['one'] != '1'",
    "ctx['null'] != 0",
    "ctx['list'] == [1, 'abc', null]",
    "ctx['big'] == 1000000000000000000000000000000",
    "ctx['object'] == payload.object",
    # Order: numbers with numbers, strings with strings, lists with lists.
    "ctx['no'] < 1",
    "ctx['yes'] >= 1",
    "ctx['one'] < 1.5",
    "'B' < ctx['text']",
    "ctx['text'] < 'abd'",
    "ctx['nolist'] < [1]",
    "[1, 2] < [1, 3]",
    "[null] <= [null]",
    "ctx['big'] > 1e29",
    "0 < ctx['one'] < 2",
    "1 == ctx['one'] == true",
    # Membership.
    "1 in ctx['list']",
    "1.0 in ctx['list']",
    "true in ctx['list']",
    "null in ctx['list']",
    "2 not in ctx['list']",
    "'b' in ctx['text']",
    "'' in ctx['text']",
    "'z' not in ctx['text']",
    "'abc' in ctx['object']",
    "'z' not in ctx['object']",
    "1 not in ctx['object']",
    "ctx['one'] in [1, 2]",
    "ctx['missing'] in [null]",
    # Truth.
    "ctx['text']",
    "ctx['list']",
    "ctx['object']",
    "ctx['onef']",
    "not ctx['empty']",
    "not ctx['nolist']",
    "not ctx['noobject']",
    "not ctx['zero']",
    "not ctx['null']",
    "(ctx['text'] and ctx['one']) == true",
    "(ctx['zero'] or ctx['nolist']) == false",
    # Precedence: not before and before or; comparisons bind tighter.
    "not false and false or true",
    "true or true and false",
    "not 1 == 2",
    # Counts.
    "count('go') == 2",
    "count('never') == 0",
    # No branches.
    "branches.all(false)",
    "not branches.any(true)",
]

FALSE = [
    "ctx['text'] == 1",
    "ctx['one'] == '1'",
    "ctx['null'] == false",
    "ctx['null'] <= null",
    "ctx['null'] < 1",
    "ctx['text'] < 1",
    "1 > ctx['text']",
    "ctx['object'] < payload.object",
    "ctx['object'] <= payload.object",
    "[1] < ['a']",
    "[null] < [1]",
    "ctx['list'] < 1",
    "2 in ctx['list']",
    "1 in ctx['text']",
    "1 not in ctx['text']",
    "1 in ctx['null']",
    "1 not in ctx['null']",
    "1 in ctx['one']",
    "1 not in ctx['one']",
    "'a' not in ctx['missing']",
    "ctx['list'] in ctx['object']",
    "ctx['list'] not in ctx['object']",
    "1 in count('go')",
    "1 not in branches.any(true)",
    "0 < ctx['one'] < 1",
    "null",
    "[]",
]


@pytest.mark.parametrize("text", TRUE)
def test_it_holds(text: str) -> None:
    assert holds(text) is True


@pytest.mark.parametrize("text", FALSE)
def test_it_does_not_hold(text: str) -> None:
    assert holds(text) is False


BRANCHES: list[dict[str, Any]] = [
    {"workflow": "a", "token": "t.a", "status": "completed", "final": "done", "payload": {"ok": True}},
    {"workflow": "b", "token": "t.b", "status": "failed", "final": "bad", "payload": None},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("branches.all(status == 'completed')", False),
        ("branches.any(status == 'failed' and workflow == 'b')", True),
        ("branches.any(final in ['bad'] and token == 't.b')", True),
        ("branches.any(payload.ok)", True),
        ("branches.all(payload.ok)", False),
        ("branches.any(payload.ok == null)", True),
        ("branches.all(payload.outer == null)", True),
        ("branches.all(ctx['one'] == 1)", True),
        ("payload.outer == 1 and branches.any(true) == true", True),
    ],
)
def test_inside_branches_the_payload_is_the_childs(text: str, expected: bool) -> None:
    assert parse_guard(text).holds(VALUES, {"outer": 1}, {}, BRANCHES) is expected


def test_what_a_guard_reads_is_known_before_it_is_asked() -> None:
    reads = parse_guard("ctx['a'] == payload.b and count('c') or branches.any(payload.d == ctx['e'])").reads

    assert (reads.context, reads.payload, reads.counts) == (frozenset("ae"), frozenset("b"), frozenset("c"))
    assert reads.branches


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OPERANDS = st.sampled_from(
    ["ctx['a']", "payload.b", "1", "-2.5", "'abc'", "''", "null", "true", "[1, 'a']", "[]", "count('go')"]
)
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
CONTAINERS = st.sampled_from(["ctx['a']", "payload.b", "[1, 'a', null]", "count('go')"])
COMPARISONS = st.tuples(OPERANDS, OPERATORS, OPERANDS).map(" ".join) | st.tuples(
    OPERANDS, st.sampled_from(["in", "not in"]), CONTAINERS
).map(" ".join)
GUARDS = st.recursive(
    COMPARISONS | OPERANDS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
        | inner.map("not ({})".format)
        | inner.map("branches.any({})".format).filter(lambda text: text.count("branches") == 1)
    ),
    max_leaves=5,
)


@given(GUARDS, JSON, JSON, st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=2), max_size=2))
def test_no_values_make_a_guard_raise(text: str, a: Any, b: Any, branches: list[Any]) -> None:
    held = parse_guard(text).holds({"a": a}, {"b": b}, {"go": 1}, branches)

    assert isinstance(held, bool)


@given(JSON, JSON)
def test_exactly_one_of_equal_and_unequal_holds(a: Any, b: Any) -> None:
    equal, unequal = parse_guard("ctx['a'] == payload.b"), parse_guard("ctx['a'] != payload.b")

    assert equal.holds({"a": a}, {"b": b}, {}) != unequal.holds({"a": a}, {"b": b}, {})
