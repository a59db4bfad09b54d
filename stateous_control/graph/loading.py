"""From a parsed document to a `Graph`: the checks that every served graph passes (C.2), all faults at once.

Shapes, durations, guards, models, and that every name leads somewhere: one that leads nowhere would fail a
token at run time. Whether the graph makes sense is `compiler.py`'s business. It never reads files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from stateous_control.graph.checksum import checksum_of, structure_of
from stateous_control.graph.document import Faults, Graph, Machine, Path, WorkflowInvalid
from stateous_control.graph.families import check_growth, ids_per_move
from stateous_control.graph.reading import Checks, Reader, check_name, kind_of, object_at, shown

REQUIRED: Final = ("stateous", "workflow", "states", "events", "transitions", "schemas")
REQUIRED_OF_CHILD: Final = ("states", "events", "transitions")


def load(document: Any, faults: Faults | None = None) -> Graph:
    """Build the graph that a parsed document describes.

    `faults` gathers what is wrong, with lines where it knows them. Raises WorkflowInvalid if it is not empty.
    """
    faults = faults or Faults()
    machines = read_machines(document, faults)
    if faults.found:
        raise WorkflowInvalid(faults.in_order())
    return graph_of(document, machines)


def load_text(text: str) -> Graph:
    """Build a graph from the JSON text that stands on record in the database."""
    return load(json.loads(text))


def graph_of(document: dict[str, Any], machines: Mapping[str, Machine]) -> Graph:
    """Wrap machines that were read without a fault."""
    return Graph(
        workflow=document["workflow"],
        checksum=checksum_of(document),
        structure=structure_of(document),
        document=document,
        text=json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False),
        machines=machines,
        ids_per_move=ids_per_move(machines),
    )


def read_machines(document: Any, faults: Faults) -> dict[str, Machine]:
    """Read every workflow of `document`, the main one also under "".

    Whatever cannot be read goes to `faults` and is left out, so that the rest can still be looked at.
    """
    if not isinstance(document, dict):
        faults.add((), f"is {kind_of(document)}; it must be an object")
        return {}
    for key in REQUIRED:
        if key not in document:
            faults.add((), f"has no {key!r}")
    version = document.get("stateous", 1)
    if isinstance(version, bool) or version != 1 or not isinstance(version, int):
        faults.add(("stateous",), f"is {shown(version)}; this control plane reads 1")
    schemas = object_at(document, ("schemas",), faults)
    checks = Checks(schemas, faults)
    children = object_at(document, ("workflows",), faults)
    name = document.get("workflow", "")
    if "workflow" in document:
        check_name(name, ("workflow",), faults)
    main = Reader((), document, checks, frozenset(children), faults).machine(str(name))
    machines = {"": main, main.name: main}
    for child in children:
        machines.setdefault(child, _read_child(child, children[child], checks, frozenset(children), faults))
        if child == main.name:
            faults.add(("workflows", child), "has the name of the main workflow")
    check_growth(machines, faults)
    return machines


def _read_child(name: str, child: Any, checks: Checks, children: frozenset[str], faults: Faults) -> Machine:
    path: Path = ("workflows", name)
    check_name(name, path, faults)
    if not isinstance(child, dict):
        faults.add(path, f"is {kind_of(child)}; it must be an object")
        child = {}
    for key in REQUIRED_OF_CHILD:
        if key not in child:
            faults.add(path, f"has no {key!r}")
    return Reader(path, child, checks, children, faults).machine(name)
