"""Children of parallel states: whether they can start, which names they would get, what they tell when they end (B.6).

Looks only; `moves.py` starts and ends them. A token enters a parallel state only if all of its children can start, so
every way of choosing a transition goes through `choose`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.codes import Refused
from stateous_contract.limits import TOKEN_PATTERN

from stateous_control.graph.document import END, START, Graph, Machine, State, Transition, child_name
from stateous_control.graph.routing import Unrouted, route
from stateous_control.graph.routing import start as route_start
from stateous_control.graph.schema import check_context, with_defaults
from stateous_control.rules.book import Book, Token

_TOKEN: Final = re.compile(TOKEN_PATTERN, re.ASCII)


@dataclass(frozen=True, slots=True)
class Birth:
    """A child that can start: its name, its workflow, its context with defaults, and its first transition."""

    name: str
    machine: Machine
    context: dict[str, Raw]
    transition: Transition


class CannotStart(Exception):
    """A child cannot start, so nothing enters the state. The sentence says which and why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def choose(
    book: Book, token: Token, event: str, payload: Raw | None = None, *, context: dict[str, Raw] | None = None
) -> Transition | Unrouted:
    """Choose the transition that `event` takes the token along, if what it leads to can be entered (B.3).

    `context` is the token's with a report's writes merged in; None takes it as it is.
    """
    machine = book.machine(token)
    if context is None:
        context = token.context
    found = route(machine, token.state, event, context=context, payload=payload, counts=token.events)
    if isinstance(found, Unrouted) or found.target == END:
        return found
    state = machine.states[found.target]
    if not state.is_parallel:
        return found
    try:
        check_births(book, token, state, context)
    except CannotStart as cannot:
        return Unrouted(f"{event!r} leads to {found.target!r}, and {cannot.sentence}")
    return found


def check_births(book: Book, token: Token, state: State, context: Mapping[str, Raw]) -> None:
    """Raise CannotStart unless every child of the parallel `state` can start, and theirs in turn."""
    visit = token.visits.get(state.name, 0) + 1
    graph = book.graphs[token.graph]
    _check(book, graph, token.owner, births(graph, token.name, state, visit, context), token.name)


def _check(book: Book, graph: Graph, owner: str, births_: Iterable[Birth], parent: str) -> None:
    for birth in births_:
        place = (owner, birth.name.lower())
        if _TOKEN.fullmatch(birth.name) is None:
            raise CannotStart(f"the id of a child of {parent!r} would be {len(birth.name)} characters long")
        if place in book.names_taken or place in book.named:
            raise CannotStart(f"the token id {birth.name!r} is taken")
        inner = birth.machine.states[birth.transition.target]
        if inner.is_parallel:
            _check(book, graph, owner, births(graph, birth.name, inner, 1, birth.context), birth.name)


def births(
    graph: Graph, parent: str, state: State, visit: int, context: Mapping[str, Raw]
) -> Iterator[Birth]:
    """Yield the children that a token called `parent` gets in this visit of `state`. Raises CannotStart."""
    handed = {key: context[key] for key in state.inputs if key in context}
    for workflow in state.parallel:
        machine = graph.machines[workflow]
        values = with_defaults(machine, handed)
        try:
            check_context(machine, values)
        except Refused as refused:
            raise CannotStart(f"the child workflow {workflow!r} cannot start: {refused.sentence}") from None
        found = route_start(machine, values)
        if isinstance(found, Unrouted):
            raise CannotStart(f"the child workflow {workflow!r} cannot start: {found.sentence}")
        if found.target == END:
            raise CannotStart(f"the child workflow {workflow!r} leads from {START} straight to {END}")
        yield Birth(child_name(parent, state.name, visit, workflow), machine, values, found)


def names_ahead(book: Book) -> set[tuple[str, str]]:
    """Return the names, by owner and in lower case, that children of the tokens in the book may get by what is next.

    A token takes one step for what is asked of it and one for each event that is held.
    """
    found: set[tuple[str, str]] = set()
    for token in book.tokens.values():
        graph = book.graphs.get(token.graph)  # an anchor has none
        if graph is None or not graph.has_children or token.status.is_final:
            continue
        machine, steps = book.machine(token), 1 + len(book.held_of(token))
        near = _parallel_after(machine, token.state)
        states = near if steps == 1 else [state for state in machine.states.values() if state.is_parallel]
        for state in states:
            begun = token.visits.get(state.name, 0)
            for visit in range(begun + 1, begun + 1 + steps):
                found |= {(token.owner, name.lower()) for name in _names(graph, token.name, state, visit)}
    return found


def names_at_start(graph: Graph, name: str) -> set[str]:
    """Return the names, in lower case, that the children of a new token called `name` may get at once."""
    if not graph.has_children:
        return set()
    states = _parallel_after(graph.main, START)
    return {each.lower() for state in states for each in _names(graph, name, state, 1)}


def _parallel_after(machine: Machine, state: str) -> list[State]:
    targets = dict.fromkeys(
        each.target for (source, _), group in machine.transitions.items() if source == state for each in group
    )
    return [
        machine.states[target] for target in targets if target != END and machine.states[target].is_parallel
    ]


def _names(graph: Graph, parent: str, state: State, visit: int) -> Iterator[str]:
    for workflow in state.parallel:
        name = child_name(parent, state.name, visit, workflow)
        if _TOKEN.fullmatch(name) is None:
            continue
        yield name
        for inner in _parallel_after(graph.machines[workflow], START):
            yield from _names(graph, name, inner, 1)


def joined(book: Book, parent: Token, child: Token) -> Raw | None:
    """Return the payload of ``joined`` where `child` was the one that it waited for, else None.

    Each branch tells the state that its child was last in and the payload that the child entered it with.
    """
    state = book.machine(parent).states[parent.state]
    ended = [child] if state.join == "any" else book.children(parent)
    if not all(each.status.is_final for each in ended):
        return None
    by_workflow = {each.workflow: each for each in ended}
    told = [_branch(by_workflow[name]) for name in state.parallel if name in by_workflow]
    return Raw(msgspec.json.encode({"branches": told}))


def _branch(child: Token) -> dict[str, Any]:
    return {
        "workflow": child.workflow,
        "token": child.name,
        "status": child.status.value,
        "final": child.state,
        "payload": child.entered_payload,
    }
