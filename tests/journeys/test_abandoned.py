"""Lost attempts of `def` routines in a real host: their threads cannot be stopped, so the host is replaced (A-30)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import AgentProgram, ControlPlaneClient, Program, wait_for

from journeys import folders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LIMIT = 8


def told(agent: Program, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(agent.lines) if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_eight_abandoned_threads_end_with_their_host_and_cost_the_others_nothing(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-30: new work goes to another host at once; the old one ends with the last routine that is not lost."""
    folder = folders.make(box, plane_url)
    with AgentProgram(folder, plane_url, "--tasks", f"{LIMIT + 1}") as agent:
        plane.start("stays", gate=str(box / "gate"))
        for number in range(LIMIT):
            plane.start(f"lost-{number}", gate=str(box / "never"))
        wait_for(lambda: len(folders.ledger(folder)) == LIMIT + 1, within_s=40, what="all routines")
        (old,) = {line["pid"] for line in folders.ledger(folder)}
        for number in range(LIMIT):
            plane.cancel(f"lost-{number}")
        wait_for(lambda: len(told(agent, "host.started")) == 2, within_s=40, what="another host")
        assert psutil.pid_exists(old)

        plane.start("later")
        plane.until("later", status="completed")
        assert {line["pid"] for line in folders.ledger(folder) if line["token"] == "later"}.isdisjoint({old})
        assert plane.token("stays")["state"] == "hand"
        (box / "gate").touch()
        plane.until("stays", status="completed")
        wait_for(lambda: not psutil.pid_exists(old), within_s=40, what="end of the old host")

    assert len(told(agent, "host.started")) == 2
    for token in ("stays", "later"):
        assert plane.kinds(token).count("task_claimed") == 2
        assert "task_failed" not in plane.kinds(token)
    assert not {"task_failed", "task_released"} & set(plane.kinds("lost-0"))
