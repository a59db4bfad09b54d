"""The workflow graph as values: machines, states, events, transitions, and the faults of a file.

Frozen once loaded: the rules look things up here and change nothing. It never parses, reads files or checks
anything; `loading.py` builds these values from a document, `compiler.py` says what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Raw

from stateous_control.graph.guards import Guard

START: Final = "__start__"
END: Final = "__end__"
STARTED: Final = "__started__"
TIMEOUT: Final = "timeout"
ERROR: Final = "error"
JOINED: Final = "joined"
OWN_EVENTS: Final = frozenset({STARTED, TIMEOUT, ERROR, JOINED})
"""Events that only the control plane itself makes; nobody may fire, report or schedule them."""

Path = tuple[str | int, ...]
"""Where in a document something is: keys and list positions from the top."""

Check = Callable[[Any], list[str]]
"""A compiled JSON Schema: a decoded value in, one sentence for each problem out (none: it is valid)."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a machine declares. `payload` names a model in ``schemas``; None takes no payload."""

    name: str
    payload: str | None = None
    check: Check | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class State:
    """A state of a machine.

    Args:
        timeout: the duration as written, `timeout_s` the same in seconds; both None where there is none.
        retries: failed attempts that are tried again.
        version: of the routine that new tasks of the state are for.
        backoff_s, max_backoff_s: the first wait before a retry and the longest one; None: the control plane's own.
        not_retryable: names of errors after which nothing is tried again.
        emits: events that the state's routine may report, in transition order.
        parallel: child workflows that run while a token is here. Such a state has no task and emits nothing.
        join: whether one or all of the children must end; only for `parallel`.
        inputs: context keys that are handed to the children; only for `parallel`.
    """

    name: str
    timeout: str | None = None
    timeout_s: int | None = None
    retries: int = 0
    version: int = 1
    backoff_s: int | None = None
    max_backoff_s: int | None = None
    not_retryable: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    join: Literal["all", "any"] = "all"
    inputs: tuple[str, ...] = ()

    @property
    def is_parallel(self) -> bool:
        return bool(self.parallel)


def child_name(parent: str, state: str, visit: int, workflow: str) -> str:
    """Name the token that runs `workflow` while `parent` is in this visit of its parallel `state` (B.6)."""
    return f"{parent}.{state}.{visit}.{workflow}"


@dataclass(frozen=True, slots=True)
class Transition:
    """An edge. `event` is None where `source` is START. `position` is its place in the file's list."""

    source: str
    target: str
    event: str | None
    guard: Guard | None = None
    is_otherwise: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """One workflow of a graph, the main one or a child.

    `transitions` holds the edges by source and event, in file order. `defaults` are the top-level defaults of
    the context model as JSON text, in the order of the schema.
    """

    name: str
    context: str | None
    states: Mapping[str, State]
    events: Mapping[str, Event]
    transitions: Mapping[tuple[str, str | None], tuple[Transition, ...]]
    defaults: Mapping[str, Raw] = field(default_factory=dict)
    context_check: Check | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow document that is fit to be served.

    Args:
        workflow: the main workflow's name.
        checksum: of the whole document; `structure`: the same without timeouts and retries (C.6).
        ids_per_move: the most tasks, and the most child tokens, that one event can bring; 1 without parallel states.
        document: the parsed document, never to be changed.
        text: the document as ``GET /workflow`` serves it, keys in the order of the file.
        machines: by workflow name; the main one also under "".
    """

    workflow: str
    checksum: str
    structure: str
    document: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)
    machines: Mapping[str, Machine] = field(repr=False)
    ids_per_move: int = 1

    @property
    def has_children(self) -> bool:
        """Whether a token of this graph can have children at all."""
        return len(self.machines) > 2

    @property
    def main(self) -> Machine:
        return self.machines[""]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a workflow file: a sentence, its place, and its line if known."""

    message: str
    path: Path = ()
    line: int | None = None

    def __str__(self) -> str:
        return self.message if self.line is None else f"line {self.line}: {self.message}"


class Faults:
    """Gathers what is wrong with one document, so that a person sees all of it at once.

    Args:
        line_of: gives the line of a place in the file, or None where lines are not known.
    """

    def __init__(self, line_of: Callable[[Path], int | None] = lambda _path: None) -> None:
        self.found: list[Fault] = []
        self._line_of = line_of

    def add(self, path: Path, finding: str) -> None:
        """Note once that the thing at `path` (the sentence's subject) has a fault, and what it is."""
        subject = written(path) or "the workflow"
        fault = Fault(f"{subject} {finding}", path, self._line_of(path))
        if fault not in self.found:
            self.found.append(fault)

    def touch(self, path: Path) -> bool:
        """Say whether something at `path` or below it has a fault already."""
        return any(fault.path[: len(path)] == path for fault in self.found)

    def in_order(self) -> list[Fault]:
        """The faults by line; those without a line keep their order and come last."""
        return sorted(self.found, key=lambda fault: fault.line if fault.line is not None else 1 << 62)


class WorkflowInvalid(Exception):
    """A workflow file or document cannot be served. `faults` holds every reason found, each one sentence."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults


def written(path: Path) -> str:
    """Write a path as people do: ``transitions[3].when``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
