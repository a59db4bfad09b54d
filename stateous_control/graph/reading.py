"""Reads one workflow of a document into a `Machine`; what cannot be read becomes a fault (C.2).

Called by `loading.py` for the main workflow and for each child. It goes on after a fault, so that a person
sees everything that is wrong at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final

from stateous_contract.limits import DURATION_PATTERN, DURATION_S_MAX, NAME_PATTERN

from stateous_control.graph.document import (
    END,
    OWN_EVENTS,
    START,
    Check,
    Event,
    Faults,
    Machine,
    Path,
    State,
    Transition,
)
from stateous_control.graph.guards import Guard, GuardInvalid, parse_guard
from stateous_control.graph.schema import SchemaInvalid, compile_check, defaults_of

RETRIES_MAX: Final = 1_000_000
VERSION_MAX: Final = 2**31 - 1
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


def duration_s(text: str) -> int | None:
    """Return the seconds of a duration such as ``90s`` or ``2h``, or None if it is none or too long (C.1)."""
    if re.fullmatch(DURATION_PATTERN, text, re.ASCII) is None or len(text) > 12:
        return None
    seconds = int(text[:-1]) * _SECONDS[text[-1]]
    return seconds if seconds <= DURATION_S_MAX else None


def emitted(state: str, transitions: Iterable[Transition]) -> tuple[str, ...]:
    """Return the declared events that have a transition from `state`, in the order of the transitions."""
    events = (each.event for each in transitions if each.source == state)
    return tuple(dict.fromkeys(event for event in events if event and event not in OWN_EVENTS))


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value for a sentence."""
    return _KINDS.get(type(value), type(value).__name__)


def as_object(value: Any, path: Path, faults: Faults) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one and a fault."""
    if isinstance(value, dict):
        return value
    hint = " (an empty one is {})" if value is None else ""
    faults.add(path, f"is {kind_of(value)}; it must be an object{hint}")
    return {}


def object_at(node: dict[str, Any], path: Path, faults: Faults) -> dict[str, Any]:
    """Return the object under the last key of `path` in `node`; an absent one is empty and no fault."""
    return as_object(node.get(str(path[-1]), {}), path, faults)


def check_name(name: Any, path: Path, faults: Faults) -> None:
    """Note a fault unless `name` is a name of C.1: lower case, at most 64 characters."""
    if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name, re.ASCII):
        return
    faults.add(path, f"has the name {shown(name)}; a name is a-z, then up to 63 of a-z, 0-9, _ and -")


def shown(value: Any) -> str:
    """Show a value of a file in a sentence: short ones as they are, others by kind."""
    if isinstance(value, str) and len(value) <= 80:
        return repr(value)
    if isinstance(value, (bool, int, float)) and abs(value) < 10**15:
        return str(value).lower()
    return kind_of(value)


def near(name: str, known: Iterable[str]) -> str:
    """Suggest what was meant, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


class Checks:
    """Compiles the check of each model once, and says once what is wrong with it."""

    def __init__(self, schemas: dict[str, Any], faults: Faults) -> None:
        self.schemas = schemas
        self._faults = faults
        self._compiled: dict[str, Check | None] = {}

    def of(self, model: Any, path: Path) -> Check | None:
        """Return the check of the model that is named at `path`; None if there is none to be had."""
        if not isinstance(model, str):
            self._faults.add(path, f"is {kind_of(model)}; it must be the name of a model in schemas")
            return None
        if model not in self.schemas:
            self._faults.add(path, f"names the model {shown(model)}, which schemas does not have")
            return None
        if model not in self._compiled:
            self._compiled[model] = self._compile(model)
        return self._compiled[model]

    def _compile(self, model: str) -> Check | None:
        try:
            return compile_check(model, self.schemas)
        except SchemaInvalid as error:
            self._faults.add(error.path, f"is no valid JSON Schema: {error}")
            return None


