"""How the two programs stop: the first signal drains, the second one ends it."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES


def began(folder: Path, token: str) -> None:
    wait_for(lambda: folders.phases(folder, token), within_s=15, what="beginning")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_routines_end(
    box: Path, plane_url: str, plane: ControlPlaneClient, number: signal.Signals
) -> None:
    """A-43: no new claim, the running routine is reported, exit 0."""
    folder = folders.make(box, plane_url)
    plane.start(f"drained-{number}", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url) as agent:
        began(folder, f"drained-{number}")
        agent.signal(number)
        time.sleep(0.5)
        plane.start(f"left-{number}")
        (box / "gate").touch()
        assert agent.ended() == 0

    assert plane.token(f"drained-{number}")["state"] == "check"
    assert "task_claimed" not in plane.kinds(f"left-{number}")


def test_the_second_signal_ends_it_within_seconds(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-44, BH-028 (b): exit 1, whatever routines do; what ran is given back for another attempt."""
    folder = folders.make(box, plane_url)
    plane.start("told-twice", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url) as agent:
        began(folder, "told-twice")
        agent.signal(signal.SIGTERM)
        time.sleep(0.3)
        agent.signal(signal.SIGTERM)
        assert agent.ended(within_s=6) == 1

    assert "task_failed" not in plane.kinds("told-twice")


def test_at_its_timeout_a_drain_gives_the_rest_back(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-43: the task is ready at once and no retry is spent."""
    folder = folders.make(box, plane_url)
    plane.start("given-back", gate=str(box / "gate"))

    with AgentProgram(folder, plane_url, "--drain-timeout", "1s") as agent:
        began(folder, "given-back")
        agent.signal(signal.SIGTERM)
        agent.ended()

    released = [entry["data"] for entry in plane.history("given-back") if entry["kind"] == "task_released"]
    assert [data["reason"] for data in released] == ["drain"]
    claim = {"supervisor": "other", "states": ["hand"]}
    assert plane.http.post("/tasks/claim", json=claim).json()["attempt"] == 2


def test_a_control_plane_that_stops_answers_waiting_claims_at_once(
    postgres: str, migrated_template: str
) -> None:
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--database", database) as program,
        ControlPlaneClient(program.url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        claim = {"supervisor": "s", "instance": "i", "states": ["hand"], "request": "r", "wait": 25}
        waiting = pool.submit(client.http.post, "/tasks/claim", json=claim)
        time.sleep(0.3)
        begun = time.monotonic()
        program.signal(signal.SIGTERM)
        answer = waiting.result(timeout=5)
        took_s = time.monotonic() - begun

        assert program.ended() == 0
    assert (answer.status_code, answer.headers["connection"]) == (204, "close")
    assert took_s < 0.5
