"""The pydantic class of one model of a workflow document, as text. Pure.

A field that may be absent and has no default is None in Python and left out of the JSON again: absent and
null are not the same to a control plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateous_supervisor.scaffold.annotations import Annotation, annotation, needs_python_re
from stateous_supervisor.scaffold.identifiers import field_names
from stateous_supervisor.scaffold.literals import call, docstring, literal
from stateous_supervisor.scaffold.schemas import Schema, has_fields

_LEAVE_OUT = """    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = {names}
        return {{key: value for key, value in handler(self).items() if not (value is None and key in absent)}}
"""

_EMPTY = {"list[": "[]", "dict[": "{}", "set[": "set()"}


@dataclass(frozen=True)
class Member:
    """One field of a model: its name in JSON, its attribute, and how it is written."""

    name: str
    attribute: str
    kind: Annotation
    default: str | None
    is_left_out: bool
    doc: str | None


def model_text(schema: Any, class_name: str, classes: Mapping[str, str]) -> str:
    """Return the source of the class (or, for a schema without fields, the type alias) named `class_name`."""
    if not has_fields(schema):
        found = annotation(schema, classes)
        return f"{_unkept(found, '')}{class_name}: TypeAlias = {found.text}\n"
    members = members_of(schema, classes)
    parts = [_head(schema, class_name), _config(schema, members)]
    parts += [_member_text(member) for member in members]
    left_out = [member.name for member in members if member.is_left_out]
    if left_out:
        parts.append("\n" + _LEAVE_OUT.format(names="{" + ", ".join(map(literal, left_out)) + "}"))
    body = "".join(parts)
    return body if body.count("\n") > 1 else f"{body}    pass\n"


def members_of(schema: Any, classes: Mapping[str, str]) -> list[Member]:
    """Return the fields of a model, in the schema's order."""
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping):
        return []
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    attributes = field_names(fields, set(classes.values()))
    return [
        _member(name, attributes[name], inner, classes, is_required=name in needed)
        for name, inner in fields.items()
    ]


def _member(
    name: str, attribute: str, schema: Any, classes: Mapping[str, str], *, is_required: bool
) -> Member:
    kind = annotation(schema, classes)
    doc = schema.get("description") if isinstance(schema, Mapping) else None
    default: str | None = None
    is_left_out = False
    if isinstance(schema, Mapping) and "default" in schema:
        kind, default = _given_default(kind, schema["default"])
    elif not is_required:
        default = _empty(schema, kind)
        is_left_out = default is None
        kind, default = (kind.or_none(), "None") if default is None else (kind, default)
    return Member(name, attribute, kind, default, is_left_out, doc if isinstance(doc, str) else None)


def _empty(schema: Any, kind: Annotation) -> str | None:
    """How an empty collection is written, where the schema is of one and takes it empty."""
    if not isinstance(schema, Mapping) or schema.get("minItems") or schema.get("minProperties"):
        return None
    bare = kind.text.removeprefix("Annotated[")
    return next((empty for start, empty in _EMPTY.items() if bare.startswith(start)), None)


def _given_default(kind: Annotation, value: Any) -> tuple[Annotation, str]:
    """A literal where the type takes one; otherwise the default is made by validating it."""
    if value is None:
        return kind.or_none(), "None"
    if kind.is_plain or (kind.is_model and not isinstance(value, dict)):
        return kind, literal(value)
    validated = f"TypeAdapter[{kind.text}]({kind.text}).validate_python({literal(value)})"
    return kind, f"Field(default_factory=lambda: {validated})"


def _head(schema: Schema, class_name: str) -> str:
    doc = schema.get("description")
    return f"class {class_name}(BaseModel):\n" + (
        docstring(doc, "    ") + "\n" if isinstance(doc, str) and doc else ""
    )


def _config(schema: Schema, members: list[Member]) -> str:
    options = []
    extra = schema.get("additionalProperties")
    if extra is not None:
        options.append(f'extra="{"forbid" if extra is False else "allow"}"')
    if any(member.name != member.attribute for member in members):
        options += ["validate_by_name=True", "validate_by_alias=True", "serialize_by_alias=True"]
    if any(member.attribute.startswith("model_") for member in members):
        options.append("protected_namespaces=()")
    if any(needs_python_re(member.kind.text) for member in members):
        options.append('regex_engine="python-re"')
    text = call("model_config = ConfigDict", options, "    ") if options else ""
    return text + ("\n" if text and members else "")


def _member_text(member: Member) -> str:
    kind, default = member.kind.text, member.default
    if member.name != member.attribute:
        named = literal(member.name)
        alias = f"Field(validation_alias={named}, serialization_alias={named})"
        kind = f"Annotated[{kind}, {alias}]"
    text = f"{_unkept(member.kind, '    ')}    {member.attribute}: {kind}"
    text += f" = {default}\n" if default is not None else "\n"
    return text + (docstring(member.doc, "    ") if member.doc else "")


def _unkept(kind: Annotation, indent: str) -> str:
    if not kind.unkept:
        return ""
    return f"{indent}# Checked by the control plane only: {', '.join(dict.fromkeys(kind.unkept))}.\n"
