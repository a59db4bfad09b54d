"""A workflow document written as `contract.py`: typed states, events, payload and context models. Pure.

The text is a function of document and checksum, so a refresh of an unchanged workflow changes nothing.
Routines import it, type checkers read it, and the agent finds `__checksum__` in it without running it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stateous_supervisor.scaffold.document import Document, Workflow
from stateous_supervisor.scaffold.identifiers import class_names, identifiers
from stateous_supervisor.scaffold.keys import keys_of
from stateous_supervisor.scaffold.literals import LINE_CHARS_MAX, call, literal
from stateous_supervisor.scaffold.models import model_text
from stateous_supervisor.scaffold.schemas import has_fields, in_order, levelled, models_in

_TYPING = (
    "TYPE_CHECKING",
    "Annotated",
    "Any",
    "ClassVar",
    "Literal",
    "Never",
    "Protocol",
    "TypeAlias",
    "overload",
)
_PYDANTIC = (
    "BaseModel",
    "ConfigDict",
    "Field",
    "SerializerFunctionWrapHandler",
    "TypeAdapter",
    "model_serializer",
)
_STATEOUS = ("AsyncContext", "Context", "Occurrence", "StateRef")
_MODULES = ("datetime", "ipaddress", "uuid")


@dataclass(frozen=True)
class Names:
    """The Python names in a contract: classes by model, events and states by workflow (None: main)."""

    classes: dict[str, str]
    workflows: dict[str, str]
    events: dict[str | None, dict[str, str]]
    states: dict[str | None, dict[str, str]]

    def event(self, workflow: str | None, event: str) -> str:
        """Return how a routine writes an event: ``events.passed``, or ``events.child.passed``."""
        return ".".join(("events", *self._nest(workflow), self.events[workflow][event]))

    def state(self, workflow: str | None, state: str) -> str:
        """Return how a routine writes a state: ``states.testing``, or ``states.child.testing``."""
        return ".".join(("states", *self._nest(workflow), self.states[workflow][state]))

    def _nest(self, workflow: str | None) -> tuple[str, ...]:
        return () if workflow is None else (self.workflows[workflow],)


def names_of(document: Document) -> Names:
    """Choose the Python names for everything in `document`."""
    children = [workflow.name for workflow in document.workflows if workflow.name is not None]
    nests = identifiers(children, {"events", "states"})
    events: dict[str | None, dict[str, str]] = {}
    states: dict[str | None, dict[str, str]] = {}
    for workflow in document.workflows:
        taken = {"events", "states", *(nests.values() if workflow.name is None else ())}
        events[workflow.name] = identifiers(workflow.events, taken)
        states[workflow.name] = identifiers(workflow.states, taken)
    ids = {name for given in (*events.values(), *states.values()) for name in given.values()}
    classes = class_names(sorted(levelled(document.schemas)), ids | set(nests.values()))
    return Names(classes, nests, events, states)


def contract_text(document: Document, checksum: str) -> str:
    """Return the source of `contract.py`. `checksum` is the control plane's (``sha256:…``)."""
    names = names_of(document)
    schemas = _with_open_objects(levelled(document.schemas), document)
    body = "\n\n".join(
        block.rstrip("\n") + "\n"
        for block in (
            *_model_blocks(schemas, names),
            *_context_blocks(document, schemas, names),
            _events_block(document, names),
            _states_block(document, names),
        )
    )
    return f"{_header(document, checksum, body)}\n\n{body}"


def context_alias(workflow: Workflow, names: Names, *, is_async: bool = False) -> str:
    """Return the annotation of `ctx` in a routine of `workflow`."""
    prefix = "Async" if is_async else ""
    if workflow.context is None:
        return f"{prefix}Context[Any]"
    return f"{prefix}{names.classes[workflow.context]}Context"


def _with_open_objects(schemas: dict[str, Any], document: Document) -> dict[str, Any]:
    """A payload or context of any fields at all is a class without fields that takes them."""
    for workflow in document.workflows:
        for model in (workflow.context, *workflow.events.values()):
            if model is not None and not has_fields(schemas[model]) and isinstance(schemas[model], Mapping):
                schemas[model] = {"additionalProperties": True, **schemas[model], "properties": {}}
    return schemas


def _model_blocks(schemas: Mapping[str, Any], names: Names) -> Iterator[str]:
    order = in_order(schemas)
    is_circle = False
    for place, name in enumerate(order):
        yield model_text(schemas[name], names.classes[name], names.classes)
        is_circle = is_circle or any(other in order[place + 1 :] for other in models_in(schemas[name]))
    if is_circle:
        rebuilt = (names.classes[name] for name in order if has_fields(schemas[name]))
        yield "\n".join(f"{class_name}.model_rebuild()" for class_name in rebuilt)


