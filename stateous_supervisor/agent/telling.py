"""What the log says of an attempt. Pure; called by the roster, which adds the event's name."""

from __future__ import annotations

from typing import Final

from stateous_supervisor.agent.assignment import Assignment
from stateous_supervisor.agent.outbox import Envelope
from stateous_supervisor.agent.reports import shown_s

MB: Final = 1_048_576


def names_of(assignment: Assignment) -> dict[str, object]:
    """Return what stands on every log line of an attempt (A-58)."""
    return _names(assignment.task, assignment.attempt, assignment.token, assignment.state)


def origin_of(envelope: Envelope) -> dict[str, object]:
    """Return whose a message is, also where its assignment is over."""
    return _names(envelope.task, envelope.attempt, envelope.token, envelope.state)


def _names(task: int, attempt: int, token: str, state: str) -> dict[str, object]:
    """What is served behind an ``@`` is a routine without a graph, which has no token."""
    if state.startswith("@"):
        return {"task": task, "attempt": attempt, "routine": state[1:]}
    return {"task": task, "attempt": attempt, "token": token, "state": state}


def finished(assignment: Assignment, ending: str, at: float) -> dict[str, object]:
    """Return the keys of the one line that ends each attempt.

    Of a routine that has not begun in this process, nobody knows here how long it waited and ran.

    Args:
        assignment: what ended.
        ending: how: delivered, refused, lost or settled elsewhere.
        at: when, on the clock of its times.
    """
    a = assignment
    began_at = a.began_at if a.began_at is not None else a.claimed_at
    ended_at = a.ended_at if a.ended_at is not None else began_at
    return {
        **names_of(a),
        "outcome": a.outcome,
        "event_name": a.event,
        "ending": ending,
        "duration_s": None if a.began_at is None else shown_s(ended_at - began_at),
        "queue_s": None if a.began_at is None else shown_s(began_at - a.claimed_at),
        "report_s": shown_s(at - ended_at),
        "heartbeats": a.beats,
        "cpu_s": a.cpu_s,
        "peak_mb": None if a.peak_bytes is None else round(a.peak_bytes / MB, 1),
    }
