"""An agent full of long tasks, and nobody to judge them for longer than a lease lasts (BH-008)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import IN_A_HURRY
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES
from stateous_control.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]

TASKS = 20
AWAY_S = 4.5  # one and a half leases
# Of one agent whose slots are all taken: a beat a second and its repeats.
REQUESTS_MAX = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    running = EmbeddedPostgres(tmp_path / "pg", settings=IN_A_HURRY)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def without_retries(path: Path) -> Path:
    path.write_text(folders.WORKFLOW.read_text("utf-8").replace("retries: 2", "retries: 0"), "utf-8")
    return path


@pytest.mark.parametrize("who", ["database", "control plane"])
def test_an_outage_of_who_judges_fails_none_of_twenty_tasks_without_retries(
    who: str, box: Path, tmp_path: Path, server: EmbeddedPostgres
) -> None:
    """BH-008: the first beat after it saves them all, each ran once, and the agent asked no more than ever."""
    workflow = without_retries(tmp_path / "workflow.yaml")
    options = [*TIMES, "--database", server.url]
    tokens = [f"long-{number}" for number in range(TASKS)]
    with ControlPlaneProgram(workflow, *options) as program, FaultProxy(program.url) as proxy:
        folder = folders.make(box, proxy.url, workflow)
        with AgentProgram(folder, proxy.url, "--tasks", str(TASKS)) as agent:
            with ControlPlaneClient(program.url) as client:
                for number, token in enumerate(tokens):
                    kind = "loop" if number % 2 else "hand"
                    client.start(token, kind=kind, gate=str(box / "gate"))
            wait_for(
                lambda: len(folders.ledger(folder)) == TASKS, within_s=40, what="beginning of twenty tasks"
            )
            heard = len(proxy.heard)
            at = program.url.removeprefix("http://")
            if who == "database":
                server.stop()
                time.sleep(AWAY_S)
                server.start()
                again = ControlPlaneClient(program.url)
                finish(again, box, tokens)
            else:
                program.kill()
                proxy.is_down = True
                proxy.cut()
                time.sleep(AWAY_S)
                with ControlPlaneProgram(workflow, *options, listen=at) as second:
                    proxy.is_down = False
                    finish(ControlPlaneClient(second.url), box, tokens)
            assert agent.child.poll() is None
            assert "Traceback" not in agent.told
            beats = [each for each in list(proxy.heard)[heard:] if "heartbeat" in each[2]]
            assert len(beats) < REQUESTS_MAX

    for token in tokens:
        assert folders.phases(folder, token)[:2] == [(1, "begin"), (1, "end")], token


def finish(client: ControlPlaneClient, box: Path, tokens: list[str]) -> None:
    """See that sweeps leave them alone once there is a judge again, let them end, and look at their histories."""
    with client:
        wait_for(lambda: client.http.get("/ready").status_code == 200, within_s=40, what="readiness")
        time.sleep(3.5)  # a whole lease with sweeps in it
        (box / "gate").touch()
        for token in tokens:
            client.until(token, status="completed", within_s=60)
            kinds = client.kinds(token)
            assert "task_failed" not in kinds
            assert kinds.count("task_claimed") == 2  # the long one, and the check after it
