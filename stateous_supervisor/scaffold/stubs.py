"""Stubs for states without a routine, and which states have one. Pure: files are parsed text."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from stateous_supervisor.scaffold.codegen import Names, context_alias
from stateous_supervisor.scaffold.document import Document, Workflow
from stateous_supervisor.scaffold.identifiers import free_name, identifier, stem_of

_PACKAGES = ("stateous", "stateous_supervisor")


@dataclass(frozen=True)
class Stub:
    """A file to be written: the state it serves (as claimed), its name, its text.

    `file_wanted` is the name it would have had if that were free.
    """

    state: str
    file: str
    file_wanted: str
    text: str


@dataclass(frozen=True)
class Marked:
    """What one file marks: names below `states` (``testing``, ``child.testing``), or plain state names."""

    ids: frozenset[str]
    names: frozenset[str]


def marked_in(source: str) -> Marked:
    """Find the states that a file's functions are marked for. Raises SyntaxError."""
    tree = ast.parse(source)
    known = _imported(tree)
    ids: set[str] = set()
    names: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in _marks(function, known):
                dotted = _dotted(argument, known)
                if dotted is not None and dotted.startswith("contract.states."):
                    ids.add(dotted.removeprefix("contract.states."))
                names |= _constant_name(argument)
    return Marked(frozenset(ids), frozenset(names))


def stubs_for(
    document: Document, names: Names, marked: Collection[Marked], files: Collection[str]
) -> list[Stub]:
    """Return a stub for each state that nothing in `marked` serves. `files` are the names that are taken."""
    taken = {name.removesuffix(".py") for name in files}
    stubs: list[Stub] = []
    for workflow in document.workflows:
        for state in workflow.states:
            if _is_marked(workflow, state, names, marked):
                continue
            wanted = stem_of(workflow.claimed_as(state))
            stem = free_name(wanted, taken)
            taken.add(stem)
            text = stub_text(workflow, state, names)
            stubs.append(Stub(workflow.claimed_as(state), f"{stem}.py", f"{wanted}.py", text))
    return stubs


def stub_text(workflow: Workflow, state: str, names: Names) -> str:
    """Return the source of a routine for `state` that has still to be written."""
    context = context_alias(workflow, names)
    emits = [names.event(workflow.name, event) for event in workflow.states[state]]
    is_open = context.endswith("[Any]")
    imported = ["events"] if emits else []
    imported += ["states"] if is_open else [context, "states"]
    claimed = workflow.claimed_as(state)
    first = "from typing import Any\n\n" if is_open else ""
    marks = "Context, on_state" if is_open else "on_state"
    return (
        f'"""What is done with a token in the state {claimed}."""\n\n{first}'
        f"from contract import {', '.join(sorted(imported, key=_import_order))}\n"
        f"from stateous_supervisor import {marks}\n\n\n"
        f"@on_state({names.state(workflow.name, state)})\n"
        f"def {identifier(state)}(ctx: {context}) -> {' | '.join(emits) or 'None'}:\n"
        f'    """{_advice(emits)}"""\n'
        f'    raise NotImplementedError("the routine of {claimed} is still to be written")\n'
    )


def _advice(emits: list[str]) -> str:
    if not emits:
        return "Return None: only an event from outside, a timer or a timeout moves the token on from here."
    return "Return the event that moves the token on; None (declare it too) waits for one from outside."


def _import_order(name: str) -> tuple[bool, str]:
    return (name.islower(), name)


def _is_marked(workflow: Workflow, state: str, names: Names, marked: Collection[Marked]) -> bool:
    dotted = names.state(workflow.name, state).removeprefix("states.")
    claimed = workflow.claimed_as(state)
    return any(dotted in file.ids or claimed in file.names for file in marked)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Map each imported name to the dotted thing that it stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                known[each.asname or each.name.split(".")[0]] = each.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                known[each.asname or each.name] = f"{node.module}.{each.name}"
    return known


def _marks(function: ast.FunctionDef | ast.AsyncFunctionDef, known: Mapping[str, str]) -> Iterator[ast.expr]:
    """Yield what stands in each ``on_state(…)`` above a function."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            dotted = _dotted(decorator.func, known)
            if dotted in [f"{package}.on_state" for package in _PACKAGES]:
                yield from decorator.args[:1]
                yield from (each.value for each in decorator.keywords if each.arg == "state")


def _dotted(node: ast.expr, known: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value, known)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def _constant_name(argument: ast.expr) -> set[str]:
    """The state in ``on_state(StateRef("coding", …))`` or ``on_state("coding")``."""
    inner = argument.args[0] if isinstance(argument, ast.Call) and argument.args else argument
    return {inner.value} if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else set()
