"""Whether the control plane accepts our key (A-51). While it does not, one loop asks and all others wait.

Held tasks are asked about by the heartbeats; without any, claims ask, at intervals of minutes. Called by the contact,
which every loop tells how it fared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import anyio

from stateous_supervisor.agent.faults import Denied
from stateous_supervisor.agent.logs import Log

QUIET_S: Final = 60.0


class Standing:
    """What is known of our key. `accepted` is called when it is accepted again."""

    def __init__(self, log: Log) -> None:
        self.accepted: Callable[[], None] = lambda: None
        self._log = log
        self._since: float | None = None
        self._refusals = 0
        self._told_at = -math.inf

    @property
    def is_refused(self) -> bool:
        return self._since is not None

    @property
    def refused_s(self) -> float | None:
        """For how long the key has been refused; None while it is not."""
        return None if self._since is None else anyio.current_time() - self._since

    def refuse(self, error: Denied, next_in_s: float) -> None:
        """Somebody was refused, and asks again in `next_in_s`."""
        now = anyio.current_time()
        if self._since is None:
            self._since = now
        self._refusals += 1
        if now - self._told_at >= QUIET_S:
            self._told_at = now
            self._log.tell(
                "key.refused", error=error.sentence, failures=self._refusals, next_in_s=round(next_in_s, 1)
            )

    def accept(self) -> None:
        """Somebody was answered."""
        if self._since is None:
            return
        self._log.tell("key.accepted", refused_s=round(anyio.current_time() - self._since, 1))
        self._since, self._refusals, self._told_at = None, 0, -math.inf
        self.accepted()
