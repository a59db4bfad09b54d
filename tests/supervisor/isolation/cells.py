"""Isolated routines in a real host, for these tests: how one is run, and how to see what is left of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.host.child import Child, grant

from stateous_supervisor.link.frames import Confinement, Outcome, Run

PROCESS = Confinement(isolation="process", grace_s=1.0)


class Box:
    """A host whose routines run isolated unless told otherwise."""

    def __init__(self, host: Child) -> None:
        self.host = host

    def run(self, task: int, body: str, state: str = "other", **given: Any) -> None:
        confinement = given.pop("confinement", PROCESS)
        timeout_s = given.pop("timeout_s", None)
        raw = grant(task, state, context={"title": "a", "body": body}, **given)
        self.host.send(Run(grant=raw, lease_s=60.0, timeout_s=timeout_s, confinement=confinement))

    def outcome(self, task: int, body: str, state: str = "other", **given: Any) -> Outcome:
        self.run(task, body, state, **given)
        return self.host.outcome(task, given.get("attempt", 1))

    def written(self, task: int, body: str, state: str = "other", **given: Any) -> dict[str, Any]:
        """Run a body that returns an event, and return what it wrote to the context."""
        outcome = self.outcome(task, body, state, **given)
        assert outcome.error is None, outcome.error
        context: dict[str, Any] = json.loads(bytes(outcome.context or b"{}"))
        return context


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def until(holds: Callable[[], Any], within_s: float, what: str) -> float:
    """Wait until something holds; return how long that took."""
    began_at = time.monotonic()
    while not holds():
        assert time.monotonic() - began_at < within_s, f"{what}: not within {within_s:g} s"
        time.sleep(0.01)
    return time.monotonic() - began_at


def pids_in(file: Path, count: int, within_s: float = 10.0) -> list[int]:
    """Wait until `count` process ids stand in a file, one a line."""
    until(lambda: file.exists() and len(file.read_text().split()) >= count, within_s, f"{count} pids")
    return [int(word) for word in file.read_text().split()]


def fd_targets(pid: int) -> dict[int, str]:
    """What the descriptors of a process lead to."""
    folder = Path(f"/proc/{pid}/fd")
    return {int(entry.name): str(entry.readlink()) for entry in folder.iterdir()}
