"""What a model (a JSON Schema) says about the fields of an object: which there are, and what they can be.

Only for `compiler.py`: a value is checked by `schema.py`, never by this. Where a schema says nothing that is
understood here, the answer is "anything", so whoever relies on it never relies on too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

KINDS: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_REFERENCE: Final = "#/schemas/"
_NESTED_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Domain:
    """What a value can be: one of `values` if they are known, else of `kinds` and at least `least`."""

    kinds: frozenset[str] = KINDS
    values: tuple[Any, ...] | None = None
    least: int | None = None

    def or_absent(self) -> Domain:
        """The same, where the field may also be missing, which a guard sees as null."""
        if self.values is None:
            return Domain(self.kinds | {"null"})
        return Domain(values=(*self.values, None))


ANYTHING: Final = Domain()


@dataclass(frozen=True, slots=True)
class Model:
    """The fields of one model. `is_open`: it may have others, which it does not name."""

    fields: Mapping[str, Domain]
    is_open: bool

    def has(self, name: str) -> bool:
        return self.is_open or name in self.fields

    def domain(self, name: str) -> Domain:
        return self.fields.get(name, ANYTHING)


def model_of(name: str, schemas: Mapping[str, Any]) -> Model:
    """Describe a model of ``schemas``."""
    reading = _Reading(schemas)
    reading.read({"$ref": _REFERENCE + name}, depth=0, is_certain=True)
    fields = {
        field: domain if field in reading.required else domain.or_absent()
        for field, domain in ((field, reading.domain(schema, 0)) for field, schema in reading.fields.items())
    }
    return Model(fields, reading.is_open)


def required_of(name: str, schemas: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields that every object of a model must have."""
    reading = _Reading(schemas)
    reading.read({"$ref": _REFERENCE + name}, depth=0, is_certain=True)
    return frozenset(reading.required)


class _Reading:
    """Gathers the fields of an object's schema through references and combinations."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self.fields: dict[str, Any] = {}
        self.required: set[str] = set()
        self.is_open = False

    def read(self, schema: Any, *, depth: int, is_certain: bool) -> None:
        """Take in one schema; `is_certain`: every object must meet it, so what it requires is there."""
        if not isinstance(schema, dict) or depth > _NESTED_MAX:
            self.is_open = True
            return
        for name, field in _mapping(schema.get("properties")).items():
            self.fields[name] = True if name in self.fields else field  # two schemas for one field: anything
        if is_certain:
            self.required.update(name for name in _list(schema.get("required")) if isinstance(name, str))
        extra = schema.get("additionalProperties", False)
        if extra is not False or schema.get("patternProperties"):
            self.is_open = True
        if {"if", "dependentSchemas", "$dynamicRef"} & schema.keys():
            self.is_open = True
        for key in ("allOf", "anyOf", "oneOf"):
            for part in _list(schema.get(key)):
                self.read(part, depth=depth + 1, is_certain=is_certain and key == "allOf")
        if "$ref" in schema:
            self.read(self._target(schema["$ref"]), depth=depth + 1, is_certain=is_certain)

    def domain(self, schema: Any, depth: int) -> Domain:  # noqa: PLR0911 - one return a keyword
        """Say what a value that meets `schema` can be."""
        if not isinstance(schema, dict) or depth > _NESTED_MAX:
            return ANYTHING
        if "const" in schema:
            return Domain(values=(schema["const"],))
        if "enum" in schema:
            return Domain(values=tuple(_list(schema["enum"])))
        if "$ref" in schema:
            return self.domain(self._target(schema["$ref"]), depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return _union(self.domain(part, depth + 1) for part in _list(schema[key]))
        if _list(schema.get("allOf")):
            return self.domain(schema["allOf"][0], depth + 1)
        if "type" not in schema:
            return ANYTHING
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return Domain(frozenset(kind for kind in kinds if kind in KINDS))

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith(_REFERENCE):
            return None
        name = unquote(reference.removeprefix(_REFERENCE)).replace("~1", "/").replace("~0", "~")
        return self._schemas.get(name, self._schemas.get(reference.removeprefix(_REFERENCE)))


def _union(domains: Iterable[Domain]) -> Domain:
    every = list(domains)
    if all(domain.values is not None for domain in every):
        return Domain(values=tuple(value for domain in every for value in domain.values or ()))
    kinds = (
        domain.kinds if domain.values is None else frozenset(map(_kind, domain.values)) for domain in every
    )
    return Domain(frozenset().union(*kinds))


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
