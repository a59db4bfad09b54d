"""The Python annotation of one JSON Schema, with every constraint that pydantic can hold. Pure.

What an annotation cannot say is named in `Annotation.unkept`, so that the contract can say who checks it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stateous_supervisor.scaffold.literals import literal
from stateous_supervisor.scaffold.schemas import Schema, model_of

_BOUNDS = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_TEXT = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
_ITEMS = {"minItems": "min_length", "maxItems": "max_length"}
_PROPERTIES = {"minProperties": "min_length", "maxProperties": "max_length"}

# Formats that have a type of their own. Another stays text, and is kept beside it for readers of the schema.
_FORMATS = {
    "date-time": "_datetime.datetime",
    "date": "_datetime.date",
    "time": "_datetime.time",
    "duration": "_datetime.timedelta",
    "uuid": "_uuid.UUID",
    "ipv4": "_ipaddress.IPv4Address",
    "ipv6": "_ipaddress.IPv6Address",
}

_UNKEPT = ("not", "if", "then", "else", "contains", "dependentRequired", "dependentSchemas", "propertyNames")
_RUST_LACKS = re.compile(r"\(\?[=!]|\(\?<[=!]|\\[1-9]")


@dataclass(frozen=True)
class Annotation:
    """An annotation as text.

    `is_plain`: a JSON literal that fits the schema is a value of this type as it stands, so a default can be
    written as a literal. `is_model`: it is the bare name of a model. `unkept`: keywords of the schema that
    the annotation does not express.
    """

    text: str
    is_plain: bool = True
    is_model: bool = False
    unkept: tuple[str, ...] = ()

    def or_none(self) -> Annotation:
        """The same, or None."""
        is_nullable = self.text in ("None", "Any") or self.text.endswith(" | None")
        return self if is_nullable else replace(self, text=f"{self.text} | None")


def annotation(schema: Any, classes: Mapping[str, str]) -> Annotation:
    """Return the annotation for `schema`. `classes` maps the models of the document to their class names."""
    if not isinstance(schema, Mapping):
        return Annotation("Never" if schema is False else "Any")
    unkept = tuple(key for key in _UNKEPT if key in schema)
    found = _by_shape(schema, classes)
    return replace(found, unkept=(*found.unkept, *unkept))


def needs_python_re(text: str) -> bool:
    """Whether an annotation holds a pattern that pydantic's own engine cannot run."""
    return "pattern=" in text and _RUST_LACKS.search(text) is not None


def _by_shape(schema: Schema, classes: Mapping[str, str]) -> Annotation:
    model = model_of(schema)
    if model is not None:
        is_known = model in classes
        return (
            Annotation(classes[model], is_plain=False, is_model=True)
            if is_known
            else Annotation("Any", unkept=("$ref",))
        )
    if "const" in schema:
        return _literal([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _literal(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _union(schema, [annotation(each, classes) for each in schema[key]])
    if isinstance(schema.get("allOf"), list):
        return _all_of(schema["allOf"], classes)
    return _by_type(schema, classes)


def _by_type(schema: Schema, classes: Mapping[str, str]) -> Annotation:
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union({}, [_by_type({**schema, "type": each}, classes) for each in kind])
    if kind == "string":
        return _text(schema)
    if kind in ("integer", "number"):
        return _constrained("int" if kind == "integer" else "float", schema, _BOUNDS)
    if kind == "array":
        return _array(schema, classes)
    if kind == "object":
        return _mapping(schema, classes)
    return Annotation({"boolean": "bool", "null": "None"}.get(str(kind), "Any"))


def _literal(values: list[Any]) -> Annotation:
    """A literal type. JSON has values that Python's literals lack (1.5, lists): those become Any."""
    is_literal = all(value is None or isinstance(value, str | int) for value in values)
    if not values or not is_literal:
        return Annotation("Any", unkept=("enum",))
    return Annotation(f"Literal[{', '.join(map(literal, values))}]")


def _union(schema: Schema, members: list[Annotation]) -> Annotation:
    texts = list(dict.fromkeys(member.text for member in members))
    if "None" in texts:
        texts = [text for text in texts if text != "None"] + ["None"]
    text = "Any" if "Any" in texts or not texts else " | ".join(texts)
    tag = schema.get("discriminator")
    if isinstance(tag, Mapping) and isinstance(tag.get("propertyName"), str) and "Any" not in texts:
        text = f"Annotated[{text}, Field(discriminator={literal(tag['propertyName'])})]"
    unkept = tuple(key for member in members for key in member.unkept)
    return Annotation(text, is_plain=all(member.is_plain for member in members), unkept=unkept)


def _all_of(parts: list[Any], classes: Mapping[str, str]) -> Annotation:
    if len(parts) == 1:
        return annotation(parts[0], classes)
    return Annotation("Any", unkept=("allOf",))


def _text(schema: Schema) -> Annotation:
    named = schema.get("format")
    if named in _FORMATS:
        return replace(_constrained(_FORMATS[named], schema, {}), is_plain=False)
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _compiles(pattern):
        kept = {key: value for key, value in schema.items() if key != "pattern"}
        return replace(_text(kept), unkept=("pattern",))
    extra = [f"json_schema_extra={literal({'format': named})}"] if isinstance(named, str) else []
    return _constrained("str", schema, _TEXT, extra)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _array(schema: Schema, classes: Mapping[str, str]) -> Annotation:
    members = schema.get("prefixItems")
    if isinstance(members, list) and schema.get("minItems") == schema.get("maxItems") == len(members):
        inner = [annotation(each, classes) for each in members]
        unkept = tuple(key for each in inner for key in each.unkept)
        return Annotation(
            f"tuple[{', '.join(each.text for each in inner) or '()'}]", is_plain=False, unkept=unkept
        )
    item = annotation(schema.get("items", True), classes)
    is_set = schema.get("uniqueItems") is True and item.text in ("str", "int")
    found = _constrained(f"{'set' if is_set else 'list'}[{item.text}]", schema, _ITEMS)
    unkept = ("uniqueItems",) if schema.get("uniqueItems") is True and not is_set else ()
    return replace(found, is_plain=item.is_plain and not is_set, unkept=(*item.unkept, *unkept))


def _mapping(schema: Schema, classes: Mapping[str, str]) -> Annotation:
    patterns = schema.get("patternProperties")
    key = "str"
    inner = schema.get("additionalProperties", True)
    if isinstance(patterns, Mapping) and len(patterns) == 1:
        pattern, inner = next(iter(patterns.items()))
        key = f"Annotated[str, Field(pattern={literal(pattern)})]" if _compiles(pattern) else "str"
    value = annotation(inner, classes)
    found = _constrained(f"dict[{key}, {value.text}]", schema, _PROPERTIES)
    return replace(found, is_plain=value.is_plain, unkept=value.unkept)


def _constrained(
    text: str, schema: Schema, keywords: Mapping[str, str], extra: list[str] | None = None
) -> Annotation:
    arguments = [
        f"{name}={literal(schema[key])}" for key, name in keywords.items() if _is_scalar(schema.get(key))
    ]
    arguments += extra or []
    return Annotation(f"Annotated[{text}, Field({', '.join(arguments)})]" if arguments else text)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