def _context_blocks(document: Document, schemas: Mapping[str, Any], names: Names) -> Iterator[str]:
    """Contexts as type checkers see them: `ctx["key"]` knows the keys and the types of their values."""
    contexts = list(
        dict.fromkeys(workflow.context for workflow in document.workflows if workflow.context is not None)
    )
    if not contexts:
        return
    seen, real = ["if TYPE_CHECKING:\n"], ["else:\n"]
    for context in contexts:
        class_name = names.classes[context]
        keys = keys_of(schemas[context], schemas)
        seen.append(_keys_class(class_name, keys))
        for prefix in ("", "Async"):
            seen.append(
                _context_class(
                    f"{prefix}{class_name}Context", f"{prefix}Context[{class_name}]", class_name, keys
                )
            )
            real.append(f"    {prefix}{class_name}Context = {prefix}Context[{class_name}]\n")
    yield "\n".join(part for part in seen if part) + "\n" + "".join(real)


def _keys_class(class_name: str, keys: Mapping[str, str]) -> str:
    if not keys:
        return ""
    overload = "        @overload\n" if len(keys) > 1 else ""
    lines = [f"    class _{class_name}Keys(Protocol):\n"]
    for key, kind in keys.items():
        lines.append(
            f"{overload}        def __getitem__(self, key: Literal[{literal(key)}], /) -> {kind}: ...\n"
        )
    for key, kind in keys.items():
        arguments = f"self, key: Literal[{literal(key)}], value: {kind}, /"
        lines.append(f"{overload}        def __setitem__({arguments}) -> None: ...\n")
    return "".join(lines)


def _context_class(name: str, base: str, class_name: str, keys: Mapping[str, str]) -> str:
    if not keys:
        return f"    class {name}({base}): ...\n"
    # The declared keys are narrower than the mapping of any text that Context is: that is their purpose.
    return f"    class {name}(_{class_name}Keys, {base}): ...  # type: ignore[misc]\n"


def _events_block(document: Document, names: Names) -> str:
    lines = ["class events:\n"]
    for workflow in document.workflows:
        indent = "    " if workflow.name is None else "        "
        if workflow.name is not None:
            lines.append(f"\n    class {names.workflows[workflow.name]}:\n")
        for event, model in workflow.events.items():
            payload = "None" if model is None else names.classes[model]
            lines.append(f"\n{indent}class {names.events[workflow.name][event]}(Occurrence[{payload}]):\n")
            lines.append(f"{indent}    name = {literal(event)}\n")
        if not workflow.events:
            lines.append(f"{indent}pass\n")
    return "".join(lines).replace(":\n\n", ":\n")


def _states_block(document: Document, names: Names) -> str:
    lines = ["class states:\n"]
    for workflow in document.workflows:
        indent = "    " if workflow.name is None else "        "
        if workflow.name is not None:
            lines.append(f"\n    class {names.workflows[workflow.name]}:\n")
        lines += [_state_line(workflow, state, names, indent) for state in workflow.states]
        if not workflow.states:
            lines.append(f"{indent}pass\n")
    return "".join(lines)


def _state_line(workflow: Workflow, state: str, names: Names, indent: str) -> str:
    emits = list(dict.fromkeys(names.event(workflow.name, event) for event in workflow.states[state]))
    kind = " | ".join(emits) or "Never"
    listed = ", ".join(emits) + ("," if len(emits) == 1 else "")
    left = f"{names.states[workflow.name][state]}: ClassVar[StateRef[{kind}]] = StateRef"
    return call(left, [literal(workflow.claimed_as(state)), f"emits=({listed})"], indent)


def _header(document: Document, checksum: str, body: str) -> str:
    lines = [
        f"# The contract of the workflow {document.name}: what its routines may read, write and return.",
        "# Made by `stateous-supervisor init`, refreshed by `stateous-supervisor contract`. Do not edit.",
        "from __future__ import annotations\n",
        *(f"import {module} as _{module}" for module in _MODULES if f"_{module}." in body),
        *_import("typing", _TYPING, body),
        "",
        *_import("pydantic", _PYDANTIC, body),
        *_import("stateous_supervisor", _STATEOUS, body),
        f"\n__workflow__ = {literal(document.name)}",
        f'__checksum__ = "{checksum}"',
        *_reliance_lines(document),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _reliance_lines(document: Document) -> Iterator[str]:
    """What each routine relies on; the agent compares it with what a changed workflow gives."""
    yield "__states__: dict[str, dict[str, str]] = {"
    for name, parts in document.reliance.items():
        line = f"    {literal(name)}: {literal(dict(parts))},"
        if len(line) <= LINE_CHARS_MAX:
            yield line
            continue
        yield f"    {literal(name)}: {{"
        yield from (f"        {literal(part)}: {literal(digest)}," for part, digest in parts.items())
        yield "    },"
    yield "}"


def _import(module: str, names: tuple[str, ...], body: str) -> list[str]:
    used = [name for name in names if re.search(rf"(?<![\w.'\"]){name}(?![\w'\"])", body)]
    return [f"from {module} import {', '.join(used)}"] if used else []
