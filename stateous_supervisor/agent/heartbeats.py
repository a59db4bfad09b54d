"""The loop that keeps leases: one request for all held tasks, every H, while anything is held.

A-27 to A-31. Held is what runs, and what is done and not yet delivered. A beat that fails is tried again
inside the lease. Only the control plane says that a task is lost; doubt by our own clock is told and stops
nothing. Called by the supervisor.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict

import anyio
from stateous_contract.messages import HeartbeatAnswer

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.assignment import (
    LET_GO,
    Assignment,
    Doubted,
    Fenced,
    Identity,
    Lost,
    Renewed,
)
from stateous_supervisor.agent.contact import Contact
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.faults import Denied, Refused, Unanswered
from stateous_supervisor.agent.fences import Fences
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.agent.wake import Wake
from stateous_supervisor.link.frames import HeldUntil, PauseTask

Key = tuple[int, int]


class Heartbeats:
    """Beats for all assignments of the roster.

    Args:
        fences: which routines are stopped in time when their leases cannot be proven.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        contact: Contact,
        roster: Roster,
        log: Log,
        *,
        luck: random.Random,
        fences: Fences,
    ) -> None:
        self._control_plane = control_plane
        self._contact = contact
        self._roster = roster
        self._log = log
        self._luck = luck
        self._fences = fences
        self._wake = Wake()
        self._again = Wake()
        self._is_idle = True
        self.promise: Promise = nothing
        self.failures = 0
        self.answered_at: float | None = None

    def look(self) -> None:
        """Something is held now; cheap to call for each grant."""
        if self._is_idle:
            self._wake.ring()

    def hurry(self) -> None:
        """Beat now, if anything is held."""
        self._again.ring()

    async def run(self) -> None:
        """Beat while anything is held, for ever; how often is known once somebody has been greeted."""
        await self._contact.wait_for_terms()
        due_at = math.inf
        while True:
            if not self._held():
                self._is_idle = True
                self.promise(math.inf)
                await self._wake.wait()
            if self._is_idle:
                self._is_idle = False
                due_at = cadence.first_beat_at(anyio.current_time(), self._control_plane.terms.heartbeat_s)
            next_at = min(due_at, self._next_doubt(), self._next_fence())
            self.promise(next_at - anyio.current_time())
            if await self._again.wait(next_at):
                due_at = anyio.current_time()
            self._fence()
            self._doubt()
            if anyio.current_time() >= due_at and self._held():
                due_at = await self._beat_all()

    def _held(self) -> list[Assignment]:
        return [a for a in self._roster.assignments.values() if a.phase not in LET_GO]

    async def _beat_all(self) -> float:
        """Send what one beat takes, side by side; return when the next one is due."""
        groups = self._groups()
        sent_at = anyio.current_time()
        errors: list[Unanswered] = []
        self.promise(cadence.BEAT_DEADLINE_MAX_S)
        async with anyio.create_task_group() as beats:
            for identity, keys in groups:
                beats.start_soon(self._beat, identity, keys, errors)
        heartbeat_s = self._control_plane.terms.heartbeat_s
        if not errors:
            self.failures = 0
            self.answered_at = anyio.current_time()
            self._contact.reached()
            return cadence.next_beat_at(sent_at, heartbeat_s)
        self.failures += 1
        now = anyio.current_time()
        trusted = min((a.trusted_until for a in self._held()), default=now)
        due_at = self._repeat_at(errors[0], now, trusted, sent_at)
        self._contact.missed(errors[0], due_at - now)
        self._log.tell(
            "heartbeat.missed",
            error=errors[0].sentence,
            failures=self.failures,
            next_in_s=round(due_at - now, 1),
            trusted_s=round(trusted - now, 1),
        )
        return due_at

    def _repeat_at(self, error: Unanswered, now: float, trusted: float, sent_at: float) -> float:
        heartbeat_s = self._control_plane.terms.heartbeat_s
        if isinstance(error, Denied):
            return cadence.denied_beat_at(now, heartbeat_s, sent_at=sent_at)
        luck = self._luck.random()
        return cadence.repeated_beat_at(
            now, trusted, heartbeat_s, luck, sent_at=sent_at, asked_s=error.asked_s
        )

    def _groups(self) -> list[tuple[Identity, list[Key]]]:
        """Return what each request names: one identity, the newest attempt of each task, a bounded list."""
        newest: dict[tuple[Identity, int], int] = {}
        for held in self._held():
            task = (held.identity, held.task)
            newest[task] = max(held.attempt, newest.get(task, 0))
        by_identity: dict[Identity, list[Key]] = defaultdict(list)
        for (identity, number), attempt in newest.items():
            by_identity[identity].append((number, attempt))
        size = self._control_plane.terms.heartbeat_max
        return [
            (identity, keys[start : start + size])
            for identity, keys in by_identity.items()
            for start in range(0, len(keys), size)
        ]

    async def _beat(self, identity: Identity, keys: list[Key], errors: list[Unanswered]) -> None:
        sent_at = anyio.current_time()
        deadline_s = cadence.beat_deadline_s(self._control_plane.terms.heartbeat_s)
        try:
            answer = await self._control_plane.beat(identity, keys, deadline_s=deadline_s)
        except Unanswered as error:
            errors.append(error)
        except Refused as error:
            errors.append(Unanswered(f"the heartbeat was refused ({error.code}): {error.sentence}"))
        else:
            self._apply(keys, sent_at, answer)

    def _apply(self, keys: list[Key], sent_at: float, answer: HeartbeatAnswer) -> None:
        """Carry an answer to exactly the attempts that the request named (A-31)."""
        lost = set(answer.lost)
        causes = answer.causes or {}
        lease_s = self._control_plane.terms.lease_s
        renewed = Renewed(cadence.trusted_until(sent_at, lease_s))
        kept: list[int] = []
        for key in keys:
            if key[0] in lost:
                self._roster.happen(key, Lost(causes.get(str(key[0]), "lost"), by_beat=True))
            else:
                self._roster.happen(key, renewed)
                kept.append(key[0])
        pauses = set(answer.pause or ())
        asked = [PauseTask(task=task, attempt=attempt) for task, attempt in keys if task in pauses]
        if asked:
            self._roster.tell_host(asked)
        if kept:
            left_s = max(0.0, renewed.trusted_until - anyio.current_time())
            self._roster.tell_host([HeldUntil(tasks=kept, lease_s=left_s)])

    def _next_doubt(self) -> float:
        return min((a.trusted_until for a in self._roster.running if not a.is_doubted), default=math.inf)

    def _next_fence(self) -> float:
        if not self._fences.states:
            return math.inf
        lease_s = self._control_plane.terms.lease_s
        return min((self._fences.due_at(a, lease_s) for a in self._roster.running), default=math.inf)

    def _fence(self) -> None:
        """Stop what must not outlive its lease, before the lease can end (A-32)."""
        now, terms = anyio.current_time(), self._control_plane.terms
        for assignment in self._roster.running if self._fences.states else ():
            if self._fences.due_at(assignment, terms.lease_s) <= now:
                self._roster.happen(assignment.key, Fenced(can_release=terms.offers("release")))

    def _doubt(self) -> None:
        now = anyio.current_time()
        for assignment in self._roster.running:
            if assignment.trusted_until <= now and not assignment.is_doubted:
                self._roster.happen(assignment.key, Doubted())
