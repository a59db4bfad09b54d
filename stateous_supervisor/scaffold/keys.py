"""The type of what `ctx["key"]` returns: the JSON value itself, never a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stateous_supervisor.scaffold.literals import literal
from stateous_supervisor.scaffold.schemas import Schema, has_fields, model_of

_DEPTH_MAX = 8
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def json_type(schema: Any, schemas: Mapping[str, Any], depth: int = 0) -> str:
    """Return the annotation of a JSON value that fits `schema`."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return "Any"
    model = model_of(schema)
    if model is not None:
        return json_type(schemas.get(model, True), schemas, depth + 1)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        is_literal = values and all(value is None or isinstance(value, str | int) for value in values)
        return f"Literal[{', '.join(map(literal, values))}]" if is_literal else "Any"
    return _structure(schema, schemas, depth)


def keys_of(context: Any, schemas: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that the context model `context` declares, each with the type of its value."""
    fields = context.get("properties") if isinstance(context, Mapping) else None
    return (
        {key: json_type(inner, schemas) for key, inner in fields.items()}
        if isinstance(fields, Mapping)
        else {}
    )


def _structure(schema: Schema, schemas: Mapping[str, Any], depth: int) -> str:
    members = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(members, list):
        return _union(json_type(each, schemas, depth + 1) for each in members)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union(json_type({**schema, "type": each}, schemas, depth + 1) for each in kind)
    if kind == "array":
        return f"list[{json_type(schema.get('items', True), schemas, depth + 1)}]"
    if kind == "object" or has_fields(schema):
        inner = (
            "Any" if has_fields(schema) else json_type(schema.get("additionalProperties"), schemas, depth + 1)
        )
        return f"dict[str, {inner}]"
    return _SCALARS.get(str(kind), "Any")


def _union(members: Any) -> str:
    texts = list(dict.fromkeys(members))
    return (
        "Any" if "Any" in texts or not texts else " | ".join(sorted(texts, key=lambda text: text == "None"))
    )
