"""What a guard means: its tree, how two JSON values compare, and the closures that a tree becomes (C.4).

Values are decoded JSON. Whatever they are, a test answers and never raises: a comparison that makes no sense
is false. `guards.py` builds the trees from text, `exclusion.py` walks them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Test = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, int], Any], Any]
"""Context, payload, counts, branches in; any JSON value out, to be taken as truth.

Inside ``branches.all`` and ``branches.any`` the payload is that child's, and the branch itself stands last.
"""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: a number, text, true, false, null or a list of these."""

    value: Any


@dataclass(frozen=True, slots=True)
class Accessor:
    """A value that is looked up: ``ctx['name']``, ``payload.name``, ``count('name')``, a branch's field."""

    kind: Literal["context", "payload", "count", "branch"]
    name: str

    @property
    def text(self) -> str:
        """The accessor as guards write it."""
        if self.kind == "context":
            return f"ctx[{self.name!r}]"
        if self.kind == "count":
            return f"count({self.name!r})"
        return f"payload.{self.name}" if self.kind == "payload" else self.name


@dataclass(frozen=True, slots=True)
class Branches:
    """``branches.all(test)`` or ``branches.any(test)``; `text` is the call as written."""

    is_all: bool
    test: Expression
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``a < b`` or a chain of such: `operators` has one item fewer than `operands`."""

    operands: tuple[Expression, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """``and`` over two or more parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """``or`` over two or more parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """``not part``."""

    part: Expression


Expression = Constant | Accessor | Branches | Comparison | Both | Either | Not


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def is_ordered(left: Any, right: Any) -> bool:
        if isinstance(left, (int, float)):
            return isinstance(right, (int, float)) and compare(left, right)
        if isinstance(left, str):
            return isinstance(right, str) and compare(left, right)
        if isinstance(left, list) and isinstance(right, list):
            try:
                return compare(left, right)
            except TypeError:  # two items that have no order
                return False
        return False

    return is_ordered


def _is_in(left: Any, right: Any) -> bool | None:
    """Say whether `left` is in `right`, or None where the question makes no sense."""
    if not isinstance(right, (list, str, dict)):
        return None
    try:
        return left in right
    except TypeError:  # a number in text, or a list among an object's keys
        return None


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": lambda left, right: _is_in(left, right) is True,
    "not in": lambda left, right: _is_in(left, right) is False,
}


def test_of(expression: Expression) -> Test:  # noqa: PLR0911 - one return a kind
    """Turn a tree into one closure. Its answer is taken as truth by whoever calls it."""
    match expression:
        case Constant(value):
            return lambda _c, _p, _n, _b: value
        case Accessor():
            return _lookup(expression)
        case Branches(is_all, test):
            return _over_branches(test_of(test), is_all=is_all)
        case Comparison():
            return _comparison(expression)
        case Both(parts):
            every = [test_of(part) for part in parts]
            return lambda c, p, n, b: all(test(c, p, n, b) for test in every)
        case Either(parts):
            some = [test_of(part) for part in parts]
            return lambda c, p, n, b: any(test(c, p, n, b) for test in some)
        case Not(part):
            inner = test_of(part)
            return lambda c, p, n, b: not inner(c, p, n, b)


def _lookup(accessor: Accessor) -> Test:
    name = accessor.name
    match accessor.kind:
        case "context":
            return lambda c, _p, _n, _b: c.get(name)
        case "payload":
            return lambda _c, p, _n, _b: p.get(name)
        case "count":
            return lambda _c, _p, n, _b: n.get(name, 0)
        case "branch":
            return lambda _c, _p, _n, branch: branch.get(name)


def _over_branches(test: Test, *, is_all: bool) -> Test:
    fold = all if is_all else any
    return lambda c, _p, n, branches: fold(
        test(c, branch.get("payload") or {}, n, branch) for branch in branches
    )


def _comparison(expression: Comparison) -> Test:
    operands = [test_of(operand) for operand in expression.operands]
    compares = [COMPARE[symbol] for symbol in expression.operators]
    if len(compares) > 1:
        return _chain(operands, compares)
    left, right, compare = operands[0], operands[1], compares[0]
    last = expression.operands[1]
    if isinstance(last, Constant):
        value = last.value
        return lambda c, p, n, b: compare(left(c, p, n, b), value)
    return lambda c, p, n, b: compare(left(c, p, n, b), right(c, p, n, b))


def _chain(operands: Sequence[Test], compares: Sequence[Callable[[Any, Any], bool]]) -> Test:
    def test(c: Mapping[str, Any], p: Mapping[str, Any], n: Mapping[str, int], b: Any) -> bool:
        values = [operand(c, p, n, b) for operand in operands]
        return all(
            compare(left, right) for compare, left, right in zip(compares, values, values[1:], strict=False)
        )

    return test
