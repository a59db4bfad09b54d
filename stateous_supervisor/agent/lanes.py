"""What the claims loop remembers of the claims that may be out, and of states that are refused."""

from __future__ import annotations

import math

import anyio

from stateous_supervisor.agent.slots import NO_ROOM, Room
from stateous_supervisor.agent.wake import Wake


class Lane:
    """One claim that may be out, and its request id."""

    def __init__(self) -> None:
        self.request: str | None = None
        self.promised: Room = NO_ROOM
        self.sent_at: float | None = None
        self.failures = 0
        self.violations = 0
        self.wake = Wake()
        self.again = Wake()
        self.scope = anyio.CancelScope()


class Bar:
    """A state whose claims are refused, until when, and how often in a row."""

    def __init__(self) -> None:
        self.failures = 0
        self.until = -math.inf
