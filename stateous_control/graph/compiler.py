"""Compiles a workflow file: every fault and warning at once, with lines for YAML, and the document to serve.

The input has the keys of the wire's graph document (C.1), in YAML or JSON. One thing may be left out and is filled in
before the checksum is taken: the `emits` of a state (`stateous_contract.canonical.completed`). Nothing else is
added; in particular ``stateous: 1`` must be there, so that a later format is never misread. So a graph compiled
elsewhere keeps its checksum, and a YAML file has that of its JSON. Reads no file: the caller brings the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stateous_contract.canonical import completed

from stateous_control.graph.document import Fault, Faults, Graph, Machine, Path, WorkflowInvalid
from stateous_control.graph.families import check_families
from stateous_control.graph.guarding import check_guards
from stateous_control.graph.loading import graph_of, load, read_machines
from stateous_control.graph.paths import check_paths
from stateous_control.graph.schema import SchemaInvalid, compile_check
from stateous_control.graph.source import Source, read_source

_TOP: Final = ("stateous", "workflow", "context", "states", "events", "transitions", "workflows", "schemas")
_MACHINE: Final = ("context", "states", "events", "transitions")
_STATE: Final = (
    "timeout",
    "retries",
    "version",
    "backoff",
    "max_backoff",
    "not_retryable",
    "emits",
    "parallel",
    "join",
    "inputs",
)
_TRANSITION: Final = ("from", "to", "on", "when", "otherwise")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling found. `graph` is None when there are faults; warnings never stop anything."""

    graph: Graph | None
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


def compile_file(data: bytes, *, name: str) -> Compiled:
    """Compile the bytes of a workflow file; `name` tells YAML from JSON by its ending. Never raises."""
    try:
        source = read_source(data, name=name)
    except WorkflowInvalid as error:
        return Compiled(None, tuple(error.faults))
    return compile_workflow(source)


def compile_workflow(source: Source) -> Compiled:
    """Check everything that C.2 and C.3 ask of a workflow, and warn of what is legal but seldom meant."""
    document = completed(source.document)
    faults, warnings = Faults(source.line_of), Faults(source.line_of)
    machines = read_machines(document, faults)
    if isinstance(document, dict):
        schemas = document.get("schemas")
        models = schemas if isinstance(schemas, dict) else {}
        _check_models(models, faults)
        for path, machine in _places(machines):
            check_paths(machine, path, faults, warnings)
            check_guards(machine, path, models, faults, warnings)
        check_families(machines, models, faults, warnings)
    graph = None if faults.found else graph_of(document, machines)
    return Compiled(graph, tuple(faults.in_order()), tuple(warnings.in_order()))


def load_file(data: bytes, *, name: str) -> Graph:
    """Read a workflow file to serve it: only what C.2 asks, so that a graph compiled elsewhere is taken as it is.

    Raises WorkflowInvalid with every fault.
    """
    source = read_source(data, name=name)
    return load(completed(source.document), Faults(source.line_of))


def dump(document: Mapping[str, Any]) -> str:
    """Write a graph document as a file: two spaces, keys in the order of C.1, models by name, a last newline."""
    schemas = document.get("schemas")
    ordered = _ordered(document, _TOP) | _machine(document)
    if isinstance(document.get("workflows"), dict):
        ordered["workflows"] = {
            name: _ordered(child, _MACHINE) | _machine(child) for name, child in document["workflows"].items()
        }
    if isinstance(schemas, dict):
        ordered["schemas"] = dict(sorted(schemas.items()))
    return json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _machine(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "states": {name: _ordered(state, _STATE) for name, state in node["states"].items()},
        "events": node["events"],
        "transitions": [_ordered(each, _TRANSITION) for each in node["transitions"]],
    }


def _ordered(node: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Put the known keys first, in their order; the others keep theirs."""
    return {key: node[key] for key in keys if key in node} | dict(node)


def _places(machines: Mapping[str, Machine]) -> Iterable[tuple[Path, Machine]]:
    main = machines[""]
    for name, machine in machines.items():
        if name == "":
            yield (), main
        elif machine is not main:
            yield ("workflows", name), machine


def _check_models(schemas: Mapping[str, Any], faults: Faults) -> None:
    """Check the models that nothing refers to as well; those in use were checked when they were read."""
    for model in schemas:
        try:
            compile_check(model, schemas)
        except SchemaInvalid as error:
            faults.add(error.path, f"is no valid JSON Schema: {error}")
