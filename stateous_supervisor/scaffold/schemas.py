"""The schemas of a workflow document, levelled: every object with fields of its own gets a name. Pure.

After `levelled`, a schema that describes fields stands at the top of the mapping only, and is named by
``{"$ref": "#/schemas/<Name>"}`` everywhere else. So one schema is one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stateous_supervisor.scaffold.identifiers import camel, free_name

Schema = Mapping[str, Any]

REF_PREFIX = "#/schemas/"
_BESIDE_REF = ("default", "description")


def levelled(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schemas` with inline objects and local ``$defs`` moved to names of their own."""
    names = _Names(schemas)
    for name in list(schemas):
        names.level(name, schemas[name])
    return names.done


def model_of(schema: Any) -> str | None:
    """Return the model that ``{"$ref": "#/schemas/<Name>"}`` names, or None."""
    ref = schema.get("$ref") if isinstance(schema, Mapping) else None
    return ref.removeprefix(REF_PREFIX) if isinstance(ref, str) and ref.startswith(REF_PREFIX) else None


def has_fields(schema: Any) -> bool:
    """Whether `schema` describes an object with fields, which becomes a class."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return False
    if isinstance(schema.get("properties"), Mapping):
        return True
    return schema.get("type") == "object" and schema.get("additionalProperties") is False


def models_in(schema: Any) -> Iterator[str]:
    """Name every model that `schema` refers to, at any depth (default values are data, not schemas)."""
    if isinstance(schema, Mapping):
        named = model_of(schema)
        if named is not None:
            yield named
        for key, inner in schema.items():
            if key not in ("default", "const", "enum", "examples"):
                yield from models_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from models_in(inner)


def in_order(schemas: Mapping[str, Any]) -> list[str]:
    """Order the models: those that others are made of first, else by name. A circle is cut somewhere."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen or name not in schemas:
            return
        seen.add(name)
        for other in sorted(set(models_in(schemas[name]))):
            visit(other)
        order.append(name)

    for name in sorted(schemas):
        visit(name)
    return order


class _Names:
    """The levelling of one document: which names are taken, and what stands under them."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.done: dict[str, Any] = {}
        self._taken = set(schemas)

    def level(self, name: str, schema: Any) -> None:
        local = self._local_names(schema)
        for given, inner in local.values():
            self.done[given] = self._walk(inner, given, local, at_top=True)
        self.done[name] = self._walk(schema, name, local, at_top=True)

    def _local_names(self, schema: Any) -> dict[str, tuple[str, Any]]:
        defs = schema.get("$defs") if isinstance(schema, Mapping) else None
        local: dict[str, tuple[str, Any]] = {}
        for name, inner in defs.items() if isinstance(defs, Mapping) else ():
            given = free_name(name, self._taken)
            self._taken.add(given)
            local[f"#/$defs/{name}"] = (given, inner)
        return local

    def _walk(
        self, schema: Any, path: str, local: dict[str, tuple[str, Any]], *, at_top: bool = False
    ) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        if not at_top and has_fields(schema):
            return self._named(schema, path, local)
        levelled_schema: dict[str, Any] = {}
        for key, inner in schema.items():
            levelled_schema[key] = self._walk_key(key, inner, path, local)
        levelled_schema.pop("$defs", None)
        return levelled_schema

    def _walk_key(self, key: str, inner: Any, path: str, local: dict[str, tuple[str, Any]]) -> Any:
        if key == "$ref" and isinstance(inner, str) and inner in local:
            return REF_PREFIX + local[inner][0]
        if key in ("properties", "patternProperties") and isinstance(inner, Mapping):
            return {name: self._walk(each, path + camel(name), local) for name, each in inner.items()}
        if key in ("items", "additionalProperties"):
            return self._walk(inner, f"{path}Item", local)
        if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inner, list):
            return [self._walk(each, path, local) for each in inner]
        return inner

    def _named(self, schema: Schema, path: str, local: dict[str, tuple[str, Any]]) -> dict[str, Any]:
        given = free_name(path, self._taken)
        self._taken.add(given)
        own = {key: inner for key, inner in schema.items() if key != "default"}
        self.done[given] = self._walk(own, given, local, at_top=True)
        beside = {key: schema[key] for key in _BESIDE_REF if key in schema}
        return {"$ref": REF_PREFIX + given, **beside}
