"""A workflow document as the scaffold reads it: its workflows with their states, events and models. Pure.

It checks only what a contract needs; whether a workflow makes sense is the control plane's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stateous_contract.limits import NAME_PATTERN
from stateous_contract.reliance import Reliance, reliance_of

_KEYS = ("stateous", "workflow", "states", "events", "transitions", "schemas")


class DocumentInvalid(Exception):
    """The document is no workflow. The text is one sentence without the document's name."""


@dataclass(frozen=True)
class Workflow:
    """One workflow of a document. `name` is None for the main one: its states are claimed by bare names."""

    name: str | None
    context: str | None
    states: dict[str, tuple[str, ...]]
    events: dict[str, str | None]

    def claimed_as(self, state: str) -> str:
        """Return the name under which a supervisor claims `state`."""
        return state if self.name is None else f"{self.name}/{state}"


@dataclass(frozen=True)
class Document:
    """A whole document. `workflows` begins with the main one. `reliance` is what the routines of its states rely on."""

    name: str
    workflows: tuple[Workflow, ...]
    schemas: dict[str, Any]
    reliance: Reliance = field(default_factory=dict)


def read_document(document: Any) -> Document:
    """Take a parsed workflow document apart. Raises DocumentInvalid."""
    if not isinstance(document, Mapping):
        raise DocumentInvalid(
            f"it holds {_kind(document)}; a workflow is an object with the keys {', '.join(_KEYS)}"
        )
    missing = [key for key in _KEYS if key not in document]
    if missing:
        raise DocumentInvalid(f"it has no key {missing[0]!r}; a workflow has {', '.join(_KEYS)}")
    if document["stateous"] is True or document["stateous"] != 1:
        raise DocumentInvalid(f"'stateous' is {document['stateous']!r}; this supervisor knows format 1")
    if not isinstance(document["workflow"], str) or not re.fullmatch(NAME_PATTERN, document["workflow"]):
        raise DocumentInvalid(f"'workflow' is {document['workflow']!r}; it must be a name such as 'sdlc'")
    main = _workflow(None, document)
    children = [_workflow(name, child) for name, child in _objects(document, "workflows", "the document")]
    schemas = dict(_mapping(document, "schemas", "the document"))
    for workflow in (main, *children):
        _check_models(workflow, schemas)
    try:
        reliance = reliance_of(document)
    except ValueError:  # a number that JSON does not have: no checksum can be taken of it either
        reliance = {}
    return Document(document["workflow"], (main, *children), schemas, reliance)


def _check_models(workflow: Workflow, schemas: Mapping[str, Any]) -> None:
    for event, model in workflow.events.items():
        if model is not None and model not in schemas:
            raise DocumentInvalid(
                f"event {event!r} has the payload {model!r}, which is not among the schemas"
            )
    if workflow.context is not None and workflow.context not in schemas:
        raise DocumentInvalid(f"the context is {workflow.context!r}, which is not among the schemas")


def _workflow(name: str | None, source: Mapping[str, Any]) -> Workflow:
    where = "the document" if name is None else f"workflow {name!r}"
    events = {event: _payload(event, facts) for event, facts in _objects(source, "events", where)}
    states: dict[str, tuple[str, ...]] = {}
    for state, facts in _objects(source, "states", where):
        if facts.get("parallel") is None:
            states[state] = _emits(state, facts, events, source.get("transitions"))
    context = source.get("context")
    if context is not None and not isinstance(context, str):
        raise DocumentInvalid(f"'context' of {where} is {_kind(context)}; it must name a model")
    return Workflow(name, context, states, events)


def _payload(event: str, facts: Mapping[str, Any]) -> str | None:
    payload = facts.get("payload")
    if payload is not None and not isinstance(payload, str):
        raise DocumentInvalid(f"'payload' of event {event!r} is {_kind(payload)}; it must name a model")
    return payload


def _emits(state: str, facts: Mapping[str, Any], events: Mapping[str, Any], moves: Any) -> tuple[str, ...]:
    """What the state says that it emits; where it says nothing, the declared events that lead out of it."""
    emits = facts.get("emits")
    if emits is None:
        leading = (
            [each["on"] for each in moves if _leads_from(each, state)] if isinstance(moves, list) else []
        )
        emits = list(dict.fromkeys(event for event in leading if event in events))
    if not isinstance(emits, list):
        raise DocumentInvalid(f"'emits' of state {state!r} is {_kind(emits)}; it must be a list of events")
    unknown = [event for event in emits if not isinstance(event, str) or event not in events]
    if unknown:
        raise DocumentInvalid(f"state {state!r} emits {unknown[0]!r}, which is not among the events")
    return tuple(emits)


def _leads_from(move: Any, state: str) -> bool:
    return isinstance(move, Mapping) and move.get("from") == state and isinstance(move.get("on"), str)


def _objects(source: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, facts in _mapping(source, key, where).items():
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise DocumentInvalid(
                f"{key!r} of {where} has the name {name!r}; names are lower-case letters, digits, '-' and '_'"
            )
        if not isinstance(facts, Mapping):
            raise DocumentInvalid(f"{name!r} in {key!r} of {where} is {_kind(facts)}; it must be an object")
        yield name, facts


def _mapping(source: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = source.get(key, {})
    if not isinstance(found, Mapping):
        raise DocumentInvalid(f"{key!r} of {where} is {_kind(found)}; it must be an object")
    return found


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null" if value is None else "something else")
