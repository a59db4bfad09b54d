"""Where tokens of a workflow can go: what leads nowhere, what nothing leads to, and what never happens.

Called by `compiler.py` for each workflow of a document. Names that lead nowhere are `reading.py`'s finding.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping

from stateous_control.graph.document import (
    END,
    ERROR,
    JOINED,
    OWN_EVENTS,
    START,
    TIMEOUT,
    Faults,
    Machine,
    Path,
    State,
    Transition,
)


def check_paths(machine: Machine, path: Path, faults: Faults, warnings: Faults) -> None:
    """Find the faults and warnings that the shape of the graph shows, without looking into guards."""
    _check_names(machine.states, (*path, "states"), faults)
    _check_names(machine.events, (*path, "events"), faults)
    for name in machine.events:
        if name in OWN_EVENTS:
            faults.add(
                (*path, "events", name), "is an event of the control plane's own; give it another name"
            )
    transitions = [each for group in machine.transitions.values() for each in group]
    _check_ways(machine, transitions, path, faults)
    _check_emits(machine, path, faults)
    for state in machine.states.values():
        _warn_of_ends(machine, state, (*path, "states", state.name), warnings)
    _warn_of_idle(machine, transitions, path, warnings)


def _check_names(names: Iterable[str], path: Path, faults: Faults) -> None:
    """Each name becomes a Python identifier in a supervisor's contract, and there it must be one of its own."""
    taken: dict[str, str] = {}
    for name in names:
        identifier = name.replace("-", "_")
        if keyword.iskeyword(identifier):
            faults.add((*path, name), "is a keyword of Python; routines could not name it")
        elif identifier in taken:
            faults.add(
                (*path, name), f"is the same Python name as {taken[identifier]!r}; give it another name"
            )
        taken.setdefault(identifier, name)


def _check_ways(machine: Machine, transitions: list[Transition], path: Path, faults: Faults) -> None:
    if not machine.states:
        if not faults.touch((*path, "states")):
            faults.add((*path, "states"), "has no state")
        return
    for each in transitions:
        if each.source == START and each.target == END:
            faults.add(
                _place(path, each),
                f"goes from {START} straight to {END}; at least one state must lie between",
            )
    if not any(each.source == START for each in transitions):
        faults.add((*path, "transitions"), f"has none from {START}")
        return
    ahead = _edges((each.source, each.target) for each in transitions)
    back = _edges((each.target, each.source) for each in transitions)
    reached, ending = _reach(START, ahead), _reach(END, back)
    if START not in ending:
        faults.add((*path, "transitions"), f"has no way from {START} to {END}")
    for name in machine.states:
        if name not in reached:
            faults.add((*path, "states", name), f"cannot be reached from {START}")
        elif name not in ending and START in ending:
            faults.add(
                (*path, "states", name), f"has no way to {END}; a token that enters it could never end"
            )


def _edges(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for here, there in pairs:
        edges.setdefault(here, set()).add(there)
    return edges


def _reach(begin: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached, ahead = {begin}, [begin]
    while ahead:
        fresh = edges.get(ahead.pop(), set()) - reached
        reached |= fresh
        ahead += fresh
    return reached


def _check_emits(machine: Machine, path: Path, faults: Faults) -> None:
    for state in machine.states.values():
        for event in state.emits:
            if event in machine.events and (state.name, event) not in machine.transitions:
                place: Path = (*path, "states", state.name, "emits")
                faults.add(place, f"names {event!r}, which no transition takes from {state.name!r}")


def _warn_of_ends(machine: Machine, state: State, path: Path, warnings: Faults) -> None:
    has_timeout = (state.name, TIMEOUT) in machine.transitions
    if state.timeout is not None and not has_timeout:
        warnings.add(
            path,
            f"has a timeout of {state.timeout} and no transition on 'timeout': a token whose time runs out here "
            "fails; the time runs from entry, so waiting in the queue for a supervisor counts",
        )
    if not state.is_parallel and (state.name, ERROR) not in machine.transitions:
        tries = "its last attempt" if state.retries else "its only attempt (retries is 0)"
        warnings.add(path, f"has no transition on 'error': a token fails when {tries} fails here")


def _warn_of_idle(machine: Machine, transitions: list[Transition], path: Path, warnings: Faults) -> None:
    """Warn of what never happens: events that no transition takes, own events that a state never has."""
    taken = {each.event for each in transitions}
    for name in machine.events:
        if name not in taken:
            warnings.add((*path, "events", name), "is taken by no transition")
    for each in transitions:
        state = machine.states.get(each.source)
        if state is None:
            continue
        if each.event == TIMEOUT and state.timeout is None:
            warnings.add(_place(path, each), f"never happens: {state.name!r} has no timeout")
        if each.event == JOINED and not state.is_parallel:
            warnings.add(_place(path, each), f"never happens: {state.name!r} is no parallel state")


def _place(path: Path, transition: Transition) -> Path:
    return (*path, "transitions", transition.position)
