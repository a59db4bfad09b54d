"""What one claim asks for, as far as the control plane understands it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stateous_contract.messages import ClaimRequest

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import Terms
from stateous_supervisor.agent.receivers import Served
from stateous_supervisor.agent.slots import Room

ROUTINE: Final = "@"
DEFAULT: Final = [1]


def request_of(
    request_id: str,
    identity: Identity,
    room: Room,
    *,
    terms: Terms,
    served: Served,
    limits: Mapping[str, int] | None,
) -> ClaimRequest:
    """Return a claim that does not wait.

    Args:
        request_id: its id.
        identity: who claims.
        room: for how much of what there is room.
        terms: what the control plane offers; nothing else is said.
        served: in which versions there are routines (S2-57).
        limits: what has less room than all together.
    """
    states = [work for work in room.by_state if not work.startswith(ROUTINE)]
    request = ClaimRequest(supervisor=identity.supervisor, states=states, request=request_id)
    if terms.is_extended:
        request.instance = identity.instance
    if terms.offers("batch"):
        request.max = room.total
        request.max_by_state = None if limits is None else dict(limits)
    if terms.offers("versions"):
        request.versions = _versions(states, served)
    routines = [work for work in room.by_state if work.startswith(ROUTINE)]
    if routines:
        request.routines = {work.removeprefix(ROUTINE): list(served[work]) for work in routines}
    return request


def _versions(states: list[str], served: Served) -> dict[str, list[int]] | None:
    """Return the versions of the states that are not served in the first one alone."""
    found = {state: list(served[state]) for state in states if list(served.get(state, DEFAULT)) != DEFAULT}
    return found or None
