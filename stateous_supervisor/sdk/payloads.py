"""Payloads of events: from a routine's value to JSON, checked against the event's model.

The one door to pydantic. It works on event classes of this package and of the published `stateous` alike: both have
`name`, `payload` and `payload_model()`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from stateous_supervisor.sdk.endings import InputInvalid
from stateous_supervisor.sdk.values import json_text, read


class PayloadInvalid(ValueError):
    """A payload does not fit its event. The text is one sentence that names event and model."""


def model_of(event: Any) -> Any:
    """Return the payload model of an event class, or None."""
    find = getattr(event, "payload_model", None)
    return None if find is None else find()


def payload_text(occurrence: Any) -> str | None:
    """Return the payload of an occurrence as JSON, or None where there is none.

    A dict or another model's instance is validated first. Raises PayloadInvalid or TypeError (not JSON).
    """
    event, payload = type(occurrence), occurrence.payload
    model = model_of(event)
    if payload is None:
        if model is not None:
            validated(event, {})
        return None
    if model is None:
        raise PayloadInvalid(f"the event {event.name!r} has no payload, and {_kind(payload)} was given")
    if not (isinstance(model, type) and type(payload) is model):
        payload = validated(event, _as_plain(payload))
    dumped = _dumped(event, model, payload)
    text = json_text(dumped, f"the payload of {event.name!r}")
    if not text.startswith("{"):
        raise PayloadInvalid(f"the payload of {event.name!r} is {_kind(dumped)}; it must be an object")
    return text


def validated(event: Any, payload: Any) -> Any:
    """Return `payload` as the event's model has it. Raises PayloadInvalid."""
    from pydantic import ValidationError

    model = model_of(event)
    try:
        return adapter(model).validate_python(payload)
    except ValidationError as error:
        raise PayloadInvalid(
            f"the payload of {event.name!r} does not fit {name_of(model)}: {first_fault(error)}"
        ) from None


def schema_of(event: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of an event's payload without references, or None. Raises OutcomeError if it recurs."""
    from stateous_supervisor.sdk.states import OutcomeError

    model = model_of(event)
    if model is None:
        return None
    schema = adapter(model).json_schema()
    try:
        inlined: dict[str, Any] = _inlined(schema, schema.pop("$defs", {}), ())
    except RecursionError:
        raise OutcomeError(
            f"the payload of {event.name!r} refers to itself, so it has no schema without references"
        ) from None
    return inlined


@lru_cache(maxsize=1_024)
def adapter(model: Any) -> Any:
    """Return what validates and writes `model`."""
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def first_fault(error: Any) -> str:
    """Say the first thing that pydantic found, and how many more there are."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    where = ".".join(str(part) for part in first["loc"]) or "as a whole"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{where}: {first['msg']}{more}"


def name_of(model: Any) -> str:
    """Name a model in a sentence."""
    return str(getattr(model, "__name__", model))


def _dumped(event: Any, model: Any, payload: Any) -> Any:
    from pydantic_core import PydanticSerializationError

    if _has_no_number(adapter(model).dump_python(payload, warnings="none")):
        raise TypeError(f"the payload of {event.name!r} holds NaN or infinity, which JSON cannot say")
    try:
        return adapter(model).dump_python(payload, mode="json", warnings="error")
    except PydanticSerializationError as error:
        fault = " ".join(str(error).split())[:500]
        raise PayloadInvalid(
            f"the payload of {event.name!r} does not fit {name_of(model)}: {fault}"
        ) from None


def _has_no_number(value: Any) -> bool:
    """Whether NaN or infinity is anywhere in it: pydantic may write them as null, which nobody meant."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(_has_no_number(each) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_no_number(each) for each in value)
    return False


def _as_plain(payload: Any) -> Any:
    """A model of another class (a second import of the contract, for one) as plain values; else what it is."""
    dump = getattr(payload, "model_dump", None)
    return payload if dump is None or isinstance(payload, type) else dump()


def _inlined(schema: Any, models: dict[str, Any], above: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, models, above) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        if name in above:
            raise RecursionError
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_inlined(models[name], models, (*above, name)), **_inlined(rest, models, above)}
    return {key: _inlined(value, models, above) for key, value in schema.items()}


def _kind(value: Any) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"


def model_instance(model: Any, text: str) -> Any:
    """Return the instance of `model` that JSON `text` describes. Raises TypeError with one sentence."""
    from pydantic import ValidationError

    try:
        return adapter(model).validate_python(read(text))
    except ValidationError as error:
        raise TypeError(f"the context does not fit {name_of(model)}: {first_fault(error)}") from None


def input_read(model: Any, text: str, name: str) -> Any:
    """Return the input of the routine `name` as its model has it; plain where it names none. Raises InputInvalid."""
    if model is None:
        return read(text)
    from pydantic import ValidationError

    try:
        return adapter(model).validate_python(read(text))
    except ValidationError as error:
        raise InputInvalid(
            f"the input of {name!r} does not fit {name_of(model)}: {first_fault(error)}"
        ) from None


def result_text(returned: Any, what: str) -> str:
    """Return what a routine returned as JSON; a model as its fields. Raises TypeError: it is not JSON."""
    if hasattr(type(returned), "model_dump"):
        if _has_no_number(returned.model_dump()):
            raise TypeError(f"{what} holds NaN or infinity, which JSON cannot say")
        returned = returned.model_dump(mode="json")
    return json_text(returned, what)


def completed(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a context with the model's defaults filled in, as a control plane does at a token's start.

    Raises ValueError with one sentence where it does not fit the model.
    """
    from pydantic import ValidationError

    try:
        instance = adapter(model).validate_python(dict(given))
    except ValidationError as error:
        raise ValueError(f"the context does not fit {name_of(model)}: {first_fault(error)}") from None
    dumped = adapter(model).dump_python(instance, mode="json", by_alias=True)
    return {**dumped, **given} if isinstance(dumped, dict) else dict(given)


def schema_text(schema: Any, key: str) -> str | None:
    """Return the JSON Schema of an answer as text: as it was given, or that of a type. Raises TypeError: neither."""
    if schema is None:
        return None
    what = f"the schema of the question {key!r}"
    if isinstance(schema, Mapping | bool):
        return json_text(schema if isinstance(schema, bool) else dict(schema), what)
    from pydantic.errors import PydanticUserError

    try:
        return json_text(adapter(schema).json_schema(), what)
    except PydanticUserError as error:
        raise TypeError(f"{what} is neither a JSON Schema nor a type that has one: {error}") from None


def fitted(schema: Any, answer: Any, key: str) -> Any:
    """Return an answer as the type that `schema` is, or as it came. Raises ValueError with one sentence."""
    if schema is None or isinstance(schema, Mapping | bool):
        return answer
    from pydantic import ValidationError

    try:
        return adapter(schema).validate_python(answer)
    except ValidationError as error:
        raise ValueError(
            f"the answer to {key!r} does not fit {name_of(schema)}: {first_fault(error)}"
        ) from None
