"""What the agent shows of itself: one value for `status`, and the line that systemd shows. Pure.

`Supervisor.look` fills it; `status`, the notify loop and the metrics read it. No payload, context or key is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

NAMED_MAX: Final = 3


class RunningTask(msgspec.Struct, kw_only=True):
    """One attempt that this agent holds. Spans are seconds; `lease_left_s` below 0: the lease is doubted.

    `printed` counts the lines of its output, of which `last_line` is the newest.
    """

    task: int
    attempt: int
    state: str
    token: str
    phase: str
    age_s: float
    lease_left_s: float
    heartbeats: int
    host: int
    printed: int = 0
    last_line: str | None = None


class HostFacts(msgspec.Struct, kw_only=True):
    """One routine host. A retired one gets no more work and ends with its last routine, as one for a suspect does.

    `silent_s` is for how long it has not answered: a routine holds its interpreter.
    """

    generation: int
    pid: int
    python: str
    states: list[str]
    age_s: float
    running: int
    abandoned: int = 0
    loop_lag_s: float = 0.0
    silent_s: float = 0.0
    is_retired: bool = False
    is_for_suspect: bool = False


class Broken(msgspec.Struct, kw_only=True):
    """A file of the folder that is left out."""

    file: str
    line: int | None
    error: str


class Snapshot(msgspec.Struct, kw_only=True):
    """How the agent is, at one moment.

    `mend` is the command that refreshes the folder's contract, None while it fits; until then nothing is claimed for
    the states that are `outdated`, and nothing at all where none is named. `last_death` is how a host ended.
    """

    version: str
    supervisor: str
    instance: str
    pid: int
    folder: str
    url: str
    uptime_s: float
    phase: str  # starting, serving, stopping
    is_reached: bool
    away_s: float | None
    away_cause: str | None = None
    refused_s: float | None = None
    is_claiming: bool
    slots: int
    slots_taken: int
    tasks: list[RunningTask]
    beat_age_s: float | None
    beat_failures: int
    outbox_depth: int
    outbox_is_writable: bool
    outbox_age_s: float = 0.0
    outbox_is_copied: bool = False
    set_aside: list[str] = []
    hosts: list[HostFacts]
    host_deaths: int = 0
    last_death: str | None = None
    broken: list[Broken]
    mend: str | None = None
    outdated: list[str] = []
    reload_error: str | None = None
    late_loops: list[str] = []

    @property
    def abandoned(self) -> int:
        """How many routines go on although their attempt is over."""
        return sum(host.abandoned for host in self.hosts)

    @property
    def silent(self) -> list[HostFacts]:
        """The hosts that do not answer."""
        return [host for host in self.hosts if host.silent_s]

    @property
    def lacks_host(self) -> bool:
        """Whether the last host died and there is no other one yet."""
        return not self.hosts and self.last_death is not None and self.phase == "serving"

    @property
    def running(self) -> list[RunningTask]:
        return [task for task in self.tasks if task.phase in ("starting", "running")]


class Reloaded(msgspec.Struct, kw_only=True):
    """What came of a reload. With an `error` the old configuration, folder and host go on."""

    error: str | None = None
    host: int = 0
    states: list[str] = []
    needs_restart: list[str] = []


class Drained(msgspec.Struct, kw_only=True):
    """How an agent ended, and how many messages it keeps for its next start."""

    exit_code: int
    kept: int


def headline(seen: Snapshot) -> str:
    """Return the one line that `systemctl status` shows, worst news first."""
    parts = [f"reload refused: {seen.reload_error}"] if seen.reload_error else []
    if seen.phase != "serving":
        parts.append(seen.phase)
    parts.append(f"{len(seen.running)}/{seen.slots} running")
    if seen.running:
        oldest = max(seen.running, key=lambda task: task.age_s)
        parts.append(f"oldest {oldest.state} {span(oldest.age_s)}")
    parts += _standing(seen)
    if seen.lacks_host:
        parts.append(f"no routine host, the last one ended: {seen.last_death}")
    if seen.silent:
        longest_s = max(host.silent_s for host in seen.silent)
        parts.append(f"{len(seen.silent)} of {len(seen.hosts)} hosts silent for {span(longest_s)}")
    if not seen.outbox_is_writable:
        parts.append("the disk refuses, no claims")
    if seen.beat_age_s is not None and seen.tasks:
        parts.append(f"beat {span(seen.beat_age_s)} ago")
    if seen.outbox_depth:
        parts.append(f"{seen.outbox_depth} to deliver")
    if seen.set_aside:
        parts.append(f"{len(seen.set_aside)} set aside")
    if seen.broken:
        parts.append(f"left out: {named([each.file for each in seen.broken])}")
    parts.append(f"{seen.abandoned} abandoned")
    return ", ".join(parts)


def _standing(seen: Snapshot) -> list[str]:
    """Say how we stand with the control plane, if not well."""
    if seen.away_s is not None:
        return [f"control plane away for {span(seen.away_s)}"]
    if not seen.is_reached:
        return ["control plane not reached yet"]
    if seen.refused_s is not None:
        return [f"the key is refused for {span(seen.refused_s)}, no claims"]
    if seen.mend is not None:
        return [f"no claims{_of_states(seen)} until '{seen.mend}'"]
    if not seen.is_claiming and seen.outbox_is_writable and seen.phase == "serving":
        return ["claims are stopped"]
    return []


def _of_states(seen: Snapshot) -> str:
    return f" for {named(seen.outdated)}" if seen.outdated else ""


def named(names: Sequence[str]) -> str:
    """Return names as one line holds them: `a.py, b.py, c.py and 4 more`."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def span(seconds: float) -> str:
    """Return a span as people say it: `3 s`, `12 m`, `5 h`, `2 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size * (2 if unit != "m" else 1):
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
