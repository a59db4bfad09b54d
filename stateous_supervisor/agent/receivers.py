"""The hosts that read what the roster sends: the newest gets all new work, those before it hear of what they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Raw

from stateous_supervisor.agent.assignment import Assignment
from stateous_supervisor.link import frames


class Receiver(Protocol):
    """The host that gets new work, as far as the roster needs it."""

    generation: int
    routines: Sequence[frames.RoutineFacts]

    @property
    def is_stalled(self) -> bool: ...

    def send(self, messages: Sequence[frames.Frame]) -> None: ...


# The versions of what is served: by state, or by ``@`` and the name of a routine without a graph.
Served = Mapping[str, Sequence[int]]
UNCONFINED: Final = frames.Confinement()


def served_by(routines: Iterable[frames.RoutineFacts]) -> Served:
    """Return what routines serve, in their order."""
    served: dict[str, list[int]] = {}
    for routine in routines:
        served.setdefault(routine.state, []).extend(routine.versions)
    return served


def is_served(served: Served, work: str, version: int) -> bool:
    """Say whether there is a routine of that version; 0 where any will do."""
    return work in served and version in (0, *served[work])


def run_of(sent: Assignment, grant: Raw, confinement: frames.Confinement | None, now: float) -> frames.Run:
    """Return what tells a host to run the routine of an assignment, `now` being when it is told."""
    return frames.Run(
        grant=grant,
        lease_s=max(0.0, sent.trusted_until - now),
        timeout_s=sent.timeout_s,
        confinement=confinement or UNCONFINED,
    )


class Receivers:
    """The hosts that there are. `newest` is None while there is none that takes work."""

    def __init__(self) -> None:
        self.newest: Receiver | None = None
        self._all: dict[int, Receiver] = {}

    def add(self, host: Receiver, *, is_open: bool = True) -> None:
        """Take a host in. One that is not open takes only what it was started for."""
        self._all[host.generation] = host
        if is_open:
            self.newest = host

    def close(self, generation: int) -> None:
        """Give a host no new work; until another one is added, nobody gets any."""
        if self.newest is not None and self.newest.generation == generation:
            self.newest = None

    def drop(self, generation: int) -> None:
        self._all.pop(generation, None)
        self.close(generation)

    def tell(self, messages: Sequence[frames.Frame]) -> None:
        """Send something to each: whose it is not passes over it."""
        for host in self._all.values():
            host.send(messages)
