"""A line of hosts: a source, and the host that there is of it. A reload or a replacement begins another line."""

from __future__ import annotations

import anyio

from stateous_supervisor.agent.host import Host, HostSource
from stateous_supervisor.agent.stalls import Stalls
from stateous_supervisor.link.frames import Pulse

Key = tuple[int, int]


class Line:
    """A source and the host that there is of it. A reload replaces the line; a retired one ends with its work.

    One for a `suspect` is retired from the beginning: it has one host, and that takes nothing else.
    `is_giving_way`: another line is on its way that takes its place; `is_unfit` and `has_hung` say why.
    `end` is why its host was ended by force.
    """

    def __init__(self, source: HostSource, suspect: Key | None = None) -> None:
        self.source = source
        self.suspect = suspect
        self.host: Host | None = None
        self.generation = 0
        self.welcomed_at = 0.0
        self.pulse = Pulse(loop_lag_s=0.0)
        self.abandoned = 0
        self.is_giving_way = False
        self.is_unfit = False
        self.has_hung = False
        self.end: str | None = None
        self.scope = anyio.CancelScope()
        self.is_retired = suspect is not None
        self.settled = anyio.Event()
        self.fault: str | None = "the agent stopped meanwhile"
        self.stalls: Stalls | None = None

    @property
    def can_give_way(self) -> bool:
        """Whether another line may take its place, and none is on its way."""
        return not self.is_retired and not self.is_giving_way and self.source.can_add

    def welcome(self, host: Host, at: float) -> None:
        """Begin anew with another host, which is loaded."""
        self.fault, self.end, self.abandoned = None, None, 0
        self.is_giving_way = self.is_unfit = self.has_hung = False
        self.host, self.welcomed_at = host, at
