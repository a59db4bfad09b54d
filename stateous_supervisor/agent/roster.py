"""All assignments of this process: it feeds what happens to `advance` and carries the effects to the doors.

It counts slots, knows which host runs what, and turns what routines say into messages on disk. Nothing here
waits. Called by the loops: claims accept and start, hosts report, delivery settles, heartbeats renew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import anyio
import msgspec
from msgspec import Raw
from stateous_contract.messages import TaskMessage

from stateous_supervisor.agent import cadence, reports
from stateous_supervisor.agent.assignment import (
    LET_GO,
    Assignment,
    Cancel,
    Close,
    Declined,
    Delivered,
    Drop,
    Effect,
    Free,
    GivenBack,
    Happening,
    HostDied,
    Identity,
    Keep,
    Kept,
    Lost,
    Phase,
    Send,
    Tell,
    advance,
    recovered,
)
from stateous_supervisor.agent.control_plane import BadGrant, ControlPlane, Granted, Result
from stateous_supervisor.agent.delivery import GONE, Delivery
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.keeping import Keeping
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.outbox import Envelope, GrantRow
from stateous_supervisor.agent.receivers import (
    Receiver,
    Receivers,
    Served,
    is_served,
    run_of,
    served_by,
)
from stateous_supervisor.agent.slots import Slots
from stateous_supervisor.agent.telling import finished, names_of, origin_of
from stateous_supervisor.link import frames

KEPT: Final = Kept()
DELIVERED: Final = Delivered()
RUNNING: Final = frozenset({Phase.STARTING, Phase.RUNNING})
IN_HOST: Final = RUNNING | LET_GO

Key = tuple[int, int]


class Roster:
    """The table of assignments, by task and attempt.

    `freed`, `held` and `delivered` are called when a slot came free, something is held, a report was
    delivered; `alone` when a suspect wants a host of its own, and returns whether there will be one.
    `tell_host` sends to every host until it may `leave`; `pass_on` delivers a routine's call in its place.

    Args:
        slots: how much may be held.
        timeouts: by state, after how long a routine is ended (A-20).
        confinements: by state, where a routine runs and within what bounds (A-24).
    """

    def __init__(
        self,
        *,
        control_plane: ControlPlane,
        journal: Journal,
        delivery: Delivery,
        log: Log,
        slots: Slots,
        timeouts: Mapping[str, float | None],
        confinements: Mapping[str, frames.Confinement],
    ) -> None:
        self.timeouts = timeouts
        self.confinements = confinements
        self.assignments: dict[Key, Assignment] = {}
        self.slots = slots
        self.served: Served = {}
        self.paused: Collection[str] = ()
        self._control_plane = control_plane
        self._journal = journal
        self._delivery = delivery
        self._log = log
        self.freed: Callable[[], None] = lambda: None
        self.held: Callable[[], None] = lambda: None
        self.delivered: Callable[[], None] = lambda: None
        self.alone: Callable[[Key], bool] = lambda _key: False
        self.is_draining = False
        self._hosts = Receivers()
        self._raws: dict[Key, Raw] = {}
        self._waiting: list[Assignment] = []
        self._envelopes: dict[Key, Envelope] = {}
        self._keeping = Keeping(journal, self._on_written)
        self.tell_host = self._hosts.tell
        self.leave, self.close = self._hosts.drop, self._hosts.close
        self.pass_on = self._keeping.pass_on

    # Grants.

    def accept(
        self, answers: Iterable[Granted | BadGrant], identity: Identity, sent_at: float
    ) -> list[Assignment]:
        """Take grants in: assignments are made and journaled with the next commit. `start` them after it.

        Args:
            answers: what the claim brought; repeats of what is here already are passed over.
            identity: under which it was claimed.
            sent_at: when the claim was sent; leases are counted from there.
        """
        taken: list[Assignment] = []
        now = anyio.current_time()
        for answer in answers:
            if isinstance(answer, BadGrant):
                self._log.tell(
                    "grant.unusable", error=answer.sentence, task=answer.task, attempt=answer.attempt
                )
                self._refuse(answer, identity)
            elif (answer.grant.task, answer.grant.attempt) not in self.assignments:
                taken.append(self._take(answer, identity, sent_at, now))
        return taken

    def _take(self, granted: Granted, identity: Identity, sent_at: float, now: float) -> Assignment:
        grant = granted.grant
        terms = self._control_plane.terms
        lease_s = grant.lease_s if grant.lease_s and grant.lease_s > 0 else terms.lease_s
        self._lose_older(grant.task, grant.attempt)
        assignment = Assignment(
            task=grant.task,
            attempt=grant.attempt,
            state=frames.work_of(grant),
            token=grant.token,
            version=(grant.version or 1) if grant.routine or terms.offers("versions") else 0,
            identity=identity,
            claimed_at=now,
            trusted_until=cadence.trusted_until(sent_at, lease_s),
            is_suspect=grant.suspect,
        )
        self._log.tell("task.claimed", lease_s=lease_s, **names_of(assignment))
        self._add(assignment)
        self._raws[assignment.key] = granted.raw
        self._journal.batch.grants.append(
            GrantRow(grant.task, grant.attempt, assignment.state, grant.token, identity)
        )
        return assignment

    def _refuse(self, bad: BadGrant, identity: Identity) -> None:
        """Fail an attempt whose grant cannot be used, so that nobody waits for its lease to end."""
        key = (bad.task, bad.attempt)
        if 0 in key or key in self.assignments:
            return
        self.recover(GrantRow(bad.task, bad.attempt, "", "", identity))
        outcome = frames.Outcome(task=bad.task, attempt=bad.attempt, outcome="failed", error=bad.sentence)
        self.happen(key, outcome)

    def _lose_older(self, task: int, attempt: int) -> None:
        """A newer attempt of a task means that older ones are lost, whatever heartbeats say later (A-31)."""
        if self._control_plane.terms.is_extended and attempt == 1:
            return
        for key in [key for key in self.assignments if key[0] == task and key[1] < attempt]:
            self.happen(key, Lost("attempt_over"))

    def recover(self, row: GrantRow | Envelope) -> None:
        """Take in what nobody runs here: an attempt of an earlier process, with its report or without."""
        key, left = (row.task, row.attempt), reports.read(row.body) if isinstance(row, Envelope) else None
        at = anyio.current_time()
        self.assignments[key] = recovered(key, row.state, row.token, row.identity, at=at, left=left)
        self.held()

    def _add(self, assignment: Assignment) -> None:
        self.assignments[assignment.key] = assignment
        self.slots.take(assignment.state)
        self.held()

    # Hosts.

    def welcome(self, host: Receiver) -> None:
        """A host is ready: it gets what is waiting and all work from now on; one before it keeps what it has."""
        self._hosts.add(host)
        self.served = served_by(host.routines)
        waiting, self._waiting = self._waiting, []
        self.start(waiting)

    def start(self, assignments: Iterable[Assignment]) -> None:
        """Give journaled assignments to the host, in one frame; without a host they wait for the next one.

        A suspect waits for a host of its own, where there can be one, which starts beside the next one for all.
        """
        host = self._hosts.newest
        ready: list[Assignment] = []
        for current in filter(None, [self._startable(each.key) for each in assignments]):
            is_known = is_served(self.served, current.state, current.version)
            if is_known and current.is_suspect and self.alone(current.key):
                continue
            if host is None:
                self._waiting.append(current)
            elif is_known:
                ready.append(current)
            else:
                self.give_up(current.key)
        if host is not None and ready:
            self._send(host, ready)

    def start_alone(self, host: Receiver, key: Key) -> None:
        """Give a suspect to the host that was started for it, and nothing else ever."""
        self._hosts.add(host, is_open=False)
        current = self._startable(key)
        if current is not None:
            self._send(host, [current])

    def give_up(self, key: Key) -> None:
        """No host will start this one: it is given back."""
        if self._startable(key) is not None:
            self._raws.pop(key, None)
            self.give_back(key, "not_started")

    def _startable(self, key: Key) -> Assignment | None:
        """Return an assignment whose routine is to be started; what was let go meanwhile is settled."""
        current = self.assignments.get(key)
        if current is not None and current.phase is Phase.STARTING and not current.host:
            return current
        self._raws.pop(key, None)
        if current is not None and current.phase is Phase.CANCELLING:
            self.give_back(key, "not_started")
        return None

    def _send(self, host: Receiver, assignments: Iterable[Assignment]) -> None:
        now = anyio.current_time()
        runs: list[frames.Frame] = []
        for current in assignments:
            timeout_s = self.timeouts.get(current.state)
            sent = msgspec.structs.replace(current, host=host.generation, sent_at=now, timeout_s=timeout_s)
            self.assignments[current.key] = sent
            runs.append(run_of(sent, self._raws.pop(current.key), self.confinements.get(current.state), now))
        host.send(runs)

    def give_back(self, key: Key, reason: str) -> None:
        """Nobody goes on with this attempt here: release it, or fail it where that is not offered."""
        self.happen(key, GivenBack(reason, can_release=self._control_plane.terms.offers("release")))

    def bury(self, generation: int, reason: str, *, others: int = 0) -> int:
        """A host is gone: settle what it had. Return how many assignments that were.

        Args:
            generation: which host.
            reason: how it ended.
            others: routines that still ran in it although their attempt was over; one of them may be the culprit.
        """
        self.leave(generation)
        had = [a for a in self.assignments.values() if a.host == generation and a.phase in IN_HOST]
        running = [a for a in had if a.phase in RUNNING]
        died = HostDied(
            reason=reason,
            is_alone=len(running) == 1 and len(had) == 1 and not others,
            can_release=self._control_plane.terms.offers("release"),
        )
        for assignment in had:
            self.happen(assignment.key, died)
        return len(running)

    def end(self, outcome: frames.Outcome, at: float) -> None:
        """A routine ended. One that was cancelled for a stop is given back rather than failed (A-43)."""
        key = (outcome.task, outcome.attempt)
        if outcome.is_abandoned:
            self._log.tell("routine.abandoned", **self.names(key))
        if outcome.is_dropped and self.is_draining:
            self.give_back(key, "drain")
        else:
            self.happen(key, outcome, at)

    def has_work_in(self, generation: int) -> bool:
        """Return whether a routine may still run in that host."""
        return any(a.host == generation and a.phase in IN_HOST for a in self.assignments.values())

    @property
    def is_ready(self) -> bool:
        """Whether there is a host that takes work."""
        host = self._hosts.newest
        return host is not None and not host.is_stalled

    # What happens.

    def happen(self, key: Key, happening: Happening, at: float | None = None) -> None:
        """Advance one assignment and carry the effects out. News of one that is over is nothing.

        Args:
            key: task and attempt.
            happening: what happened.
            at: when, on the loop's clock; now where many things happen one by one.
        """
        assignment = self.assignments.get(key)
        if assignment is None:
            return
        now = anyio.current_time() if at is None else at
        after, effects = advance(assignment, happening, now)
        if after is not assignment:
            self.assignments[key] = after
        for effect in effects:
            self._carry(after, effect, now)

    def _carry(self, assignment: Assignment, effect: Effect, at: float) -> None:
        key = assignment.key
        match effect:
            case Keep():
                self._keep(assignment, effect.report)
            case Free():
                self.slots.give(assignment.state)
                self.freed()
            case Send():
                self._delivery.put(self._envelopes.pop(key))
            case Close():
                del self.assignments[key]
                self._log.tell("task.finished", **finished(assignment, effect.ending, at))
            case Tell():
                self._log.tell(effect.event, **names_of(assignment), **effect.keys)
            case Drop():
                self._delivery.drop(key)
                self._journal.batch.attempts_over.append(key)
                self._journal.write_soon()
            case Cancel():
                self._cancel(assignment, effect.cause)

    def _keep(self, assignment: Assignment, report: TaskMessage) -> None:
        bytes_max = self._control_plane.terms.body_bytes_max
        _, body = reports.write(report, bytes_max)
        self._envelopes[assignment.key] = self._keeping.write(assignment, "report", body)
        self._journal.batch.grants_over.append(assignment.key)

    def take_word(self, word: frames.Noted | frames.Remembered) -> None:
        """A note or a memory write of a routine that is still ours: on disk first, then delivered."""
        assignment = self.assignments.get((word.task, word.attempt))
        if assignment is None or assignment.phase not in RUNNING:
            return
        if isinstance(word, frames.Noted):
            self._log.tell("task.noted", text=word.text, **names_of(assignment))
        message = reports.word(word)
        self._keeping.write(assignment, message.kind, msgspec.json.encode(message))

    def _on_written(self, envelopes: list[Envelope]) -> None:
        now = anyio.current_time()
        for envelope in envelopes:
            key = (envelope.task, envelope.attempt)
            if envelope.kind == "report":
                self.happen(key, KEPT, now)
            elif key in self.assignments and self.assignments[key].phase not in LET_GO:
                self._delivery.put(envelope)

    def settle(self, envelope: Envelope, result: Result) -> None:
        """The control plane has said what becomes of a message."""
        key = (envelope.task, envelope.attempt)
        code, error = result.code or str(result.status), result.error or ""
        if envelope.kind == "report":
            self.happen(key, DELIVERED if result.status < 400 else Declined(code=code, sentence=error))
            self.delivered()
        elif result.status >= 400:
            self._log.tell(
                "message.refused", message=envelope.kind, code=code, error=error, **origin_of(envelope)
            )
            if result.status not in GONE:
                self._journal.set_aside(envelope, f"the control plane refused it ({code}): {error}")

    def _cancel(self, assignment: Assignment, cause: str) -> None:
        if assignment.host:
            self.tell_host([frames.Cancel(task=assignment.task, attempt=assignment.attempt, cause=cause)])
        else:
            self._raws.pop(assignment.key, None)
            self.give_back(assignment.key, "not_started")

    # Facts.

    def running_in(self, generation: int, state: str | None = None) -> list[Key]:
        """Return the attempts of one state, or of all, that run in one host."""
        found = (a for a in self.running if a.host == generation)
        return [a.key for a in found if state in (None, a.state)]

    def names(self, key: Key) -> dict[str, object]:
        """Return what stands on every log line of an attempt (A-58)."""
        assignment = self.assignments.get(key)
        return {"task": key[0], "attempt": key[1]} if assignment is None else names_of(assignment)

    @property
    def running(self) -> list[Assignment]:
        """Those whose routine has not ended."""
        return [a for a in self.assignments.values() if a.phase in RUNNING]
