"""Parallel states: what a file must say about them and their children, and how much they can bring at once (C.3).

`loading.py` asks for what would never end, `compiler.py` for the rest. It looks at whole documents, because a child
workflow stands beside the main one and any workflow may run it.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stateous_control.graph.document import (
    ERROR,
    JOINED,
    START,
    Faults,
    Machine,
    Path,
    State,
    child_name,
)
from stateous_control.graph.models import model_of, required_of

TOKEN_CHARS_MAX: Final = 128
TOP_CHARS: Final = 64
CHILDREN_MAX: Final = 1_000
_VISIT: Final = 999
_Machines = Mapping[str, Machine]


def check_growth(machines: _Machines, faults: Faults) -> None:
    """Note a fault for each parallel state that leads back to its own workflow, or starts too many at once."""
    found = list(_parallel_states(machines))
    is_endless = False
    for path, machine, state in found:
        if _is_recursive(machines, machine, state):
            finding = f"leads back to the workflow {machine.name!r}, so that entering it would never end"
            faults.add((*path, "parallel"), finding)
            is_endless = True
    widths: dict[str, int] = {}
    for path, _, state in [] if is_endless else found:
        width = _width(machines, state, widths)
        if width > CHILDREN_MAX:
            faults.add(
                (*path, "parallel"), f"starts {width} tokens at once; at most {CHILDREN_MAX} are started"
            )


def ids_per_move(machines: _Machines) -> int:
    """Return the most tasks, or child tokens, that one event can make; the workflows must have no fault.

    An event of the innermost child may end its parent's state, and that one its parent's; each may then enter a
    parallel state.
    """
    widths: dict[str, int] = {}
    widest = max((_width(machines, state, widths) for _, _, state in _parallel_states(machines)), default=0)
    depths: dict[str, int] = {}
    deepest = max(_depth(machines, machine, depths) for machine in machines.values())
    return (deepest + 1) * max(1, widest)


def check_families(machines: _Machines, schemas: Mapping[str, Any], faults: Faults, warnings: Faults) -> None:
    """Find the faults and warnings of parallel states and of the workflows that they run."""
    found = list(_parallel_states(machines))
    for path, machine, state in found:
        _check_ways_out(machine, state, path, faults)
        if all(name in machines for name in state.parallel):
            _Handing(machine, state, (*path, "inputs"), schemas, faults, warnings).check(machines)
    if not any(_is_recursive(machines, machine, state) for _, machine, state in found):
        _check_names_fit(machines, faults)
    used = {name for _, _, state in found for name in state.parallel}
    for name, machine in machines.items():
        if machine is not machines[""]:
            if name not in used:
                warnings.add(("workflows", name), "is run by no parallel state")
            _check_child(machines[""], machine, faults)


def _check_child(main: Machine, machine: Machine, faults: Faults) -> None:
    path: Path = ("workflows", machine.name)
    _check_identifier(main, machine.name, path, faults)
    starts = machine.transitions.get((START, None), ())
    if starts and all(each.guard is not None for each in starts):
        faults.add(
            (*path, "transitions"),
            f"has no way from {START} that is always open; a child must start whatever it is handed, so let one "
            "have no guard",
        )


def _parallel_states(machines: _Machines) -> Iterator[tuple[Path, Machine, State]]:
    for name, machine in machines.items():
        if name == machines[""].name and machine is machines[""]:
            continue
        base: Path = () if name == "" else ("workflows", name)
        for state in machine.states.values():
            if state.is_parallel:
                yield (*base, "states", state.name), machine, state


def _is_recursive(machines: _Machines, machine: Machine, state: State) -> bool:
    return machine.name in _below(machines, state, set())


def _below(machines: _Machines, state: State, seen: set[str]) -> set[str]:
    """Every workflow that runs, at any depth, while a token is in `state`."""
    for name in state.parallel:
        if name in machines and name not in seen:
            seen.add(name)
            for inner in machines[name].states.values():
                _below(machines, inner, seen)
    return seen


def _width(machines: _Machines, state: State, known: dict[str, int]) -> int:
    """The most child tokens that entering `state` starts: a child may itself begin in a parallel state."""
    for name in state.parallel:
        if name in machines and name not in known:
            known[name] = 1 + max(
                (_width(machines, each, known) for each in _first(machines[name])), default=0
            )
    return sum(known.get(name, 1) for name in state.parallel)


def _first(machine: Machine) -> Iterator[State]:
    for each in machine.transitions.get((START, None), ()):
        if each.target in machine.states:
            yield machine.states[each.target]


def _depth(machines: _Machines, machine: Machine, known: dict[str, int]) -> int:
    """How many generations of children a token of `machine` can have."""
    if machine.name not in known:
        inner = (machines[name] for state in machine.states.values() for name in state.parallel)
        known[machine.name] = max((1 + _depth(machines, child, known) for child in inner), default=0)
    return known[machine.name]


def _check_ways_out(machine: Machine, state: State, path: Path, faults: Faults) -> None:
    if (state.name, JOINED) not in machine.transitions:
        faults.add(path, "is a parallel state and has no transition on 'joined'; a token could not leave it")
    if (state.name, ERROR) in machine.transitions:
        faults.add(
            path, "is a parallel state and has a transition on 'error'; it has no task of its own that fails"
        )
    if state.retries:
        faults.add((*path, "retries"), "must be left out: a parallel state has no task of its own")


class _Handing:
    """What one parallel state hands to its children, against what their contexts must have."""

    def __init__(  # noqa: PLR0917 - as they are named
        self,
        machine: Machine,
        state: State,
        path: Path,
        schemas: Mapping[str, Any],
        faults: Faults,
        warnings: Faults,
    ) -> None:
        self._state = state
        self._path = path
        self._schemas = schemas
        self._faults = faults
        self._warnings = warnings
        self._model = model = machine.context if machine.context in schemas else None
        self._context = None if model is None else model_of(model, schemas)
        self._certain = set() if model is None else required_of(model, schemas) | machine.defaults.keys()

    def check(self, machines: _Machines) -> None:
        for key in self._state.inputs:
            if self._context is not None and not self._context.has(key):
                finding = f"names {key!r}, which the context model {self._model!r} does not declare"
                self._faults.add(self._path, finding)
        for name in self._state.parallel:
            model, defaults = machines[name].context, machines[name].defaults
            if model in self._schemas and model is not None:
                for key in sorted(required_of(model, self._schemas) - defaults.keys()):
                    self._check_handed(key, name)

    def _check_handed(self, key: str, child: str) -> None:
        if key not in self._state.inputs:
            self._faults.add(self._path, f"lacks {key!r}, which the context of {child!r} must have")
        elif self._context is not None and key not in self._certain:
            self._warnings.add(
                self._path,
                f"names {key!r}, which a context may lack; then {child!r} cannot start, and nothing enters the state",
            )


def _check_names_fit(machines: _Machines, faults: Faults) -> None:
    """A child's token id holds its parent's; one that grows too long would keep a token out of the state."""
    budget = TOKEN_CHARS_MAX - TOP_CHARS
    known: dict[str, int] = {}
    for state in machines[""].states.values():
        length = _name_chars(machines, state, known)
        if length > budget:
            faults.add(
                ("states", state.name),
                f"leads to token ids that are {length - budget} characters too long: the names of states and "
                f"workflows in them may take {budget}, so that an id of {TOP_CHARS} fits before them",
            )


def _name_chars(machines: _Machines, state: State, known: dict[str, int]) -> int:
    """How many characters the longest token id under `state` has after that of the token which is in it."""
    longest = 0
    for name in state.parallel:
        if name in machines and name not in known:
            inner = machines[name].states.values()
            known[name] = max((_name_chars(machines, each, known) for each in inner), default=0)
        longest = max(longest, len(child_name("", state.name, _VISIT, name)) + known.get(name, 0))
    return longest


def _check_identifier(main: Machine, name: str, path: Path, faults: Faults) -> None:
    """In a supervisor's contract a child workflow's name stands beside the main workflow's states and events."""
    identifier = name.replace("-", "_")
    if keyword.iskeyword(identifier):
        faults.add(path, "is a keyword of Python; routines could not name it")
    for what, names in (
        ("state", [state.name for state in main.states.values() if not state.is_parallel]),
        ("event", list(main.events)),
    ):
        clash = next((each for each in names if each.replace("-", "_") == identifier), None)
        if clash is not None:
            faults.add(path, f"is the same Python name as the {what} {clash!r}; give it another name")
