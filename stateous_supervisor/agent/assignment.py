"""The life of one claimed task as a table: what happened, and what is to be done about it.

Pure. Time is an argument, nothing is read or sent here. `advance` is called by the roster, which carries the
effects to the doors. A pair of phase and happening that is not in `LIFE` changes nothing: late news of
something that is over. Three rules hold whatever happens: one report for an attempt (a refused one is
replaced once), no report after letting go, nothing after OVER. `tests/supervisor/test_assignment.py` walks
every cell.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace
from stateous_contract.codes import Code
from stateous_contract.messages import TaskMessage

from stateous_supervisor.agent import reports
from stateous_supervisor.link.frames import Began, Outcome


class Phase(StrEnum):
    """Where an assignment stands."""

    STARTING = "starting"  # journaled and given to a host; its first line has not run
    RUNNING = "running"
    CANCELLING = "cancelling"  # let go: the routine may still run, its result is dropped
    PARKED = "parked"  # the control plane has parked the task: the routine is leaving
    KEEPING = "keeping"  # there is an outcome, on its way to the disk
    REPORTING = "reporting"  # the outcome is on disk and not yet delivered
    OVER = "over"


class Identity(msgspec.Struct, frozen=True):
    """Who claimed: the name of the supervisor and its process's instance. All messages go out under these."""

    supervisor: str
    instance: str


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one task, as this agent knows it. Times are the agent's monotonic clock, in seconds.

    `sent_at` is when `host` got it; `timeout_s` is that of the configuration, where it gives one.
    `state` is what it is served as (`frames.work_of`), `version` that of its routine, 0 where it does not matter.
    """

    task: int
    attempt: int
    state: str
    token: str
    version: int = 0
    identity: Identity
    claimed_at: float
    trusted_until: float
    host: int = 0
    sent_at: float = 0.0
    timeout_s: float | None = None
    phase: Phase = Phase.STARTING
    began_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    event: str | None = None
    beats: int = 0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    is_suspect: bool = False
    is_doubted: bool = False
    is_slot_free: bool = False
    parking: int = 0
    is_replaced: bool = False
    in_place_of_dropped: TaskMessage | None = None

    @property
    def key(self) -> tuple[int, int]:
        return (self.task, self.attempt)


def recovered(
    key: tuple[int, int], state: str, token: str, identity: Identity, *, at: float, left: TaskMessage | None
) -> Assignment:
    """Return an attempt of an earlier process, which left a report on disk or none. It takes no slot."""
    return Assignment(
        task=key[0],
        attempt=key[1],
        state=state,
        token=token,
        identity=identity,
        claimed_at=at,
        trusted_until=at,
        ended_at=None if left is None else at,
        outcome=None if left is None else left.outcome,
        event=None if left is None else left.event,
        phase=Phase.STARTING if left is None else Phase.REPORTING,
        is_slot_free=True,
    )


# What can happen. `Began` and `Outcome` are the link's own messages.


class Lost(msgspec.Struct, frozen=True):
    """The control plane named this attempt lost; `by_beat` in the answer to a heartbeat."""

    cause: str
    by_beat: bool = False


class Parking(msgspec.Struct, frozen=True):
    """A call that may park the task goes out (`is_out`), or was answered."""

    is_out: bool


class Parked(msgspec.Struct, frozen=True):
    """The control plane has parked the task, by the call of that kind; the lease ended with it (S1-48).

    `unmet` is the step that a strict routine did not come by, where that is why.
    """

    call: str
    unmet: str | None = None


class Renewed(msgspec.Struct, frozen=True):
    """A heartbeat renewed the lease; it is trusted until then."""

    trusted_until: float


class Doubted(msgspec.Struct, frozen=True):
    """The lease can no longer be proven. Nobody said that it ended."""


class Slept(msgspec.Struct, frozen=True):
    """The box was suspended for so long, which our clock did not count and the control plane's did."""

    span_s: float


class Fenced(msgspec.Struct, frozen=True):
    """The lease will soon not be provable, and the routine is not to outlive it."""

    can_release: bool


class Kept(msgspec.Struct, frozen=True):
    """The outcome is on disk."""


class Delivered(msgspec.Struct, frozen=True):
    """The control plane has the outcome."""


class Declined(msgspec.Struct, frozen=True):
    """The control plane refused the outcome, for good."""

    code: str
    sentence: str


class HostDied(msgspec.Struct, frozen=True):
    """The host that had this attempt is gone. `is_alone`: no other attempt was in it."""

    reason: str
    is_alone: bool
    can_release: bool


