"""Guards of transitions: a closed subset of a Python expression, parsed once, then asked often (C.4).

No text is ever evaluated by the interpreter: the grammar is Python's, the meaning is in `expressions.py`. A
hostile text gets one sentence, like any other that is no guard. `reading.py` parses, `routing.py` asks.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from stateous_contract.limits import INTEGER_DIGITS_MAX

from stateous_control.graph.expressions import (
    Accessor,
    Both,
    Branches,
    Comparison,
    Constant,
    Either,
    Expression,
    Not,
    Test,
    test_of,
)

GUARD_CHARS_MAX: Final = 65_536
GUARD_DEPTH_MAX: Final = 64
_INTEGER_END: Final = 10**INTEGER_DIGITS_MAX

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LANGUAGE: Final = (
    "allowed are ctx['key'], payload.field, count('event'), branches.all(…) and branches.any(…), texts, numbers, "
    "lists of them, true, false, null, == != < <= > >=, in, not in, and, or, not"
)
_BRANCH_NAMES: Final = frozenset({"workflow", "token", "status", "final"})
_OPERATORS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


class GuardInvalid(Exception):
    """A text is no guard. The message is one plain sentence without the text itself."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a guard looks at: context keys, payload fields, counted events, and whether at branches."""

    context: frozenset[str] = frozenset()
    payload: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    branches: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """A parsed guard. Two guards are equal when their texts are."""

    text: str
    expression: Expression = field(repr=False, compare=False)
    reads: Reads = field(repr=False, compare=False)
    test: Test = field(repr=False, compare=False)

    def holds(
        self,
        context: Mapping[str, Any],
        payload: Mapping[str, Any],
        counts: Mapping[str, int],
        branches: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Say whether the guard is true of decoded JSON values; never raises.

        `payload` is an empty mapping where the event has none. `branches` is the list of a ``joined`` event.
        """
        return bool(self.test(context, payload, counts, branches))


def parse_guard(text: str) -> Guard:
    """Parse the text of a guard.

    A comparison in parentheses may be compared in its turn: ``(payload.a == 1) == ctx['b']``.
    Raises GuardInvalid, and nothing else, for text that is outside the grammar of C.4, or too long or deep.
    """
    stripped = text.strip()
    if len(stripped) > GUARD_CHARS_MAX:
        raise GuardInvalid(f"a guard has at most {GUARD_CHARS_MAX} characters, this one has {len(stripped)}")
    parser = _Parser(stripped)
    expression = parser.expression(_syntax_tree(stripped))
    reads = parser.reads()
    return Guard(text, expression, reads, test_of(expression))


def _syntax_tree(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a text is legal, and nobody's business
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise GuardInvalid(f"it cannot be read as an expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        # NUL, lone surrogates; nesting that the parser itself gives up on
        raise GuardInvalid("it cannot be read as an expression") from None
    level: list[ast.AST] = [tree]
    for _ in range(GUARD_DEPTH_MAX):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise GuardInvalid(f"it is nested more than {GUARD_DEPTH_MAX} levels deep")


class _Parser:
    """Turns one syntax tree into an expression, and gathers what it reads on the way."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._in_branches = False
        self.names: dict[str, set[str]] = {"context": set(), "payload": set(), "count": set()}
        self.reads_branches = False

    def reads(self) -> Reads:
        context, payload, counts = (frozenset(self.names[kind]) for kind in ("context", "payload", "count"))
        return Reads(context, payload, counts, self.reads_branches)

    def expression(self, node: ast.expr) -> Expression:
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                return Both(tuple(self.expression(value) for value in values))
            case ast.BoolOp(values=values):
                return Either(tuple(self.expression(value) for value in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.expression(operand))
            case ast.Compare():
                return self._comparison(node)
            case _:
                return self._operand(node)

    def _comparison(self, node: ast.Compare) -> Comparison:
        symbols: list[str] = []
        for kind, right in zip(node.ops, node.comparators, strict=True):
            symbol = _OPERATORS.get(type(kind))
            if symbol is None:
                raise GuardInvalid("'is' is not an operator of guards; write == or !=")
            if symbol.endswith("in") and not _may_contain(right):
                raise GuardInvalid(f"the right side of '{symbol}' must be a list or something looked up")
            symbols.append(symbol)
        operands = tuple(self.expression(value) for value in (node.left, *node.comparators))
        return Comparison(operands, tuple(symbols))

    def _operand(self, node: ast.expr) -> Constant | Accessor | Branches:  # noqa: PLR0911 - one return a kind
        match node:
            case ast.List(elts=items):
                return Constant([self._scalar(item) for item in items])
            case ast.Subscript(value=ast.Name(id="ctx"), slice=ast.Constant(value=str(key))):
                return self._accessor("context", key)
            case ast.Attribute(value=ast.Name(id="payload"), attr=field_name):
                return self._accessor("payload", field_name)
            case ast.Call(func=ast.Name(id="count"), args=[ast.Constant(value=str(event))], keywords=[]):
                return self._accessor("count", event)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="branches"), attr=("all" | "any") as fold)):
                return self._branches(node, fold)
            case ast.Name(id=name) if name in _BRANCH_NAMES:
                return self._branch_field(name)
            case _:
                return Constant(self._scalar(node))

    def _accessor(self, kind: Literal["context", "payload", "count"], name: str) -> Accessor:
        if not (kind == "payload" and self._in_branches):
            self.names[kind].add(name)
        return Accessor(kind, name)

    def _branch_field(self, name: str) -> Accessor:
        if not self._in_branches:
            raise GuardInvalid(f"{name!r} can only be read inside branches.all(…) or branches.any(…)")
        return Accessor("branch", name)

    def _branches(self, node: ast.Call, fold: str) -> Branches:
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            raise GuardInvalid(f"branches.{fold}(…) takes exactly one test")
        if self._in_branches:
            raise GuardInvalid("branches.all(…) and branches.any(…) cannot stand in one another")
        self._in_branches = self.reads_branches = True
        test = self.expression(node.args[0])
        self._in_branches = False
        return Branches(fold == "all", test, self._source(node))

    def _scalar(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name) if name in _CONSTANTS:
                return _CONSTANTS[name]
            case ast.Constant(value=str(value)):
                return value
            case ast.Constant(value=int() | float()):
                return self._number(node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as number):
                return -self._number(number)
            case _:
                raise GuardInvalid(self._reason(node))

    def _number(self, node: ast.Constant) -> int | float:
        value = node.value
        if isinstance(value, bool):
            raise GuardInvalid(f"'{value}' is not a word of guards; write {str(value).lower()}")
        if isinstance(value, int) and value >= _INTEGER_END:
            raise GuardInvalid("a number is too large")
        assert isinstance(value, (int, float))
        return value

    def _reason(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and node.value is None:
            return "'None' is not a word of guards; write null"
        return f"'{self._source(node)}' is not part of a guard's language; {_LANGUAGE}"

    def _source(self, node: ast.expr) -> str:
        text = " ".join((ast.get_source_segment(self._text, node) or "").split())
        return text if len(text) <= 80 else f"{text[:79]}…"


def _may_contain(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Subscript, ast.Attribute, ast.Call))
