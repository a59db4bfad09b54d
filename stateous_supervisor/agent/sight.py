"""How the agent's parts are looked at, all at one moment, without waiting for any of them.

Called by `Supervisor.look`; changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import anyio

from stateous_supervisor.agent.overview import Broken, HostFacts, RunningTask, Snapshot
from stateous_supervisor.agent.receivers import served_by

if TYPE_CHECKING:
    from stateous_supervisor.agent.assignment import Assignment, Identity
    from stateous_supervisor.agent.contact import Contact
    from stateous_supervisor.agent.delivery import Delivery
    from stateous_supervisor.agent.heartbeats import Heartbeats
    from stateous_supervisor.agent.hosts import Hosts
    from stateous_supervisor.agent.journal import Journal
    from stateous_supervisor.agent.output import Last
    from stateous_supervisor.agent.roster import Roster
    from stateous_supervisor.agent.tally import Tally


WAITING: Final = ("keeping", "reporting")


class Named(Protocol):
    """What an agent is called, and what it serves."""

    @property
    def identity(self) -> Identity: ...
    @property
    def url(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def version(self) -> str: ...


class Sights(NamedTuple):
    """The parts that are looked at."""

    roster: Roster
    hosts: Hosts
    contact: Contact
    heartbeats: Heartbeats
    delivery: Delivery
    journal: Journal


def look(
    named: Named,
    parts: Sights,
    *,
    tally: Tally,
    phase: str,
    uptime_s: float,
    reload_error: str | None,
    late_loops: list[str],
) -> Snapshot:
    """Return what all parts show now."""
    now = anyio.current_time()
    roster, contact, beats = parts.roster, parts.contact, parts.heartbeats
    return Snapshot(
        version=named.version,
        supervisor=named.identity.supervisor,
        instance=named.identity.instance,
        pid=os.getpid(),
        folder=named.folder,
        url=named.url,
        uptime_s=round(uptime_s, 1),
        phase=phase,
        is_reached=contact.is_reached,
        away_s=_rounded(contact.away_s),
        away_cause=contact.away_cause,
        refused_s=_rounded(contact.standing.refused_s),
        is_claiming=phase == "serving"
        and any(map(contact.suits, roster.served))
        and not contact.standing.is_refused
        and parts.journal.is_writable,
        slots=roster.slots.total,
        slots_taken=roster.slots.held,
        tasks=[_task(each, parts.hosts.output.last(each.key), now) for each in roster.assignments.values()],
        beat_age_s=None if beats.answered_at is None else round(now - beats.answered_at, 1),
        beat_failures=beats.failures,
        outbox_depth=parts.delivery.depth,
        outbox_is_writable=parts.journal.is_writable,
        outbox_is_copied=parts.journal.is_copied,
        set_aside=parts.journal.aside,
        outbox_age_s=_oldest(roster.assignments.values(), now),
        hosts=_hosts(parts, now),
        host_deaths=tally.events["host.ended"],
        last_death=tally.last_death,
        broken=[Broken(file=each.file, line=each.line, error=each.error) for each in parts.hosts.broken],
        mend=f"stateous-supervisor contract {named.folder}" if contact.differs else None,
        outdated=sorted(contact.changed),
        reload_error=reload_error,
        late_loops=late_loops,
    )


def _rounded(span_s: float | None) -> float | None:
    return None if span_s is None else round(span_s, 1)


def _task(assignment: Assignment, printed: Last, now: float) -> RunningTask:
    a = assignment
    return RunningTask(
        task=a.task,
        attempt=a.attempt,
        state=a.state,
        token=a.token,
        phase=a.phase.value,
        age_s=round(now - a.claimed_at, 1),
        lease_left_s=round(a.trusted_until - now, 1),
        heartbeats=a.beats,
        host=a.host,
        printed=printed.lines,
        last_line=printed.text,
    )


def _oldest(assignments: Iterable[Assignment], now: float) -> float:
    """Return for how long the oldest outcome has waited to be delivered."""
    ended = [a.ended_at for a in assignments if a.phase.value in WAITING and a.ended_at is not None]
    return round(now - min(ended), 1) if ended else 0.0


def _hosts(parts: Sights, now: float) -> list[HostFacts]:
    running = [a.host for a in parts.roster.running]
    return [
        HostFacts(
            generation=line.host.generation,
            pid=line.host.pid,
            python=line.host.python,
            states=list(served_by(line.host.routines)),
            age_s=round(now - line.welcomed_at, 1),
            running=running.count(line.host.generation),
            abandoned=line.abandoned,
            loop_lag_s=round(line.pulse.loop_lag_s, 3),
            silent_s=0.0 if line.stalls is None else round(line.stalls.silent_s(now), 1),
            is_retired=line.is_retired,
            is_for_suspect=line.suspect is not None,
        )
        for line in parts.hosts.lines
        if line.host is not None
    ]
