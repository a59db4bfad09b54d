"""Shows that two guards never hold at once, or finds values for which they do. Only for `compiler.py`.

A finite case analysis: each value that a guard looks up is replaced by one representative of every class of
values that the guards cannot tell apart (each literal it is compared with, each gap between two, each other
kind). What relates two looked-up values is a case of its own, whatever they are. So "never" is a proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stateous_control.graph.expressions import (
    COMPARE,
    Accessor,
    Both,
    Branches,
    Comparison,
    Constant,
    Either,
    Expression,
    Not,
)
from stateous_control.graph.models import Domain

CASES_MAX: Final = 20_000

Case = Mapping[Any, Any]
"""A value for each accessor, and a relation for each pair that is compared without being understood."""

# How two values can relate, as the set of operators that are then true. The last: neither ordered nor equal.
_ORDERS: Final = (
    frozenset({"<", "<=", "!="}),
    frozenset({"==", "<=", ">="}),
    frozenset({"=="}),
    frozenset({">", ">=", "!="}),
    frozenset({"!="}),
)
_MEMBERSHIPS: Final = (frozenset({"in"}), frozenset({"not in"}), frozenset[str]())
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two guards may hold at once; `witness` says when, or is None where that could not be told."""

    witness: str | None


def overlap(first: Expression, second: Expression, domain_of: Callable[[Accessor], Domain]) -> Overlap | None:
    """Return None when the guards can never both hold; `domain_of` says what an accessor can be."""
    literals: dict[Accessor, list[Any]] = {}
    unknowns: dict[Any, tuple[Any, ...]] = {}
    for atom in (*_atoms(first), *_atoms(second)):
        _note(atom, literals, unknowns)
    choices = {each: _representatives(domain_of(each), compared) for each, compared in literals.items()}
    everything: dict[Any, tuple[Any, ...] | list[Any]] = {**choices, **unknowns}
    if math.prod(len(options) for options in everything.values()) > CASES_MAX:
        return Overlap(None)
    for options in itertools.product(*everything.values()):
        case = dict(zip(everything, options, strict=True))
        if _holds(first, case) and _holds(second, case):
            values = {each.text: case[each] for each in choices}
            return Overlap(None if unknowns else _told(values))
    return None


def _told(values: Mapping[str, Any]) -> str | None:
    if not values:
        return "always"
    return "when " + " and ".join(f"{text} is {_written(value)}" for text, value in values.items())