class GivenBack(msgspec.Struct, frozen=True):
    """Nobody will go on with this attempt here: `drain`, `not_started` or `agent_died`."""

    reason: str
    can_release: bool


Happening = (
    Began
    | Outcome
    | Lost
    | Parking
    | Parked
    | Renewed
    | Doubted
    | Slept
    | Fenced
    | Kept
    | Delivered
    | Declined
    | HostDied
    | GivenBack
)


# What is to be done.


class Cancel(msgspec.Struct, frozen=True):
    """Tell the host to let go of the routine."""

    cause: str


class Keep(msgspec.Struct, frozen=True):
    """Write the outcome to disk; `Kept` follows."""

    report: TaskMessage


class Free(msgspec.Struct, frozen=True):
    """The slot can be used again."""


class Send(msgspec.Struct, frozen=True):
    """Deliver the outcome."""


class Drop(msgspec.Struct, frozen=True):
    """Forget everything on disk about this attempt; nothing more is sent for it."""


class Close(msgspec.Struct, frozen=True):
    """The assignment is over. `ending`: delivered, refused, parked, lost or settled elsewhere."""

    ending: str


class Tell(msgspec.Struct, frozen=True):
    """Log one event of `docs/reference/logs.md`."""

    event: str
    keys: dict[str, object]


Effect = Cancel | Keep | Free | Send | Drop | Close | Tell
Step = tuple[Assignment, tuple[Effect, ...]]

FREE: Final = Free()
SEND: Final = Send()
DROP: Final = Drop()

# What a heartbeat calls an attempt that parked, and one that was overtaken.
OVERTAKEN: Final = Code.ATTEMPT_OVER.wire

LET_GO: Final = frozenset({Phase.CANCELLING, Phase.PARKED})
UNMET_MAX: Final = 10

# Refusals that say "not yours any more": there is nothing to replace.
NOT_OURS: Final = frozenset({Code.ATTEMPT_OVER.wire, Code.TASK_NOT_HELD.wire, Code.TASK_NOT_FOUND.wire})


def advance(assignment: Assignment, happening: Happening, at: float) -> Step:
    """Return the assignment after `happening` at time `at`, and what is to be done."""
    cell = LIFE.get((assignment.phase, type(happening)))
    if cell is None:
        return assignment, ()
    return cell(assignment, happening, at)


def _begin(assignment: Assignment, _: Began, at: float) -> Step:
    return replace(assignment, phase=Phase.RUNNING, began_at=at), ()


def _end(assignment: Assignment, happening: Outcome, at: float) -> Step:
    dropped = assignment.in_place_of_dropped or reports.dropped(happening)
    report = dropped if happening.is_dropped else reports.of(happening)
    cost = replace(assignment, cpu_s=happening.cpu_s, peak_bytes=happening.peak_bytes)
    kept, effects = _keep(cost, report, at)
    if happening.unmet:
        steps = ", ".join(happening.unmet[:UNMET_MAX])
        effects = (*effects, Tell("replay.diverged", {"steps": steps, "count": len(happening.unmet)}))
    if report.outcome != "failed":
        return kept, effects
    return kept, (*effects, Tell("task.failed", {"error": report.error, "traceback": happening.traceback}))


def _lose(assignment: Assignment, happening: Lost, at: float) -> Step:
    """Let go, unless a heartbeat has overtaken the answer to a call that may have parked; that answer says more."""
    if happening.by_beat and assignment.parking and happening.cause == OVERTAKEN:
        return assignment, ()
    let_go = replace(assignment, phase=Phase.CANCELLING, ended_at=at, outcome="lost", is_slot_free=True)
    told = Tell("lease.lost", {"reason": happening.cause, "held_s": round(at - assignment.claimed_at, 3)})
    return let_go, (Cancel(happening.cause), DROP, FREE, told)


def _be_parking(assignment: Assignment, happening: Parking, _: float) -> Step:
    return replace(assignment, parking=assignment.parking + (1 if happening.is_out else -1)), ()


def _park(assignment: Assignment, happening: Parked, at: float) -> Step:
    parked = replace(assignment, phase=Phase.PARKED, ended_at=at, outcome="parked", is_slot_free=True)
    effects = (DROP, FREE, Tell("task.parked", {"call": happening.call}))
    if happening.unmet is None:
        return parked, effects
    return parked, (*effects, Tell("replay.diverged", {"steps": happening.unmet, "count": 1}))


