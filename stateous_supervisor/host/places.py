"""Where the runner has routines run: threads, or processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from stateous_supervisor.host.attempt import Attempt
from stateous_supervisor.link.frames import Run, ToHost


class Starter(Protocol):
    """Where `def` routines run."""

    def start(self, job: Callable[[], None]) -> threading.Thread | None: ...


class Apart(Protocol):
    """Runs attempts in processes of their own, and calls `Runner.settle` once for each. None of it waits."""

    def start(self, attempt: Attempt, frame: Run) -> None: ...
    def stop(self, attempt: Attempt, cause: str) -> None: ...
    def pass_on(self, attempt: Attempt, frame: ToHost) -> None: ...
