"""Who asks for work, who waits for it, and who wakes them.

Claims of the same states stand at one desk, which serves all of them in one transaction, so that a thousand idle
agents and one new task cost one transaction. Wake-ups only say "look": truth is read again. What is lost is found by
a look once a second while somebody waits. Transactions run in the desk's task, never in the caller's: a caller that
is cancelled leaves no half-done claim behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from stateous_contract.codes import Refused
from stateous_contract.limits import WAIT_S_MAX
from stateous_contract.messages import ClaimRequest, Grant

from stateous_control.engine.granting import Claim, Granting, claim_of
from stateous_control.engine.views import IsGone
from stateous_control.logs import logger
from stateous_control.rules.access import OPEN, Access
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Mode, Pool
from stateous_control.store.statements import statements

CLAIMS_AT_ONCE_MAX: Final = 100
TASKS_AT_ONCE_MAX: Final = 2_000
LOOKS_MAX: Final = 7
BACKSTOP_S: Final = 1.0
DESKS_MAX: Final = 256

Queue = tuple[str, str]
"""An owner's tasks of one state."""

log = logger()


class Desk:
    """Claims of one set of states by callers with the same owners. `run` lives while somebody stands here."""

    def __init__(self, states: tuple[str, ...], owners: tuple[str, ...], granting: Granting) -> None:
        self.queues = frozenset((owner, state) for owner in owners for state in states)
        self.claims: list[Claim] = []
        self.granted = 0
        self.is_served = False
        self._granting = granting
        self._fresh: list[Claim] = []
        self._is_woken = False
        self._woken = asyncio.Event()

    def add(self, claim: Claim) -> None:
        """Let a claim stand in line; it is looked after at once."""
        self.claims.append(claim)
        self._fresh.append(claim)
        self._woken.set()

    def remove(self, claim: Claim) -> None:
        """Take out a claim whose caller needs no answer any more."""
        if claim in self.claims:
            self.claims.remove(claim)
        if claim in self._fresh:
            self._fresh.remove(claim)
        self._woken.set()

    def wake(self) -> None:
        """Say that there may be work for those who wait."""
        for claim in self.claims:
            claim.looks = 0
        self._is_woken = True
        self._woken.set()

    def came(self, queue: Queue, ready_at: datetime) -> None:
        """Take in that work of this queue is ready since `ready_at`."""
        self._granting.came(queue, ready_at)

    async def run(self) -> None:
        """Serve claims until nobody is left."""
        try:
            while self.claims:
                self._woken.clear()
                chosen = self._choose()
                if chosen:
                    await self._serve(chosen)
                else:
                    await self._wait()
                self._dismiss()
        finally:
            self.is_served = False

    def _choose(self) -> list[Claim]:
        """Take those who came new, or everybody after a wake-up; one claim of a key at a time."""
        asking, self._is_woken = (self.claims if self._is_woken else self._fresh), False
        chosen: list[Claim] = []
        left: list[Claim] = []
        keys: set[tuple[str, str, str, str]] = set()
        tasks = 0
        for claim in asking:
            is_full = len(chosen) >= CLAIMS_AT_ONCE_MAX or tasks >= TASKS_AT_ONCE_MAX
            if is_full or claim.key in keys:
                left.append(claim)
                continue
            chosen.append(claim)
            tasks += claim.demand.most
            if claim.key is not None:
                keys.add(claim.key)
        self._fresh = left
        return chosen

    async def _serve(self, chosen: list[Claim]) -> None:
        try:
            handed = await self._granting.hand_out(chosen)
        except Refused as refusal:
            self._fail(chosen, refusal)
            return
        except (
            Exception
        ) as error:  # the top of a loop: a fault of ours must not leave claims without an answer
            log.exception("claim.failed")
            self._fail(chosen, error)
            return
        for claim, grants in handed.grants.items():
            self.granted += len(grants)
            self._answer(claim, grants)
        if handed.passed_over:
            await self._look_again(handed.passed_over)

    async def _look_again(self, claims: list[Claim]) -> None:
        """There is work, but it was held by somebody this instant: nobody is sent away for that."""
        looks = min(claim.looks for claim in claims)
        for claim in claims:
            claim.looks += 1
        if looks < LOOKS_MAX:
            self._fresh.extend(claim for claim in claims if claim in self.claims and claim not in self._fresh)
            await asyncio.sleep(0.001 * 2**looks)

    def _dismiss(self) -> None:
        """Send away those who got nothing and do not wait, or have waited long enough, or have left."""
        now = asyncio.get_running_loop().time()
        for claim in list(self.claims):
            if claim not in self._fresh and (now >= claim.wait_until or claim.is_gone()):
                self._answer(claim, [])

    async def _wait(self) -> None:
        now = asyncio.get_running_loop().time()
        until = min(claim.wait_until for claim in self.claims)
        try:
            async with asyncio.timeout(max(0.0, until - now)):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _answer(self, claim: Claim, grants: list[Grant]) -> None:
        self.remove(claim)
        if not claim.answer.done():
            claim.answer.set_result(grants)

    def _fail(self, claims: list[Claim], error: Exception) -> None:
        """Tell those who do not wait; those who do go on waiting through a short absence of the database."""
        now = asyncio.get_running_loop().time()
        for claim in claims:
            if isinstance(error, Unavailable) and now < claim.wait_until:
                continue
            self.remove(claim)
            if not claim.answer.done():
                claim.answer.set_exception(error)