def _renew(assignment: Assignment, happening: Renewed, _: float) -> Step:
    beats = assignment.beats + 1
    return replace(assignment, trusted_until=happening.trusted_until, is_doubted=False, beats=beats), ()


def _doubt(assignment: Assignment, _: Doubted, at: float) -> Step:
    if assignment.is_doubted:
        return assignment, ()
    told = Tell("lease.doubted", {"since_s": round(at - assignment.trusted_until, 3)})
    return replace(assignment, is_doubted=True), (told,)


def _sleep(assignment: Assignment, happening: Slept, _: float) -> Step:
    return replace(assignment, trusted_until=assignment.trusted_until - happening.span_s), ()


def _fence(assignment: Assignment, happening: Fenced, at: float) -> Step:
    """Stop the routine; what it ends with all the same is reported, and else the task is given back."""
    if assignment.in_place_of_dropped is not None:
        return assignment, ()
    report = reports.given_back(assignment.key, "fenced", can_release=happening.can_release)
    told = Tell("lease.fenced", {"left_s": round(assignment.trusted_until - at, 3)})
    return replace(assignment, in_place_of_dropped=report), (Cancel("fenced"), told)


def _lose_host(assignment: Assignment, happening: HostDied, at: float) -> Step:
    can_release = happening.can_release and not happening.is_alone
    return _keep(assignment, reports.host_died(assignment.key, happening.reason, can_release=can_release), at)


def _give_back(assignment: Assignment, happening: GivenBack, at: float) -> Step:
    report = reports.given_back(assignment.key, happening.reason, can_release=happening.can_release)
    return _keep(assignment, report, at)


def _keep(assignment: Assignment, report: TaskMessage, at: float) -> Step:
    kept = replace(assignment, phase=Phase.KEEPING, ended_at=at, outcome=report.outcome, event=report.event)
    return kept, (Keep(report),)


def _send(assignment: Assignment, _: Kept, __: float) -> Step:
    effects = (SEND,) if assignment.is_slot_free else (FREE, SEND)
    return replace(assignment, phase=Phase.REPORTING, is_slot_free=True), effects


def _deliver(assignment: Assignment, _: Delivered, __: float) -> Step:
    return _close(assignment, "delivered")


def _decline(assignment: Assignment, happening: Declined, at: float) -> Step:
    told = Tell("report.refused", {"code": happening.code, "error": happening.sentence})
    if happening.code in NOT_OURS or assignment.is_replaced:
        over, effects = _close(assignment, "refused")
        return over, (DROP, told, *effects)
    failure = reports.refused(assignment.key, happening.code, happening.sentence)
    kept, effects = _keep(replace(assignment, is_replaced=True), failure, at)
    return kept, (told, *effects)


def _leave(assignment: Assignment, happening: Happening, _: float) -> Step:
    if isinstance(happening, Outcome):
        assignment = replace(assignment, cpu_s=happening.cpu_s, peak_bytes=happening.peak_bytes)
    return _close(assignment, "parked" if assignment.phase is Phase.PARKED else "lost")


def _close(assignment: Assignment, ending: str) -> Step:
    return replace(assignment, phase=Phase.OVER), (Close(ending),)


Cell = Callable[..., Step]

_HELD: Final[dict[type, Cell]] = {
    Outcome: _end,
    Lost: _lose,
    Parking: _be_parking,
    Parked: _park,
    Renewed: _renew,
    Doubted: _doubt,
    Slept: _sleep,
    Fenced: _fence,
    HostDied: _lose_host,
    GivenBack: _give_back,
}

_ROWS: Final[dict[Phase, dict[type, Cell]]] = {
    Phase.STARTING: {Began: _begin, **_HELD},
    Phase.RUNNING: _HELD,
    Phase.CANCELLING: {Outcome: _leave, HostDied: _leave, GivenBack: _leave},
    Phase.KEEPING: {Kept: _send, Renewed: _renew, Slept: _sleep},
    # A report on its way is not called back by "lost": the answer to it says more (it may be the reason for
    # it).
    Phase.REPORTING: {Renewed: _renew, Slept: _sleep, Delivered: _deliver, Declined: _decline},
    Phase.OVER: {},
    Phase.PARKED: {Outcome: _leave, HostDied: _leave, GivenBack: _leave},
}

LIFE: Final[dict[tuple[Phase, type], Cell]] = {
    (phase, happening): cell for phase, row in _ROWS.items() for happening, cell in row.items()
}
