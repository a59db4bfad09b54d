"""What the guards of a workflow read, and whether those of one state and event leave exactly one way (C.3).

Called by `compiler.py` for each workflow of a document. A group of transitions that has a fault already is left
alone, so that one mistake makes one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from stateous_control.graph.document import JOINED, OWN_EVENTS, START, Faults, Machine, Path, Transition
from stateous_control.graph.exclusion import overlap
from stateous_control.graph.expressions import Accessor
from stateous_control.graph.guards import Guard
from stateous_control.graph.models import ANYTHING, Domain, Model, model_of
from stateous_control.graph.reading import near

_NO_FIELDS: Final = Model({}, is_open=False)
_UNKNOWN: Final = Model({}, is_open=True)  # a model that is missing is a fault already
_BRANCHES: Final = Model({"branches": Domain(frozenset({"array"}))}, is_open=False)


def check_guards(
    machine: Machine, path: Path, schemas: Mapping[str, Any], faults: Faults, warnings: Faults
) -> None:
    """Find the faults and warnings of a workflow's guards. `schemas` are the models of the document."""
    checking = _Checking(machine, path, schemas, faults, warnings)
    for (source, event), group in machine.transitions.items():
        if not any(faults.touch(checking.place(each)) for each in group):
            checking.check_group(source, event, group)


class _Checking:
    def __init__(
        self, machine: Machine, path: Path, schemas: Mapping[str, Any], faults: Faults, warnings: Faults
    ) -> None:
        self._machine = machine
        self._path = path
        self._schemas = schemas
        self._faults = faults
        self._warnings = warnings
        self._context = self._model(machine.context)

    def place(self, transition: Transition) -> Path:
        return (*self._path, "transitions", transition.position)

    def check_group(self, source: str, event: str | None, group: tuple[Transition, ...]) -> None:
        payload = self._payload(event)
        for each in group:
            if each.guard is not None:
                self._check_reads(each, each.guard, payload)
        self._check_fallback(source, event, group)
        guarded = [(each, each.guard) for each in group if each.guard is not None]
        if any(self._faults.touch(self.place(each)) for each in group):
            return
        for (first, one), (second, other) in combinations(guarded, 2):
            found = overlap(one.expression, other.expression, lambda each: self._domain(each, payload, event))
            if found is not None:
                self._warn_of_overlap(first, second, found.witness)

    def _warn_of_overlap(self, first: Transition, second: Transition, witness: str | None) -> None:
        others = f"the guard of transitions[{first.position}]"
        finding = (
            f"holds together with {others} {witness}"
            if witness
            else f"may hold together with {others}; that they exclude each other cannot be shown"
        )
        self._warnings.add((*self.place(second), "when"), f"{finding}. If both hold at once, the token fails")

    def _check_fallback(self, source: str, event: str | None, group: tuple[Transition, ...]) -> None:
        what = f"{event!r} from {source!r}" if event else START
        unguarded = [each for each in group if each.guard is None]
        for each in unguarded[1:]:
            first = unguarded[0].position
            self._faults.add(
                self.place(each),
                f"is a second way without a guard for {what}, beside transitions[{first}]; give one of them a guard",
            )
        has_guards = len(unguarded) < len(group)
        if has_guards and unguarded and not unguarded[0].is_otherwise:
            self._faults.add(
                self.place(unguarded[0]),
                f"has no guard, but stands beside guarded ones for {what}; say otherwise: true if it is for the rest",
            )
        for each in group:
            if each.guard is not None and each.is_otherwise:
                self._faults.add(
                    self.place(each), "has a guard and is the otherwise; it can only be one of them"
                )

    def _check_reads(self, transition: Transition, guard: Guard, payload: Model) -> None:
        place: Path = (*self.place(transition), "when")
        reads = guard.reads
        if transition.source == START and (reads.payload or reads.counts or reads.branches):
            self._faults.add(place, f"reads more than the context, and at {START} there is nothing else yet")
            return
        for key in sorted(reads.context):
            if not self._context.has(key):
                self._faults.add(
                    place, f"reads ctx[{key!r}], {self._lacks('context', self._machine.context)}"
                )
        for field in sorted(reads.payload):
            if not payload.has(field):
                event = self._machine.events.get(transition.event or "")
                lacks = self._lacks("payload", event.payload if event else None)
                self._faults.add(place, f"reads payload.{field}, {lacks}")
        for event_name in sorted(reads.counts):
            if event_name not in self._machine.events and event_name not in OWN_EVENTS:
                hint = near(event_name, self._machine.events)
                self._faults.add(place, f"counts {event_name!r}, which is no event{hint}")

    def _lacks(self, what: str, model: str | None) -> str:
        if model is not None:
            return f"which the {what} model {model!r} does not declare"
        if what == "context":
            return "but the workflow has no context model that declares it"
        return "but the event has no payload"

    def _model(self, name: str | None) -> Model:
        if name is None:
            return _NO_FIELDS
        return model_of(name, self._schemas) if name in self._schemas else _UNKNOWN

    def _payload(self, event: str | None) -> Model:
        if event == JOINED:
            return _BRANCHES
        declared = self._machine.events.get(event or "")
        return self._model(declared.payload if declared else None)

    def _domain(self, accessor: Accessor, payload: Model, event: str | None) -> Domain:
        match accessor.kind:
            case "context":
                return self._context.domain(accessor.name)
            case "payload":
                return payload.domain(accessor.name)
            case "count":
                # The event that is being routed counts itself already.
                return Domain(frozenset({"integer"}), least=1 if accessor.name == event else 0)
            case "branch":
                return ANYTHING
