"""Which transition an event takes (B.3). Pure: everything that decides is an argument.

A refusal is a value, because it is an ordinary answer; what it means for the token is the caller's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stateous_control.graph.document import JOINED, START, Machine, Transition
from stateous_control.graph.values import decode, decode_keys

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Unrouted:
    """No transition can be taken. `is_ambiguous`: several guards hold at once, which fails the token."""

    sentence: str
    is_ambiguous: bool = False


def route(
    machine: Machine,
    state: str,
    event: str,
    *,
    context: Mapping[str, Any],
    payload: Any = None,
    counts: Mapping[str, int] = _NOTHING,
) -> Transition | Unrouted:
    """Choose the transition that `event` takes out of `state`.

    Args:
        machine: the token's workflow.
        state: where the token is.
        event: the name of the event.
        context: the token's context with the report's writes merged in; `Raw` texts or decoded values by key.
        payload: the event's payload, `Raw` or decoded; None is none.
        counts: how often the token has accepted each event so far; the one being routed is added here.
    """
    candidates = machine.transitions.get((state, event))
    if not candidates:
        return Unrouted(f"no transition takes {event!r} from {state!r}")
    if len(candidates) == 1 and candidates[0].guard is None:
        return candidates[0]
    return _choose(candidates, context, payload, counts)


def start(machine: Machine, context: Mapping[str, Any]) -> Transition | Unrouted:
    """Choose the transition out of START, by the context alone (defaults filled in)."""
    candidates = machine.transitions.get((START, None), ())
    if not candidates:
        return Unrouted(f"the workflow {machine.name!r} has no transition from {START}")
    return _choose(candidates, context, None, _NOTHING)


def _choose(
    candidates: Sequence[Transition], context: Mapping[str, Any], payload: Any, counts: Mapping[str, int]
) -> Transition | Unrouted:
    event = candidates[0].event or START
    guarded = [(candidate, candidate.guard) for candidate in candidates if candidate.guard is not None]
    fields, has_counted = _NOTHING, False
    for _, guard in guarded:
        reads = guard.reads
        if (reads.payload or reads.branches) and fields is _NOTHING:
            fields = decode(payload) or _NOTHING
        if event in reads.counts and not has_counted:
            counts, has_counted = {**counts, event: counts.get(event, 0) + 1}, True
    branches = _branches(fields) if event == JOINED else ()
    holding = [
        candidate
        for candidate, guard in guarded
        if guard.holds(decode_keys(context, guard.reads.context), fields, counts, branches)
    ]
    return _only(candidates, holding)


def _only(candidates: Sequence[Transition], holding: Sequence[Transition]) -> Transition | Unrouted:
    if len(holding) == 1:
        return holding[0]
    what = f"{candidates[0].event!r} from {candidates[0].source!r}"
    if holding:
        guards = " and ".join(repr(each.guard.text) for each in holding if each.guard)
        return Unrouted(f"{len(holding)} guards hold at once for {what}: {guards}", is_ambiguous=True)
    for candidate in candidates:
        if candidate.guard is None:
            return candidate
    return Unrouted(f"no guard holds for {what}, and no transition is the otherwise")


def _branches(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = payload.get("branches")
    return [branch for branch in found if isinstance(branch, dict)] if isinstance(found, list) else []
