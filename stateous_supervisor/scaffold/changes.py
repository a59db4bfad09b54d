"""What a new contract changes against the old one, in lines for people. Pure: both are parsed text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass
class Outline:
    """The parts of a contract that a routine can depend on, each with how it is written."""

    facts: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


def outline(source: str) -> Outline:
    """Read the outline of a generated contract (of this package or of Stateous). Raises SyntaxError."""
    found = Outline()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in ("events", "states"):
            _read_names(node, found, "")
        elif isinstance(node, ast.ClassDef):
            found.models[node.name] = _options(node)
            found.fields.update(_fields(node))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            if node.target.id == "__states__":
                continue  # digests of what is compared here by name
            found.models[node.target.id] = ast.unparse(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            _read_fact(node.targets[0].id, node.value, found)
    return found


def differences(old: Outline, new: Outline) -> list[str]:
    """Say what was added, removed and changed, states first. An unchanged contract gives no line."""
    lines = [
        f"the {name} was {was}, is {new.facts[name]}"
        for name, was in old.facts.items()
        if name in new.facts and new.facts[name] != was
    ]
    pairs = (
        ("state", old.states, new.states),
        ("event", old.events, new.events),
        ("model", old.models, new.models),
    )
    for what, before, after in pairs:
        lines += _compare(what, before, after)
    common = set(old.models) & set(new.models)
    lines += _compare("field", _of(old.fields, common), _of(new.fields, common))
    return lines


def _of(fields: Mapping[str, str], models: set[str]) -> dict[str, str]:
    """Fields of models on both sides only: a new model is one line, not one for each of its fields."""
    return {name: text for name, text in fields.items() if name.rsplit(".", 1)[0] in models}


def _compare(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in after:
        if name not in before:
            yield f"+ {what} {name}" + (f": {after[name]}" if after[name] else "")
    for name in before:
        if name not in after:
            yield f"- {what} {name}"
    for name, was in before.items():
        if name in after and after[name] != was:
            yield f"~ {what} {name}: {was or 'nothing'} -> {after[name] or 'nothing'}"


def _read_fact(name: str, value: ast.expr, found: Outline) -> None:
    if name in ("__workflow__", "__checksum__"):
        found.facts[name.strip("_")] = (
            str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)
        )
    elif not name.endswith("Context"):
        found.models[name] = ast.unparse(value)


def _read_names(group: ast.ClassDef, found: Outline, prefix: str, top: str = "") -> None:
    top = top or group.name
    for node in group.body:
        if isinstance(node, ast.ClassDef) and node.bases:
            found.events[prefix + _wire_name(node)] = _payload(node)
        elif isinstance(node, ast.ClassDef):
            _read_names(node, found, f"{prefix}{node.name}.", top)
        else:
            _read_state(node, found)


def _read_state(node: ast.stmt, found: Outline) -> None:
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Subscript | ast.Call):
        call = value if isinstance(value, ast.Call) else None
        if call is not None and call.args and isinstance(call.args[0], ast.Constant):
            emits = next((each.value for each in call.keywords if each.arg == "emits"), None)
            names = [ast.unparse(each) for each in emits.elts] if isinstance(emits, ast.Tuple) else []
            events = [name.removeprefix("events.") for name in names]
            found.states[str(call.args[0].value)] = f"may emit {', '.join(events) or 'nothing'}"


def _wire_name(event: ast.ClassDef) -> str:
    for node in event.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return event.name


def _payload(event: ast.ClassDef) -> str:
    base = event.bases[0]
    inner = ast.unparse(base.slice) if isinstance(base, ast.Subscript) else "None"
    return "without payload" if inner == "None" else f"carries {inner}"


def _options(model: ast.ClassDef) -> str:
    for node in model.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "model_config":
            extra = [each for each in getattr(node.value, "keywords", []) if each.arg == "extra"]
            return f"extra fields: {ast.literal_eval(extra[0].value)}" if extra else ""
    return ""


def _fields(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for node in model.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            yield f"{model.name}.{node.target.id}", ast.unparse(node.annotation) + default