def _written(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


Link = tuple[Expression, str, Expression]


def _atoms(expression: Expression) -> Iterator[Expression | Link]:
    """Yield what a guard is made of: values taken as truth, and single comparisons."""
    match expression:
        case Both(parts) | Either(parts):
            for part in parts:
                yield from _atoms(part)
        case Not(part):
            yield from _atoms(part)
        case Comparison():
            yield from _links(expression)
        case _:
            yield expression


def _links(comparison: Comparison) -> Iterator[Link]:
    operands = comparison.operands
    return zip(operands, comparison.operators, operands[1:], strict=False)


def _note(
    atom: Expression | Link, literals: dict[Accessor, list[Any]], unknowns: dict[Any, tuple[Any, ...]]
) -> None:
    match atom:
        case Accessor():
            literals.setdefault(atom, [])
        case Branches():
            unknowns[_text(atom)] = (False, True)
        case (left, operator, right):
            compared = _compared(left, operator, right)
            if compared is None:
                unknowns[_pair(left, operator, right)] = _MEMBERSHIPS if "in" in operator else _ORDERS
                return
            for operand in (left, right):
                if isinstance(operand, Accessor):
                    literals.setdefault(operand, []).extend(compared)
        case _:
            return


def _compared(left: Expression, operator: str, right: Expression) -> list[Any] | None:
    """Return the literals of a comparison that representatives can decide, or None for any other."""
    if isinstance(right, Constant) and isinstance(left, (Accessor, Constant)):
        if isinstance(right.value, list):
            return right.value if "in" in operator or isinstance(left, Constant) else None
        return [right.value]
    if isinstance(left, Constant) and isinstance(right, Accessor) and "in" not in operator:
        return None if isinstance(left.value, list) else [left.value]
    return None


def _pair(left: Expression, operator: str, right: Expression) -> tuple[str, str, str]:
    first, second = _text(left), _text(right)
    if "in" in operator:
        return ("in", first, second)
    return ("order", min(first, second), max(first, second))


def _text(operand: Expression) -> str:
    match operand:
        case Constant(value):
            return f"{type(value).__name__} {value!r}"
        case Accessor() | Branches():
            return operand.text
        case _:
            return repr(operand)


def _holds(expression: Expression, case: Case) -> bool:
    match expression:
        case Both(parts):
            return all(_holds(part, case) for part in parts)
        case Either(parts):
            return any(_holds(part, case) for part in parts)
        case Not(part):
            return not _holds(part, case)
        case Comparison():
            return all(_link_holds(link, case) for link in _links(expression))
        case _:
            return bool(_value(expression, case))


def _link_holds(link: Link, case: Case) -> bool:
    left, operator, right = link
    if _compared(left, operator, right) is not None:
        return COMPARE[operator](_value(left, case), _value(right, case))
    key = _pair(left, operator, right)
    is_swapped = "in" not in operator and key[1] != _text(left)
    return (_FLIPPED[operator] if is_swapped else operator) in case[key]


def _value(operand: Expression, case: Case) -> Any:
    match operand:
        case Constant(value):
            return value
        case Accessor():
            return case[operand]
        case Branches():
            return case[_text(operand)]
        case _:
            return _holds(operand, case)


def _representatives(domain: Domain, literals: Iterable[Any]) -> list[Any]:
    """Return one value of each class that comparing with `literals` can tell apart."""
    if domain.values is not None:
        return list(domain.values)
    found: list[Any] = [None] if "null" in domain.kinds else []
    numbers = sorted(
        {0, *(value for value in literals if isinstance(value, (int, float)) and abs(value) != math.inf)}
    )
    if domain.kinds & {"integer", "number"}:
        found += _numbers(numbers, domain, is_whole="number" not in domain.kinds)
    if "boolean" in domain.kinds:
        found += [False, True]
    if "string" in domain.kinds:
        found += _texts(sorted({"", *(value for value in literals if isinstance(value, str))}))
    if "array" in domain.kinds:
        found += [[], [0]]
    if "object" in domain.kinds:
        found += [{}, {"a": 0}]
    return found


def _numbers(literals: list[int | float], domain: Domain, *, is_whole: bool) -> list[int | float]:
    if domain.least is not None:
        literals = sorted({domain.least, *literals})
    found: list[int | float] = [math.floor(literals[0]) - 1]
    for low, high in itertools.zip_longest(literals, literals[1:]):
        if not is_whole or low == math.floor(low):
            found.append(low)
        found += itertools.islice(_between(low, high, is_whole=is_whole), 1)
    return [number for number in found if domain.least is None or number >= domain.least]


def _between(low: float, high: float | None, *, is_whole: bool) -> Iterator[int | float]:
    """Yield numbers that lie strictly between, if there are any."""
    candidates: list[int | float] = [math.floor(low) + 1]
    if not is_whole and high is not None and -1e300 < low < high < 1e300:
        near = float(low)
        candidates += [(low + high) / 2, near, math.nextafter(near, math.inf)]
    return (number for number in candidates if low < number and (high is None or number < high))


def _texts(literals: list[str]) -> list[str]:
    found: list[str] = []
    for low, high in itertools.zip_longest(literals, literals[1:]):
        found.append(low)
        between = (text for text in (low + "x", low + "\0") if high is None or text < high)
        found += itertools.islice(between, 1)
    return found
