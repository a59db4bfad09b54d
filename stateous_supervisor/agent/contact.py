"""Whether the control plane is there, what it offers, and whether the folder's contract fits it (A-09).

The loop greets until somebody answers, for ever; while the contract does not fit it asks again each minute;
after an outage it greets anew, because another control plane may have come back. The other loops say
`reached` and `missed`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio
from stateous_contract.reliance import Reliance, changed_states, reliance_of

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.control_plane import CALL_S, ControlPlane
from stateous_supervisor.agent.faults import Denied, Fault, Refused, Unanswered
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.standing import Standing
from stateous_supervisor.agent.wake import Wake

QUIET_S: Final = 60.0
CAUSES_MAX: Final = 5
"""How many causes are told within a minute; a page or a redirect may say another thing each time."""
MEND: Final = "stateous-supervisor contract FOLDER"


class Contact:
    """What is known about the other side. Claims may go on for what it `suits`.

    That is all while the contract `is_open`, except for the states that are `changed`: it names, with what has changed,
    those whose routines the workflow of now does not suit. Routines without a graph need no contract. `answers` counts
    those that anybody got. `opened` is called when claims may go on, `regained` when an outage is over.

    Args:
        checksum: reads what the folder's contract was made for; None where it has none.
        reliance: reads what its routines rely on; None where the contract does not say.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        log: Log,
        luck: random.Random,
        *,
        checksum: Callable[[], str | None],
        reliance: Callable[[], Reliance | None] = lambda: None,
    ) -> None:
        self.is_open = False
        self.changed: Mapping[str, Sequence[str]] = {}
        self.is_reached = False
        self.answers = 0
        self._control_plane = control_plane
        self._log = log
        self._luck = luck
        self._checksum = checksum
        self._reliance = reliance
        self.opened: Callable[[], None] = lambda: None
        self.regained: Callable[[], None] = lambda: None
        self.promise: Promise = nothing
        self._wake = Wake()
        self._terms = anyio.Event()
        self.standing = Standing(log)
        self._again = Wake()
        self._down_since: float | None = None
        self._failures = 0
        self._unheard_since: float | None = None
        self._told: dict[str, float] = {}
        self._cause: str | None = None
        self._is_down_told = False
        self._differs: tuple[str, str] | None = None
        self._agreed: str | None = None
        self._unoffered: set[str] = set()

    @property
    def has_terms(self) -> bool:
        """Whether the control plane has ever said what it offers."""
        return self._terms.is_set()

    @property
    def is_refused(self) -> bool:
        """Whether our key is refused (A-51)."""
        return self.standing.is_refused

    @property
    def differs(self) -> bool:
        """Whether the folder's contract is to be refreshed: for the states that are `changed`, or for all."""
        return self.has_terms and (not self.is_open or bool(self.changed))

    @property
    def away_s(self) -> float | None:
        """For how long nobody has answered; None while somebody does."""
        return None if self._down_since is None else anyio.current_time() - self._down_since

    @property
    def backoff_max_s(self) -> float:
        """The longest that other calls wait before they ask again: long, while a greeting asks in their place."""
        return cadence.BACKOFF_MAX_S if self._unheard_since is None else cadence.AWAY_MAX_S

    @property
    def away_cause(self) -> str | None:
        """Why the last request had no answer; None while somebody answers."""
        return None if self._down_since is None else self._cause

    def suits(self, work: str) -> bool:
        """Whether a state, or a routine without a graph (behind an ``@``), may be claimed for."""
        if work.startswith("@"):
            return self._control_plane.terms.offers("routines")
        return self.is_open and work not in self.changed

    def suited(self, works: Iterable[str]) -> list[str]:
        """Return for which of these may be claimed, and say once which routines nobody here can start (A-64)."""
        found = list(works)
        if self._control_plane.terms.offers("routines"):
            self._unoffered.clear()
        elif unheard := {work[1:] for work in found if work.startswith("@")} - self._unoffered:
            self._unoffered |= unheard
            self._log.tell("routine.unclaimed", routines=sorted(unheard), feature="routines")
        return [work for work in found if self.suits(work)]

    def compare_anew(self) -> None:
        """The folder was read again, or the workflow may have changed: ask and compare now."""
        self._wake.ring()

    async def wait_for_terms(self) -> None:
        """Return once the control plane has said what it offers."""
        await self._terms.wait()

    def retry(self) -> None:
        """There is another key: greet now, if a greeting was refused."""
        self._again.ring()

    def reached(self) -> None:
        """Somebody got an answer: an outage is over. What is offered is asked anew, in the greeting's own time."""
        self.answers += 1
        self.standing.accept()
        if self._down_since is not None:
            self._up()
            if self._unheard_since is None:
                self._wake.ring()

    def missed(self, error: Unanswered, next_in_s: float) -> None:
        """Somebody got no answer, and tries again in `next_in_s`."""
        if isinstance(error, Denied):  # an answer it is, and nobody is away
            self.standing.refuse(error, next_in_s)
            return
        now = anyio.current_time()
        if self._down_since is None:
            self._down_since = now
            self._wake.ring()
        self._failures += 1
        self.is_reached = False
        self._cause = error.cause
        if self._is_news(error.cause, now):
            self._is_down_told = True
            failures, next_in_s = self._failures, round(next_in_s, 1)
            self._log.tell(
                "control_plane.unreachable", error=error.sentence, failures=failures, next_in_s=next_in_s
            )

    def _is_news(self, cause: str, now: float) -> bool:
        """Say whether to tell of a cause now: one that was not told within a minute, among few."""
        self._told = {each: at for each, at in self._told.items() if now - at < QUIET_S}
        if cause in self._told or len(self._told) >= CAUSES_MAX:
            return False
        self._told[cause] = now
        return True

    async def run(self) -> None:
        """Greet, compare, and greet again when there is a reason to."""
        failures = 0
        while True:
            self.promise(2 * CALL_S)
            try:
                terms = await self._control_plane.greet()
                theirs = await self._find_theirs(terms.checksum)
            except Unanswered as error:
                failures += 1
                await self._back_off(error, failures)
                continue
            except Refused as error:
                failures += 1
                await self._back_off(Unanswered(f"/health is refused: {error.sentence}"), failures)
                continue
            unheard_since, failures, self._unheard_since = self._unheard_since, 0, None
            if unheard_since is not None or not self.has_terms:
                self._up()
            self._compare(terms.checksum, theirs)
            self._terms.set()
            if unheard_since is not None:  # not when only other calls failed: this one needs no database
                await self._come_back(anyio.current_time() - unheard_since)
            fits = self.is_open and not self.changed
            self.promise(math.inf)
            await self._wake.wait(math.inf if fits else anyio.current_time() + cadence.REASK_S)

    async def _come_back(self, away_s: float) -> None:
        """Let the others go on, but not at the moment at which everybody else's agents do (BH-035)."""
        wait_s = cadence.comeback_s(away_s, self._luck.random())
        self.promise(wait_s)
        await anyio.sleep(wait_s)
        self.regained()

    async def _back_off(self, error: Unanswered, failures: int) -> None:
        luck = self._luck.random()
        now = anyio.current_time()
        if self._unheard_since is None:
            self._unheard_since = now
        if isinstance(error, Denied):
            wait_s = cadence.denied_s(failures, luck)
        else:
            wait_s = cadence.greet_s(failures, now - self._unheard_since, luck, asked_s=error.asked_s)
        self.missed(error, wait_s)
        self.promise(wait_s)
        await self._again.wait(now + wait_s)

    def _up(self) -> None:
        now = anyio.current_time()
        down_s = None if self._down_since is None else round(now - self._down_since, 1)
        if self._is_down_told or not self.has_terms:
            features = sorted(self._control_plane.terms.features)
            self._log.tell("control_plane.reached", features=features, down_s=down_s)
        self.is_reached, self._is_down_told = True, False
        self._down_since, self._failures = None, 0

    async def _find_theirs(self, offered: str) -> Reliance | None:
        """Return what the workflow over there gives, if it is another one than ours; None where nobody can tell."""
        if self._ours() in (offered, None):
            return None
        try:
            return reliance_of(await self._control_plane.workflow())
        except (Unanswered, Refused, ValueError):
            return None

    def _ours(self) -> str | None:
        try:
            return self._checksum()
        except Fault as fault:  # the contract was taken away under a running agent
            return fault.sentence

    def _compare(self, offered: str, theirs: Reliance | None) -> None:
        """Decide which states may be claimed for: all, those that a changed workflow still suits, or none."""
        ours, relied_on = self._ours(), self._reliance()
        self.is_open = ours in (offered, None) or (theirs is not None and relied_on is not None)
        self.changed = {}
        if ours not in (offered, None) and theirs is not None and relied_on is not None:
            self.changed = changed_states(relied_on, theirs)
        if ours is not None:
            self._tell(ours, offered)
        if self.is_open:
            self.opened()

    def _tell(self, ours: str, offered: str) -> None:
        fits = self.is_open and not self.changed
        if fits and (self._differs is not None or offered != ours) and self._agreed != offered:
            self._log.tell("contract.agreed", checksum=offered)
        self._agreed = offered if fits else None
        if fits:
            self._differs = None
        elif self._differs != (ours, offered):
            self._differs = (ours, offered)
            facts = {"contract": ours, "control_plane": offered, "mend": MEND}
            if self.is_open:
                self._log.tell("contract.outdated", states=self.changed, **facts)
            else:
                self._log.tell("contract.differs", **facts)