class Claims:
    """All desks of this process.

    Args:
        pool: the database. lease_s: the length of a lease. spawn: runs a desk in the engine's task group.

    """

    def __init__(self, pool: Pool, lease_s: float, spawn: Callable[[Desk], object]) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._spawn = spawn
        self._desks: dict[tuple[tuple[str, ...], Access], Desk] = {}
        self._is_stopping = False
        self._timers: set[asyncio.TimerHandle] = set()

    async def claim(self, request: ClaimRequest, is_gone: IsGone, access: Access = OPEN) -> list[Grant]:
        """Stand in line, and return what was granted; empty means that there is nothing."""
        if self._is_stopping:
            return []
        wait_s = min(request.wait or 0.0, WAIT_S_MAX)
        claim = claim_of(request, is_gone, asyncio.get_running_loop().time() + wait_s, access)
        if claim.demand.most <= 0:
            return []
        self._replace(claim)
        desk = self._desk(claim)
        desk.add(claim)
        try:
            return await claim.answer
        finally:
            desk.remove(claim)

    def end(self, scope: str, supervisor: str, instance: str, request: str) -> None:
        """End the waiting claim with this request id, if it stands here; it answers empty."""
        for desk in self._desks.values():
            for claim in list(desk.claims):
                if claim.name == (scope, supervisor, instance, request):
                    self._send_away(desk, claim)

    def ready(self, queues: Collection[Queue]) -> None:
        """Wake those who wait for one of these queues."""
        for desk in self._desks.values():
            if desk.claims and not desk.queues.isdisjoint(queues):
                desk.wake()

    def came(self, oldest: Mapping[Queue, datetime]) -> None:
        """Take in since when the work that came is ready: no look begins behind it."""
        for desk in self._desks.values():
            for queue in desk.queues & oldest.keys():
                desk.came(queue, oldest[queue])

    def ready_in(self, queue: Queue, delay_s: float) -> None:
        """Wake those who then wait for `queue`, once the delay is over."""

        def wake() -> None:
            self._timers.discard(handle)
            self.ready((queue,))

        handle = asyncio.get_running_loop().call_later(delay_s, wake)
        self._timers.add(handle)

    def begin_stop(self) -> None:
        """Answer everybody who waits, empty, and everybody who comes later."""
        self._is_stopping = True
        for desk in self._desks.values():
            for claim in list(desk.claims):
                self._send_away(desk, claim)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def look_now_and_then(self) -> None:
        """Find the work that no wake-up told of: one small question a second, and only while somebody waits."""
        while True:
            await asyncio.sleep(BACKSTOP_S)
            waited_for = [desk.queues for desk in self._desks.values() if desk.claims]
            if not waited_for:
                continue
            try:
                self.ready(await self._ready_among(sorted(frozenset[Queue]().union(*waited_for))))
            except Unavailable:
                continue  # asked again in a second

    async def _ready_among(self, queues: list[Queue]) -> list[Queue]:
        owners, states = map(list, zip(*queues, strict=True))
        rows = await self._pool.run(
            lambda session: session.fetch(statements.ready_states, states, owners), Mode.CLAIM
        )
        return [(row["owner"], row["state"]) for row in rows]

    @property
    def waiting(self) -> int:
        """How many claims stand here now."""
        return sum(len(desk.claims) for desk in self._desks.values())

    def _replace(self, claim: Claim) -> None:
        """A claim whose id waits already takes its place: the older request answers empty, without effect."""
        if claim.request is not None:
            self.end(*claim.name)

    def _send_away(self, desk: Desk, claim: Claim) -> None:
        # A claim that is in a transaction at this moment keeps what that brings: a repeat finds it by its id.
        desk.remove(claim)
        if not claim.answer.done():
            claim.answer.set_result([])

    def _desk(self, claim: Claim) -> Desk:
        """Return the desk for this claim with somebody at it; desks where nobody stands are cleared away in time."""
        place = (claim.states, replace(claim.access, key=None, key_id=None))
        desk = self._desks.get(place)
        if desk is None:
            if len(self._desks) >= DESKS_MAX:
                self._desks = {key: kept for key, kept in self._desks.items() if kept.is_served}
            granting = Granting(self._pool, self._lease_s, claim.access)
            desk = self._desks[place] = Desk(claim.states, claim.access.own, granting)
        if not desk.is_served:
            desk.is_served = True
            self._spawn(desk)
        return desk
