"""JSON Schema checks of contexts and payloads (C.5). The only door to the schema library in this room.

Draft 2020-12; ``format`` is not asserted; nothing is ever fetched from elsewhere. `reading.py` compiles a
check for each model in use, once a graph; the rules call `check_context` and `check_payload`. What has no
model costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

import jsonschema_rs
from msgspec import Raw
from stateous_contract.codes import Code, Refused

from stateous_control.graph.document import Check, Event, Machine, Path, written
from stateous_control.graph.values import decode, decode_all, encode

PROBLEMS_MAX: Final = 3
PROBLEM_CHARS_MAX: Final = 240


class SchemaInvalid(Exception):
    """A model is no JSON Schema, or refers to something that is not there. The message says what.

    `path` is where in the workflow document.
    """

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


def compile_check(model: str, schemas: Mapping[str, Any]) -> Check:
    """Compile the check of one model. References between models read ``#/schemas/<Model>``.

    Raises SchemaInvalid when it is no valid schema or refers to a model that is missing.
    """
    root = {"$ref": f"#/schemas/{_pointer(model)}", "schemas": dict(schemas)}
    try:
        validator = jsonschema_rs.Draft202012Validator(root, validate_formats=False, offline=True)
    except jsonschema_rs.ValidationError as error:
        # The library counts places from our root, which has the document's ``schemas`` under the same name.
        path = tuple(error.instance_path) or ("schemas", model)
        raise SchemaInvalid(_short(error.message), path) from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(_short(str(error)), ("schemas", model)) from None
    return _check_of(validator)


def compile_alone(schema: Any) -> Check:
    """Compile the check of one schema that stands by itself: references read ``#/$defs/…``. Raises SchemaInvalid."""
    try:
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=False, offline=True)
    except jsonschema_rs.ValidationError as error:
        raise SchemaInvalid(_short(error.message), tuple(error.instance_path)) from None
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        raise SchemaInvalid(_short(str(error)), ()) from None
    return _check_of(validator)


def _check_of(validator: Any) -> Check:
    def check(value: Any) -> list[str]:
        if validator.is_valid(value):
            return []
        return [
            _at(error.instance_path, error.message)
            for error in islice(validator.iter_errors(value), PROBLEMS_MAX)
        ]

    return check


def check_context(
    machine: Machine, context: Mapping[str, Any], *, found: str = "the context breaks the schema"
) -> None:
    """Check a whole context, after defaults and writes; values are `Raw` texts or decoded.

    Raises Refused(INVALID_CONTEXT) with a sentence that says where and why; it begins with `found`.
    """
    if machine.context_check is None:
        return
    problems = _problems(machine.context_check, decode_all(context))
    if problems:
        raise Refused(Code.INVALID_CONTEXT, f"{found}: {'; '.join(problems)}")


def check_payload(machine: Machine, event: str, payload: Any = None) -> None:
    """Check the payload of a declared event; `payload` is a `Raw` text or decoded, None for none.

    Raises Refused(INVALID_PAYLOAD). An event without a model takes only nothing or an empty object.
    """
    declared = machine.events[event]
    if payload is None and declared.check is None:
        return
    value = decode(payload)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise Refused(Code.INVALID_PAYLOAD, f"the payload of {event!r} is not an object")
    if declared.check is None:
        _assert_empty(declared, value)
        return
    problems = _problems(declared.check, value)
    if problems:
        raise Refused(
            Code.INVALID_PAYLOAD, f"the payload of {event!r} breaks the schema: {'; '.join(problems)}"
        )


def with_defaults(machine: Machine, context: Mapping[str, Raw]) -> dict[str, Raw]:
    """Fill in the defaults of the context model: they come first, a given key keeps its default's place."""
    return {**machine.defaults, **context}


def defaults_of(schema: Any) -> dict[str, Raw]:
    """Return the top-level defaults of a context model, by property."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {
        name: encode(entry["default"])
        for name, entry in properties.items()
        if isinstance(entry, dict) and "default" in entry
    }


def _assert_empty(event: Event, value: dict[str, Any]) -> None:
    if value:
        raise Refused(Code.INVALID_PAYLOAD, f"the event {event.name!r} takes no payload")


def _problems(check: Check, value: Any) -> list[str]:
    try:
        return check(value)
    except ValueError:  # a lone surrogate in a key; the door refuses those, a direct caller may not
        return ["it holds text that is not Unicode"]


def _at(path: Sequence[str | int], message: str) -> str:
    place = written(tuple(path))
    return f"{place}: {_short(message)}" if place else _short(message)


def _short(message: str) -> str:
    line = " ".join(message.split())
    if len(line) <= PROBLEM_CHARS_MAX:
        return line
    half = PROBLEM_CHARS_MAX // 2
    return f"{line[:half]} … {line[-half:]}"


def _pointer(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"))
