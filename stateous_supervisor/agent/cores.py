"""Core files: the agent leaves none, since its memory holds the bearer key (BH-055); its hosts, and so routines, may.

The limit on their size is all that is changed, and only the soft one. What collects cores through a pipe gets that
limit too, and those of systemd and Ubuntu keep to it.
"""

from __future__ import annotations

import resource
import sys
from typing import Final

_GIVEN: Final = resource.getrlimit(resource.RLIMIT_CORE)


def leave_none() -> None:
    """Have this process, and what it starts from now on, leave no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, _GIVEN[1]))


def give_back(pid: int) -> None:
    """Give a child the limit that this process was started with; one that has ended needs none."""
    if sys.platform == "linux":
        try:
            resource.prlimit(pid, resource.RLIMIT_CORE, _GIVEN)
        except ProcessLookupError:
            return
