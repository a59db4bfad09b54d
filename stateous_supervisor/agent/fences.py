"""Which routines do not outlive a lease that cannot be proven (A-32): `fence: true` of their state.

A thread cannot be stopped, so a `def` routine has a fence only in a process of its own; one without goes on, and the
log says so at the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.assignment import Assignment
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.link.frames import Confinement, RoutineFacts

Confinements = Mapping[str, Confinement]
UNCONFINED = Confinement()


class Fences:
    """The fences of now.

    Args:
        routines: what the host of a generation loaded; 0 asks for the newest.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        roster: Roster,
        routines: Callable[[int], Iterable[RoutineFacts]],
        log: Log,
    ) -> None:
        self.states: Collection[str] = ()
        self._confinements: Confinements = {}
        self._control_plane = control_plane
        self._roster = roster
        self._routines = routines
        self._log = log

    def put_up(self, states: Collection[str], confinements: Confinements) -> None:
        """Fence these states from now on, and say for which of them nothing can be done."""
        self.states, self._confinements = states, confinements
        self.measure()
        powerless = sorted(f.state for f in self._routines(0) if f.state in states and not self._can_stop(f))
        if powerless:
            self._log.tell("fence.powerless", states=powerless)

    def measure(self) -> None:
        """Let the graces of fenced routines end before their leases do, once it is known how long those are."""
        lease_s = self._control_plane.terms.lease_s
        self._roster.confinements = {
            state: Confinement(
                isolation=given.isolation,
                memory_bytes=given.memory_bytes,
                grace_s=cadence.fence_lead_s(given.grace_s, lease_s),
            )
            if state in self.states
            else given
            for state, given in self._confinements.items()
        }

    def due_at(self, assignment: Assignment, lease_s: float) -> float:
        """Return when that routine is to be stopped unless its lease is renewed before; infinity for never."""
        state = assignment.state
        if state not in self.states or assignment.in_place_of_dropped is not None:
            return math.inf
        facts = [f for f in self._routines(assignment.host) if f.state == state]
        if assignment.host and not any(map(self._can_stop, facts)):
            return math.inf
        grace_s = self._confinements.get(state, UNCONFINED).grace_s
        return assignment.trusted_until - cadence.fence_lead_s(grace_s, lease_s)

    def _can_stop(self, facts: RoutineFacts) -> bool:
        isolation = self._confinements.get(facts.state, UNCONFINED).isolation or facts.isolation
        return facts.is_async or isolation == "process"
