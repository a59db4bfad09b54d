"""The loops that claim: never more than there are free slots, with request ids that survive (A-11 … A-15).

On a control plane that can wait there is one waiting claim; while it waits, slots that come free are asked
for by a second one that does not wait. On the baseline one claim is in flight at a time. An id is on disk
before it is sent, is repeated until a definite answer comes, and is used again after "nothing".
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from stateous_contract.messages import ClaimRequest

from stateous_supervisor.agent import cadence, wanting
from stateous_supervisor.agent.assignment import LET_GO, Identity
from stateous_supervisor.agent.contact import Contact
from stateous_supervisor.agent.control_plane import CLAIM_SLACK_S, BadGrant, ControlPlane, Granted
from stateous_supervisor.agent.faults import Denied, PeerViolation, Refused, Unanswered
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.lanes import Bar, Lane
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.outbox import ClaimRow
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.agent.slots import NO_ROOM, Room, beyond
from stateous_supervisor.agent.withdrawals import Withdrawals

SETTLE_S: Final = 0.02  # a claim that is not answered by then is taken to wait
AGAIN_S: Final = 1.0  # how soon a second claim that brought nothing is repeated, while the first one waits
CUT_S: Final = 2.0  # a waiting claim that ends by more than this, or a tenth of its wait, too early was cut
VIOLATIONS_MAX: Final = 3
WITHDRAW_S: Final = 2.0
LAST_ANSWER_S: Final = 5.0
CLOSED_S: Final = 1.0  # how often to look whether claims may go on, where nobody rings

NewId = Callable[[], str]


class Claims:
    """Claims for one supervisor.

    Args:
        identity: who claims.
        new_id: makes a fresh request id.
    """

    def __init__(
        self,
        *,
        control_plane: ControlPlane,
        contact: Contact,
        journal: Journal,
        roster: Roster,
        log: Log,
        luck: random.Random,
        identity: Identity,
        new_id: NewId,
    ) -> None:
        self._control_plane = control_plane
        self._contact = contact
        self._journal = journal
        self._roster = roster
        self._log = log
        self._luck = luck
        self._identity = identity
        self._new_id = new_id
        self._lead = Lane()
        self._second = Lane()
        self._withdrawals = Withdrawals(control_plane, journal)
        self._barred: dict[str, Bar] = {}
        self.promise: Promise = nothing
        self._is_stopping = False
        self._scope = anyio.CancelScope()

    def look(self) -> None:
        """Something changed that claims depend on: a slot, a host, the contract, a delivery."""
        self._lead.wake.ring()
        self._second.wake.ring()

    def retry(self) -> None:
        """The control plane is back: whoever backs off tries now."""
        self._lead.again.ring()
        self._second.again.ring()

    def ask_anew(self) -> None:
        """States or slots are others than before: the claim that waits is sent again for those of now."""
        if self._control_plane.terms.wait_s > 0:
            self._lead.scope.cancel()
        self.look()

    def look_again(self) -> None:
        """Something was delivered: on a control plane that cannot wait, its token may have a task by now."""
        if self._control_plane.terms.wait_s <= 0:
            self._lead.wake.ring()

    async def run(self, old: Sequence[ClaimRow]) -> None:
        """Claim until `stop`. `old` are request ids of an earlier process; they are answered first."""
        self._scope = anyio.CancelScope(deadline=self._scope.deadline)
        with self._scope:
            await self._contact.wait_for_terms()
            for row in old:
                await self._finish_old(row)
            async with anyio.create_task_group() as loops:
                loops.start_soon(self._lead_claims)
                loops.start_soon(self._second_claims)
        await self._withdraw()

    def stop(self) -> None:
        """No new claim from now on. A waiting one is withdrawn, another one in flight gets its answer."""
        self._is_stopping = True
        waits = self._lead.sent_at is None or self._control_plane.terms.wait_s > 0
        self._scope.deadline = -math.inf if waits else anyio.current_time() + LAST_ANSWER_S
        self.look()

    # The claim that waits, or polls.

    async def _lead_claims(self) -> None:
        lane = self._lead
        while not self._is_stopping:
            until = await self._probe_barred(lane)
            room = self._room(self._open_states(), self._second.promised)
            if not self._may_claim():
                await lane.wake.wait(anyio.current_time() + CLOSED_S)
                continue
            if room.total == 0:
                await lane.wake.wait(until)
                continue
            terms = self._control_plane.terms
            wait_s = cadence.claim_wait_s(terms.wait_s, terms.lease_s)
            begun_at = anyio.current_time()
            try:
                got = await self._claim(lane, room, wait_s=wait_s)
            except Unanswered as error:
                await self._pause(lane, error)
            except Refused as error:
                await self._find_refused(lane, room, error)
            else:
                await self._withdrawals.again()
                if not got:  # who does not wait, or waits no more, is polled
                    is_cut = anyio.current_time() - begun_at < wait_s - min(CUT_S, wait_s / 10)
                    await lane.wake.wait(begun_at + cadence.poll_s(self._luck.random()))
                    if (
                        is_cut
                    ):  # by a control plane that stops or has another workflow: who comes next may differ
                        self._contact.compare_anew()

    async def _pause(self, lane: Lane, error: Unanswered, identity: Identity | None = None) -> None:
        lane.failures += 1
        if isinstance(error, PeerViolation):
            await self._count_violation(lane, error, identity or self._identity)
        luck, max_s = self._luck.random(), self._contact.backoff_max_s
        wait_s = cadence.backoff_s(lane.failures, luck, asked_s=error.asked_s, max_s=max_s)
        if isinstance(error, Denied):
            wait_s = cadence.denied_s(lane.failures, self._luck.random())
        self._contact.missed(error, wait_s)
        until = anyio.current_time() + wait_s
        await anyio.sleep(cadence.asked_wait_s(error.asked_s))
        await lane.again.wait(until)

    async def _count_violation(self, lane: Lane, error: PeerViolation, identity: Identity) -> None:
        """After some answers that nobody can understand, give the id up, so that it cannot wedge the loop."""
        lane.violations += 1
        if lane.violations < VIOLATIONS_MAX or lane.request is None:
            return
        request, lane.request, lane.violations = lane.request, None, 0
        self._log.tell("claim.abandoned", request=request, error=error.sentence)
        await self._withdrawals.withdraw(request, identity)

    async def _back_off(self, lane: Lane) -> None:
        """Sleep through rings of slots: they are no reason to hurry a control plane that refuses."""
        lane.failures += 1
        await lane.again.wait(anyio.current_time() + cadence.backoff_s(lane.failures, self._luck.random()))

    # The second claim, which never waits.

    async def _second_claims(self) -> None:
        lane = self._second
        quiet_until = -math.inf
        while not self._is_stopping:
            await lane.wake.wait()
            terms = self._control_plane.terms
            if not terms.offers("batch") or terms.wait_s <= 0:
                continue
            sent_at = self._lead.sent_at
            if sent_at is None:
                continue
            await anyio.sleep_until(sent_at + SETTLE_S)
            if self._lead.sent_at != sent_at:
                lane.wake.ring()
                continue
            room = self._room(self._open_states(), self._lead.promised)
            if room.total == 0 or not self._may_claim() or self._contact.is_refused:
                continue
            if room.by_state.keys() <= self._lead.promised.by_state.keys():
                await anyio.sleep_until(quiet_until)
                if self._lead.sent_at != sent_at:
                    continue
                room = self._room(self._open_states(), self._lead.promised)
            if not await self._claim_second(lane, room):
                quiet_until = anyio.current_time() + AGAIN_S

    async def _claim_second(self, lane: Lane, room: Room) -> bool:
        if room.total == 0:
            return False
        try:
            return await self._claim(lane, room, wait_s=0.0)
        except Unanswered as error:
            await self._pause(lane, error)
        except Refused:
            await self._back_off(lane)  # the first claim finds out which state it is
        return False

    # One claim.

    async def _claim(self, lane: Lane, room: Room, *, wait_s: float) -> bool:
        """Send one claim and start what it brings; return whether it brought anything.

        Raises:
            Unanswered, Refused: and the id stays.
        """
        lane.promised = room  # from now on: the other claim must not ask for it while the id is being written
        try:
            if lane.request is None:
                lane.request = self._make_id()
                await self._journal.flush()
                if self._is_stopping:  # then a disk that refuses is not waited for, and the id is not on it
                    return False
            request = self._request(lane.request, self._identity, room, wait_s)
            lane.sent_at = sent_at = anyio.current_time()
            if lane is self._lead:
                self.promise(wait_s + CLAIM_SLACK_S)
            answers: list[Granted | BadGrant] = []
            with anyio.CancelScope() as lane.scope:
                answers = await self._control_plane.claim(request)
            if lane.scope.cancelled_caught:
                withdrawn, lane.request = lane.request, None
                await self._withdrawals.withdraw(withdrawn, self._identity)
                return False
        finally:
            lane.promised, lane.sent_at = NO_ROOM, None
            if lane is self._lead:
                self.promise(math.inf)
        lane.failures = lane.violations = 0
        self._contact.reached()
        if not answers:
            return False
        self._journal.batch.claims_over.append(lane.request)
        lane.request = self._make_id()
        await self._start(answers, self._identity, sent_at)
        return True

    def _request(self, request_id: str, identity: Identity, room: Room, wait_s: float) -> ClaimRequest:
        own_limits = self._roster.slots.own_limits(room)
        terms, served = self._control_plane.terms, self._roster.served
        request = wanting.request_of(
            request_id, identity, room, terms=terms, served=served, limits=own_limits
        )
        if wait_s > 0:
            request.wait = wait_s
        return request

    async def _start(
        self, answers: list[Granted | BadGrant], identity: Identity, sent_at: float, room: Room | None = None
    ) -> None:
        """Journal what was granted, then hand it to the host; while stopping it is given back instead.

        So is what the disk does not take (A-41), and what is beyond `room`: an id of an earlier process brings all
        that was asked for then (A-12). Where nothing can be given back, it waits for the disk.
        """
        with anyio.CancelScope(shield=True):
            accepted = self._roster.accept(answers, identity, sent_at)
            can_release = self._control_plane.terms.offers("release")
            is_kept = await self._journal.is_kept()
            if not is_kept and not can_release:
                await self._journal.flush()
            room = NO_ROOM if self._is_stopping or not is_kept else room
            for assignment in beyond(room, accepted) if can_release and room is not None else ():
                self._roster.give_back(assignment.key, "not_started")
            self._roster.start(accepted)

    def _make_id(self) -> str:
        request = self._new_id()
        self._journal.batch.claims.append(ClaimRow(request, self._identity))
        return request

    def _may_claim(self) -> bool:
        if self._contact.is_refused and any(a.phase not in LET_GO for a in self._roster.assignments.values()):
            return False  # the heartbeats ask whether our key is accepted
        return self._journal.is_writable and self._roster.is_ready

    def _room(self, states: Sequence[str], promised: Room) -> Room:
        terms = self._control_plane.terms
        suited = self._contact.suited(states)
        return self._roster.slots.room(suited, promised=promised, at_most=terms.claim_max)

    # States whose claims are refused.

    def _open_states(self) -> list[str]:
        return [
            state
            for state in self._roster.served
            if state not in self._barred and state not in self._roster.paused
        ]

    async def _find_refused(self, lane: Lane, room: Room, error: Refused) -> None:
        """A claim for several states was refused: ask for each alone and bar those that are refused again."""
        states = list(room.by_state)
        if len(states) == 1:
            self._bar(states[0], error)
            return
        for state in states:
            if not await self._probe(lane, state):
                return
        if not any(state in self._barred for state in states):
            await self._back_off(lane)

    async def _probe_barred(self, lane: Lane) -> float:
        """Ask again for barred states whose time has come; return when the next one's comes."""
        for state in [s for s, bar in self._barred.items() if bar.until <= anyio.current_time()]:
            if state not in self._roster.served:
                del self._barred[state]
            elif self._may_claim() and not await self._probe(lane, state):
                break
        return min((bar.until for bar in self._barred.values()), default=math.inf)

    async def _probe(self, lane: Lane, state: str) -> bool:
        """Claim for one state alone; return False where there was no answer."""
        room = self._room([state], self._second.promised)
        if room.total == 0:
            return True
        try:
            await self._claim(lane, room, wait_s=0.0)
        except Unanswered as error:
            await self._pause(lane, error)
            return False
        except Refused as error:
            self._bar(state, error)
        else:
            self._barred.pop(state, None)
        return True

    def _bar(self, state: str, error: Refused) -> None:
        bar = self._barred.setdefault(state, Bar())
        bar.failures += 1
        wait_s = cadence.backoff_s(
            bar.failures + 1, 0.5 + self._luck.random() / 2, max_s=cadence.BARRED_MAX_S
        )
        bar.until = anyio.current_time() + wait_s
        self._contact.reached()
        self._log.tell(
            "claim.refused", states=[state], code=error.code, error=error.sentence, next_in_s=round(wait_s, 1)
        )

    # Ids of an earlier process, and the end.

    async def _finish_old(self, row: ClaimRow) -> None:
        """Repeat a claim of an earlier process under its own name until it is answered (A-11)."""
        lane = Lane()
        while not self._is_stopping:
            room = self._room(self._open_states(), NO_ROOM)
            if room.total == 0 or not self._may_claim():
                await self._lead.wake.wait(anyio.current_time() + 1.0)
                continue
            request = self._request(row.request, row.identity, room, 0.0)
            sent_at = anyio.current_time()
            try:
                answers = await self._control_plane.claim(request)
            except Unanswered as error:
                lane.request = row.request
                await self._pause(lane, error, row.identity)
                if lane.request is None:
                    return
                continue
            except Refused:
                answers = []
            self._contact.reached()
            self._journal.batch.claims_over.append(row.request)
            await self._start(answers, row.identity, sent_at, room)
            return

    async def _withdraw(self) -> None:
        """End waiting claims at the control plane, which takes back what they got meanwhile."""
        if self._control_plane.terms.wait_s <= 0 or not self._contact.is_reached:
            return
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + WITHDRAW_S):
            for lane in (self._lead, self._second):
                if lane.request is not None:
                    request, lane.request = lane.request, None
                    await self._withdrawals.withdraw(request, self._identity)
            await self._withdrawals.again()
