"""Whether every loop of the agent still turns: each says how soon it comes round again.

Only what happens in this process counts: a control plane that is away makes no loop late, because every call has a
deadline. The watchdog of systemd asks (A-55).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import anyio

Promise = Callable[[float], None]

SLACK_S: Final = 15.0  # a busy box makes every loop late; that is no reason to be killed


class Progress:
    """By when each loop must have come round."""

    def __init__(self) -> None:
        self._due_at: dict[str, float] = {}

    def of(self, loop: str) -> Promise:
        """Return what a loop calls with the seconds until it calls again; `math.inf` while it waits for a ring."""

        def promise(within_s: float) -> None:
            self._due_at[loop] = anyio.current_time() + within_s + SLACK_S

        return promise

    def late(self) -> list[str]:
        """Return the loops that have not kept their word."""
        now = anyio.current_time()
        return [loop for loop, due_at in self._due_at.items() if due_at < now]


def nothing(_: float = math.inf) -> None:
    """Stand in for a promise that nobody keeps."""