class Reader:
    """Reads one workflow of a document: its events, transitions and states, in that order."""

    def __init__(
        self, path: Path, node: dict[str, Any], checks: Checks, children: frozenset[str], faults: Faults
    ) -> None:
        self._path = path
        self._node = node
        self._checks = checks
        self._children = children
        self._faults = faults
        self._states = object_at(node, (*path, "states"), faults)
        self._events = object_at(node, (*path, "events"), faults)

    def machine(self, name: str) -> Machine:
        model, check = self._node.get("context"), None
        if model is not None:
            check = self._checks.of(model, (*self._path, "context"))
        transitions = self._read_transitions()
        grouped: dict[tuple[str, str | None], tuple[Transition, ...]] = {}
        for each in transitions:
            key = (each.source, each.event)
            grouped[key] = (*grouped.get(key, ()), each)
        return Machine(
            name=name,
            context=model if isinstance(model, str) else None,
            states={each: self._read_state(each, transitions) for each in self._states},
            events={each: self._read_event(each) for each in self._events},
            transitions=grouped,
            defaults=defaults_of(self._checks.schemas.get(model)) if isinstance(model, str) else {},
            context_check=check,
        )

    def _read_event(self, name: str) -> Event:
        path: Path = (*self._path, "events", name)
        check_name(name, path, self._faults)
        node = as_object(self._events[name], path, self._faults)
        if node.get("payload") is None:
            return Event(name)
        check = self._checks.of(node["payload"], (*path, "payload"))
        return Event(name, str(node["payload"]), check)

    def _read_transitions(self) -> list[Transition]:
        path: Path = (*self._path, "transitions")
        nodes = self._node.get("transitions", [])
        if not isinstance(nodes, list):
            self._faults.add(path, f"is {kind_of(nodes)}; it must be a list")
            return []
        found = [self._read_transition(node, position) for position, node in enumerate(nodes)]
        return [each for each in found if each is not None]

    def _read_transition(self, node: Any, position: int) -> Transition | None:
        path: Path = (*self._path, "transitions", position)
        if not isinstance(node, dict):
            self._faults.add(path, f"is {kind_of(node)}; it must be an object")
            return None
        ends = [self._end(node, path, key, forbidden) for key, forbidden in (("from", END), ("to", START))]
        source, target = ends
        event = self._on(node, path, source)
        otherwise = node.get("otherwise", False)
        if not isinstance(otherwise, bool):
            self._faults.add((*path, "otherwise"), f"is {kind_of(otherwise)}; it must be true or false")
        guard = None if node.get("when") is None else self._guard(node["when"], (*path, "when"))
        if source is None or target is None or (event is None and source != START):
            return None
        return Transition(source, target, event, guard, otherwise is True, position)

    def _end(self, node: dict[str, Any], path: Path, key: str, forbidden: str) -> str | None:
        if key not in node:
            self._faults.add(path, f"has no {key!r}")
            return None
        end = node[key]
        if not isinstance(end, str) or end == forbidden:
            what = shown(end)
            self._faults.add((*path, key), f"is {what}; it must be the name of a state")
            return None
        if end not in (START, END) and end not in self._states:
            self._faults.add((*path, key), f"names {shown(end)}, which is no state{near(end, self._states)}")
        return end

    def _on(self, node: dict[str, Any], path: Path, source: str | None) -> str | None:
        if source == START:
            if node.get("on") is not None:
                self._faults.add((*path, "on"), f"must be left out, because nothing happens before {START}")
            return None
        if "on" not in node:
            self._faults.add(path, "has no 'on'")
            return None
        event = node["on"]
        if not isinstance(event, str):
            self._faults.add((*path, "on"), f"is {kind_of(event)}; it must be the name of an event")
            return None
        if event not in self._events and event not in OWN_EVENTS:
            self._faults.add(
                (*path, "on"), f"names {shown(event)}, which is no event{near(event, self._events)}"
            )
        return event

    def _guard(self, text: Any, path: Path) -> Guard | None:
        if not isinstance(text, str):
            self._faults.add(path, f"is {kind_of(text)}; it must be the text of a guard")
            return None
        try:
            return parse_guard(text)
        except GuardInvalid as error:
            self._faults.add(path, f"is no guard: {error}")
            return None

    def _read_state(self, name: str, transitions: list[Transition]) -> State:
        path: Path = (*self._path, "states", name)
        check_name(name, path, self._faults)
        node = as_object(self._states[name], path, self._faults)
        timeout = node.get("timeout")
        timeout_s = self._optional_duration(node, "timeout", path)
        retries = self._whole(node.get("retries", 0), (*path, "retries"), 0, RETRIES_MAX)
        parallel = () if node.get("parallel") is None else self._parallel(node, path)
        join = node.get("join", "all")
        if join not in ("all", "any"):
            self._faults.add((*path, "join"), f"is {shown(join)}; it must be all or any")
        inputs = self._names(node.get("inputs", []), (*path, "inputs"))
        if node.get("emits") is not None and not parallel:
            emits = self._emits(node["emits"], (*path, "emits"))
        else:
            emits = () if parallel else emitted(name, transitions)
        return State(
            name=name,
            timeout=timeout if timeout_s is not None else None,
            timeout_s=timeout_s,
            retries=retries,
            version=self._whole(node.get("version", 1), (*path, "version"), 1, VERSION_MAX),
            backoff_s=self._optional_duration(node, "backoff", path),
            max_backoff_s=self._optional_duration(node, "max_backoff", path),
            not_retryable=self._names(node.get("not_retryable", []), (*path, "not_retryable")),
            emits=emits,
            parallel=parallel,
            join="any" if join == "any" else "all",
            inputs=inputs,
        )

    def _parallel(self, node: dict[str, Any], path: Path) -> tuple[str, ...]:
        names = self._names(node["parallel"], (*path, "parallel"))
        unknown = [name for name in names if name not in self._children]
        if not names:
            self._faults.add((*path, "parallel"), "must name at least one workflow")
        elif unknown:
            self._faults.add((*path, "parallel"), f"names {shown(unknown[0])}, which workflows does not have")
        elif len(set(names)) < len(names):
            self._faults.add((*path, "parallel"), "names a workflow twice; each runs once in a visit")
        if node.get("emits"):
            self._faults.add((*path, "emits"), "must be left out: a parallel state has no routine")
        return names

    def _emits(self, names: Any, path: Path) -> tuple[str, ...]:
        emits = self._names(names, path)
        for name in emits:
            if name not in self._events:
                self._faults.add(path, f"names {shown(name)}, which is no event{near(name, self._events)}")
        return emits

    def _names(self, names: Any, path: Path) -> tuple[str, ...]:
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
        self._faults.add(path, "must be a list of names")
        return ()

    def _duration(self, text: Any, path: Path) -> int | None:
        seconds = duration_s(text) if isinstance(text, str) else None
        if seconds is None:
            self._faults.add(
                path, f"is {shown(text)}; it must be a whole number and s, m, h or d, at most 3650d"
            )
        return seconds

    def _optional_duration(self, node: dict[str, Any], key: str, path: Path) -> int | None:
        text = node.get(key)
        return None if text is None else self._duration(text, (*path, key))

    def _whole(self, value: Any, path: Path, low: int, high: int) -> int:
        if type(value) is int and low <= value <= high:
            return value
        self._faults.add(path, f"is {shown(value)}; it must be an integer from {low} to {high}")
        return low
