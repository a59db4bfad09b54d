"""The agent's metrics as Prometheus text (A-59). Pure: what is shown and what was counted in, text out.

Ids are never labels; states and outcomes are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from stateous_supervisor.agent.overview import Snapshot
from stateous_supervisor.agent.tally import BUCKETS_S, Tally

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "stateous_supervisor_"


class Metric(NamedTuple):
    """One metric: its kind, its labels, and what it says."""

    kind: str
    labels: tuple[str, ...]
    about: str


METRICS: Final[Mapping[str, Metric]] = {
    "info": Metric("gauge", ("version",), "Always 1; the agent's version."),
    "uptime_seconds": Metric("gauge", (), "How long the agent has run."),
    "control_plane_up": Metric("gauge", (), "1 while the control plane answers."),
    "slots": Metric("gauge", (), "How many routines may run at once."),
    "running": Metric("gauge", ("state",), "Routines that run."),
    "claims_total": Metric("counter", ("state",), "Tasks that were claimed."),
    "attempts_total": Metric("counter", ("state", "outcome"), "Attempts that ended, by outcome."),
    "attempt_duration_seconds": Metric("histogram", ("state",), "How long routines ran."),
    "heartbeat_age_seconds": Metric("gauge", (), "Since a heartbeat was answered; absent before the first."),
    "heartbeat_failures_total": Metric("counter", (), "Heartbeats that were not answered."),
    "lost_total": Metric("counter", (), "Leases that the control plane took away."),
    "abandoned": Metric("gauge", (), "Routines that go on although their attempt is over."),
    "outbox_messages": Metric("gauge", (), "Messages that wait to be delivered."),
    "outbox_age_seconds": Metric("gauge", (), "How long the oldest outcome has waited."),
    "outbox_writable": Metric("gauge", (), "1 while the disk takes writes."),
    "outbox_set_aside": Metric("gauge", (), "Records and files that cannot be read or sent, and are kept."),
    "host_deaths_total": Metric("counter", (), "Routine hosts that died and were replaced."),
    "hosts": Metric(
        "gauge",
        (),
        "Routine hosts that live; more than one while a reload lasts, a suspect runs, or one hangs.",
    ),
    "hosts_silent": Metric("gauge", (), "Routine hosts that do not answer: a routine holds the interpreter."),
    "loop_lag_seconds": Metric("gauge", (), "How late the event loop of the routines is, at worst."),
    "replays_diverged_total": Metric(
        "counter", (), "Attempts that did not come by steps that had been passed."
    ),
    "broken_files": Metric("gauge", (), "Files of the folder that are left out."),
    "reloads_refused_total": Metric("counter", (), "Reloads of a bad configuration or folder."),
}

Sample = tuple[str, Mapping[str, str], float]


def render(seen: Snapshot, counted: Tally) -> str:
    """Return the page for Prometheus."""
    lines: list[str] = []
    for name, metric in METRICS.items():
        lines += (f"# HELP {PREFIX}{name} {metric.about}", f"# TYPE {PREFIX}{name} {metric.kind}")
        lines += (
            _line(name + ending, labels, value) for ending, labels, value in _samples(name, seen, counted)
        )
    return "\n".join(lines) + "\n"


def _samples(name: str, seen: Snapshot, counted: Tally) -> Iterable[Sample]:
    """Return the samples of one metric: what is added to its name, labels, value."""
    match name:
        case "info":
            return [("", {"version": seen.version}, 1.0)]
        case "running":
            running = Counter(task.state for task in seen.running)
            states = {state for host in seen.hosts for state in host.states} | running.keys()
            return [("", {"state": state}, running[state]) for state in sorted(states)]
        case "claims_total":
            return [("", {"state": state}, count) for state, count in sorted(counted.claimed.items())]
        case "attempts_total":
            return [
                ("", {"state": state, "outcome": outcome}, count)
                for (state, outcome), count in sorted(counted.outcomes.items())
            ]
        case "attempt_duration_seconds":
            return _durations(counted)
    value = _numbers(seen, counted)[name]
    return [] if value is None else [("", {}, value)]


def _numbers(seen: Snapshot, counted: Tally) -> Mapping[str, float | None]:
    """Return the metrics without labels."""
    events = counted.events
    return {
        "uptime_seconds": seen.uptime_s,
        "control_plane_up": seen.is_reached,
        "slots": seen.slots,
        "heartbeat_age_seconds": seen.beat_age_s,
        "heartbeat_failures_total": events["heartbeat.missed"],
        "lost_total": events["lease.lost"],
        "abandoned": seen.abandoned,
        "outbox_messages": seen.outbox_depth,
        "outbox_age_seconds": seen.outbox_age_s,
        "outbox_writable": seen.outbox_is_writable,
        "outbox_set_aside": len(seen.set_aside),
        "replays_diverged_total": events["replay.diverged"],
        "host_deaths_total": events["host.ended"],
        "hosts": len(seen.hosts),
        "hosts_silent": len(seen.silent),
        "loop_lag_seconds": max((host.loop_lag_s for host in seen.hosts), default=0.0),
        "broken_files": len(seen.broken),
        "reloads_refused_total": events["reload.refused"],
    }


def _durations(counted: Tally) -> Iterator[Sample]:
    for state, found in sorted(counted.durations.items()):
        below = 0
        for bound in (*BUCKETS_S, math.inf):
            below += found[bound]
            shown = "+Inf" if bound == math.inf else f"{bound:g}"
            yield "_bucket", {"state": state, "le": shown}, below
        yield "_sum", {"state": state}, counted.duration_s[state]
        yield "_count", {"state": state}, below


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{PREFIX}{name}{{{inside}}} {value:.10g}" if inside else f"{PREFIX}{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
