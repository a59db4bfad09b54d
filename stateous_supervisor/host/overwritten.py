"""Routines that a later function of the same name in their file has replaced: no import shows them (A-06)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MARKS: Final = frozenset({"on_state", "routine"})


@dataclass(frozen=True)
class Overwritten:
    """The routine `name`, whose first line is `line`, is replaced by the one that begins in line `by`."""

    name: str
    line: int
    by: int


def overwritten(source: bytes) -> Iterator[Overwritten]:
    """Yield the routines at the top of a file of Python that another one of their name follows.

    Only what runs in any case is looked at: two of one name in the branches of an `if` are one routine. Raises
    SyntaxError.
    """
    lines: dict[str, int] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and _is_marked(statement):
            line = min(each.lineno for each in statement.decorator_list)
            if statement.name in lines:
                yield Overwritten(statement.name, lines[statement.name], line)
            lines[statement.name] = line


def _is_marked(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (each.func for each in function.decorator_list if isinstance(each, ast.Call))
    return any(_last_name(call) in MARKS for call in calls)


def _last_name(call: ast.expr) -> str | None:
    if isinstance(call, ast.Attribute):
        return call.attr
    return call.id if isinstance(call, ast.Name) else None
