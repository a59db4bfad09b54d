"""What the routine of each state relies on, so that a changed workflow stops only those whom the change concerns.

A routine relies on its context model, on the events that it may emit and on their payload models: each field of a model
is a part with a digest of its own. What is only added (an event, a field that nobody must fill) takes no part away. Not
relied on: timeouts, retries, transitions, other states. Both rooms compute this from a parsed document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from stateous_contract.canonical import canonical_text, completed

SHARED: Final = "*"
"""Stands in place of a state for what every state of a workflow relies on: ``*``, or ``review/*`` for a child's."""

Reliance = Mapping[str, Mapping[str, str]]
"""Parts with their digests, by the name under which a state is claimed."""

_DIGEST_CHARS: Final = 12
_MODELS: Final = "#/schemas/"
_REMARKS: Final = frozenset({"title", "description", "examples", "default", "deprecated", "$comment"})
"""What a schema says to people, or does before a routine sees a value."""


def reliance_of(document: Any) -> dict[str, dict[str, str]]:
    """Return what the states of a workflow document rely on. Parallel states have no routine and are left out.

    Raises ValueError for whatever is no workflow document.
    """
    try:
        whole = completed(document)
        found = _of_workflow(whole, whole, "")
        for name, child in whole.get("workflows", {}).items():
            found |= _of_workflow(whole, child, f"{name}/")
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"this is no workflow document: {error!r}") from None
    return found


def changed_states(ours: Reliance, theirs: Reliance) -> dict[str, list[str]]:
    """Return the states of `theirs` that a routine made by `ours` does not suit any more, with what has changed."""
    parts = {state: changed_parts(ours, theirs, state) for state in theirs if not state.endswith(SHARED)}
    return {state: changed for state, changed in parts.items() if changed}


def changed_parts(ours: Reliance, theirs: Reliance, state: str) -> list[str]:
    """Return the parts that the routine of `state` relies on by `ours` and that `theirs` changed or dropped.

    None where `theirs` has no such state any more: then only tokens of an older version come to it.
    """
    if state not in theirs:
        return []
    shared = state[: state.rfind("/") + 1] + SHARED
    given = {**theirs.get(shared, {}), **theirs[state]}
    relied_on = {**ours.get(shared, {}), **ours.get(state, {})}
    return sorted(part for part, digest in relied_on.items() if given.get(part) != digest)


def _of_workflow(document: Any, workflow: Any, prefix: str) -> dict[str, dict[str, str]]:
    schemas = document["schemas"]
    context = workflow.get("context")
    shared = {} if context is None else {"context": _digest(context), **_model_parts(context, schemas)}
    found = {prefix + SHARED: shared}
    for name, state in workflow["states"].items():
        if state.get("parallel") is None:
            found[prefix + name] = parts = {}
            for event in state["emits"]:
                model = workflow["events"][event].get("payload")
                parts[f"emits {event}"] = _digest(model)
                if model is not None:
                    parts |= _model_parts(model, schemas)
    return found


def _model_parts(model: str, schemas: Any) -> dict[str, str]:
    """The parts of a model and of all those that it refers to: each field, and once what binds the whole object."""
    parts: dict[str, str] = {}
    waiting = [model]
    while waiting:
        name = waiting.pop()
        if name in parts or name not in schemas:
            continue
        schema = _bare(schemas[name])
        fields = schema.pop("properties", {}) if isinstance(schema, dict) else {}
        if isinstance(schema, dict) and isinstance(schema.get("required"), list):
            schema["required"] = sorted(schema["required"])
        parts[name] = _digest(schema)
        parts |= {f"{name}.{field}": _digest(what) for field, what in fields.items()}
        waiting += _references(schema)
        waiting += _references(fields)
    return parts


def _bare(schema: Any) -> Any:
    """Return a schema without what is only said to people; the names of fields are no keywords."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _bare(inner) for name, inner in value.items()}
        if key == "properties" and isinstance(value, dict)
        else value
        if key in ("enum", "const")
        else _bare(value)
        for key, value in schema.items()
        if key not in _REMARKS
    }


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str) and value.startswith(_MODELS):
                yield unquote(value.removeprefix(_MODELS)).replace("~1", "/").replace("~0", "~")
            else:
                yield from _references(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_text(value).encode("ascii")).hexdigest()[:_DIGEST_CHARS]
