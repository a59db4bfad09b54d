"""Which Python names the things of a workflow get in a generated contract. Pure.

Names of a workflow are `[a-z][a-z0-9_-]{0,63}`; names of models and fields are any text at all.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Collection, Iterable

# What a generated module uses under these names: no model may take one of them.
MODULE_NAMES = frozenset(
    {
        *(
            "str",
            "int",
            "float",
            "bool",
            "list",
            "dict",
            "set",
            "tuple",
            "object",
            "type",
            "super",
            "overload",
        ),
        *("Any", "Annotated", "ClassVar", "Literal", "Never", "TypeAlias", "TYPE_CHECKING"),
        *("BaseModel", "ConfigDict", "Field", "TypeAdapter", "SerializerFunctionWrapHandler"),
        *("model_serializer", "Context", "AsyncContext", "Occurrence", "StateRef", "events", "states"),
    }
)

# What pydantic's BaseModel has already: a field of that name would hide it.
BASE_MODEL_NAMES = frozenset(
    {
        *("construct", "copy", "dict", "from_orm", "json", "parse_file", "parse_obj", "parse_raw", "schema"),
        *("schema_json", "update_forward_refs", "validate", "model_computed_fields", "model_config"),
        *("model_construct", "model_copy", "model_dump", "model_dump_json", "model_extra", "model_fields"),
        *("model_fields_set", "model_json_schema", "model_parametrized_name", "model_post_init"),
        *("model_rebuild", "model_validate", "model_validate_json", "model_validate_strings"),
    }
)

# A state's file is imported by its stem: these stems belong to somebody else.
_TAKEN_STEMS = frozenset({"contract", "stateous", "stateous_supervisor", "stateous_contract", "pydantic"})


def identifier(name: str) -> str:
    """Turn any text into a Python identifier that is no keyword and does not begin with an underscore."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "unnamed"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return `wanted`, or the first of `wanted_2`, `wanted_3`, … that is not in `taken`."""
    if wanted not in taken:
        return wanted
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Give each of `names` an identifier of its own that is not in `taken`, in order."""
    used = set(taken)
    given: dict[str, str] = {}
    for name in names:
        given[name] = free_name(identifier(name), used)
        used.add(given[name])
    return given


def class_names(models: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Give each model a class name that hides nothing which the generated module needs."""
    used = MODULE_NAMES | set(taken)
    given: dict[str, str] = {}
    for model in models:
        plain = identifier(model)
        given[model] = free_name(f"{plain}Model" if plain in used else plain, used)
        used |= {given[model], f"{given[model]}Context", f"Async{given[model]}Context"}
    return given


def field_names(fields: Iterable[str], classes: Collection[str]) -> dict[str, str]:
    """Give each field of a model an attribute name; one that differs from the field needs an alias."""
    used = MODULE_NAMES | BASE_MODEL_NAMES | set(classes)
    given: dict[str, str] = {}
    for field in fields:
        plain = identifier(field)
        given[field] = free_name(f"{plain}_" if plain in used else plain, used)
        used |= {given[field]}
    return given


def camel(name: str) -> str:
    """Write `name` the way classes are written: ``work_item`` becomes ``WorkItem``."""
    return (
        "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", name, flags=re.ASCII))
        or "Unnamed"
    )


def stem_of(state: str) -> str:
    """Return the stem of the file for `state` (or ``workflow/state``); it shadows no known module."""
    stem = identifier(state.replace("/", "_"))
    is_taken = stem in _TAKEN_STEMS or stem in sys.stdlib_module_names
    return f"{stem}_routine" if is_taken else stem
