"""Request ids that are given up: each is withdrawn until the control plane has answered (A-11).

What such an id brought meanwhile is taken back at once then, instead of when its lease ends. Called by the claims.
"""

from __future__ import annotations

from stateous_contract.messages import ClaimRequest

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.faults import Refused, Unanswered
from stateous_supervisor.agent.journal import Journal


class Withdrawals:
    """Withdraws ids. One that nobody answers stays on disk, for the next process if it comes to that."""

    def __init__(self, control_plane: ControlPlane, journal: Journal) -> None:
        self._control_plane = control_plane
        self._journal = journal
        self._unanswered: dict[str, Identity] = {}

    async def withdraw(self, request: str, identity: Identity) -> None:
        """Withdraw an id that was claimed under `identity`. Where that is not offered, it is left to its lease."""
        self._unanswered[request] = identity
        if self._control_plane.terms.wait_s > 0:
            message = ClaimRequest(
                supervisor=identity.supervisor,
                instance=identity.instance,
                states=[],
                request=request,
                withdraw=True,
            )
            try:
                await self._control_plane.claim(message)
            except (Unanswered, Refused):
                return
        del self._unanswered[request]
        self._journal.batch.claims_over.append(request)
        self._journal.write_soon()

    async def again(self) -> None:
        """The control plane answers: withdraw what it did not answer, until it does not again."""
        for request, identity in list(self._unanswered.items()):
            await self.withdraw(request, identity)
            if request in self._unanswered:
                return
