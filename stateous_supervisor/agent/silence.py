"""What is due about a host that does not answer, and about the attempts in it. Pure; `replacing.py` does it.

A host is silent while a routine holds its interpreter: it can neither keep a `timeout` nor take work, and nobody
knows for how long. Its attempts are settled by the clock of the agent, in the words of the host; others take new work;
and it is ended when there is nothing in it that anybody waits for (ADR 55).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from stateous_supervisor.agent.assignment import Assignment
from stateous_supervisor.agent.receivers import UNCONFINED
from stateous_supervisor.link.frames import Confinement, Outcome, RoutineFacts, timed_out

OVERDUE_S: Final = 3.0  # after its timeout an attempt is settled if its host has said nothing for so long
USELESS_S: Final = 10.0  # a host without attempts that is silent for so long is ended
HUNG_S: Final = 25.0  # one with attempts gets no new work from then on
HUNG_MAX: Final = 8  # so many hosts that hung may be there besides the one that takes new work


class Fate(Enum):
    """What becomes of a host."""

    WAIT = "wait"
    REPLACE = "replace"  # another one takes new work; this one finishes what it has, if it ever speaks again
    END = "end"


def fate(silent_s: float, *, can_end: bool, can_replace: bool, hung: int) -> Fate:
    """Return what becomes of a host that has said nothing, or whose loop has not turned, for `silent_s`.

    Args:
        silent_s: how long, in seconds.
        can_end: whether every attempt in it is over, isolated ones too (their processes end with it), and it can be
            ended by force and has not been.
        can_replace: whether another one may take its place, and none is on its way.
        hung: how many hosts are there that another one took the place of for this.
    """
    if can_end and silent_s >= USELESS_S:
        return Fate.END
    if can_replace and hung < HUNG_MAX and silent_s >= HUNG_S:
        return Fate.REPLACE
    return Fate.WAIT


def overdue(
    running: Iterable[Assignment],
    routines: Sequence[RoutineFacts],
    confinements: Mapping[str, Confinement],
    *,
    heard_at: float,
    now: float,
) -> list[Outcome]:
    """Return the ends of those whose timeout has passed, as their host would have told them (A-20).

    Args:
        running: what runs in the host, isolated routines too.
        routines: what the host loaded; their own timeouts count where the configuration gives none.
        confinements: by state; an isolated routine has its grace before it is over.
        heard_at: when the host last said something.
        now: the time; both on the clock of the assignments.
    """
    return [
        Outcome(
            task=each.task,
            attempt=each.attempt,
            outcome="failed",
            error=f"{timed_out(limit_s)}, and its host does not answer",
            is_abandoned=True,
            duration_s=now - each.sent_at,
        )
        for each in running
        for limit_s, grace_s in _limits(each, routines, confinements)
        if now >= max(each.sent_at + limit_s + grace_s, heard_at) + OVERDUE_S
    ]


def _limits(
    assignment: Assignment, routines: Sequence[RoutineFacts], confinements: Mapping[str, Confinement]
) -> Iterable[tuple[float, float]]:
    """Return the timeout of an attempt and the grace that it has beyond, if it has any, in seconds."""
    a, confinement = assignment, confinements.get(assignment.state, UNCONFINED)
    facts = next(
        (f for f in routines if f.state == a.state and (not a.version or a.version in f.versions)), None
    )
    if facts is None:
        return
    limit_s = facts.timeout_s if a.timeout_s is None else a.timeout_s
    is_isolated = (confinement.isolation or facts.isolation) == "process"
    if limit_s is not None:
        yield limit_s, confinement.grace_s if is_isolated else 0.0
