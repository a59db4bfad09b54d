"""The door to the clocks that tell a sleep of the box: one counts it, the other does not (A-33)."""

from __future__ import annotations

import time
from typing import Final

from stateous_supervisor.agent.cadence import Reading

TRIES: Final = 3
APART_MAX_S: Final = 0.05  # a process that is held up between two readings has read nothing


def read() -> Reading | None:
    """Return both clocks as they were at one moment; None where there is no such moment, or no such clock."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return None
    for _ in range(TRIES):
        before = time.monotonic()
        boot = time.clock_gettime(boottime)
        if time.monotonic() - before < APART_MAX_S:
            return Reading(boot_s=boot, monotonic_s=before)
    return None
