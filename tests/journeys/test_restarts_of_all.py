"""Agent, control plane and database end and come back while a thousand tasks sleep: each wakes once, and never early."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest
from conftest import migrate
from control.engine.test_restarts import Server, free_port
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import flows
from journeys.conftest import TIMES
from journeys.folders import WORKFLOW

BODY = """
ctx.sleep_for("nap", given)
return "woke"
"""
COUNT = 1_000
LATE_S = 30.0
LOG = """SELECT task_id, kind, at, data FROM task_log WHERE kind IN ('wait_begun', 'wait_over') ORDER BY task_id, at"""


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_a_thousand_sleeps_run_out_while_everything_restarts(box: Path, tmp_path: Path) -> None:
    """S2-02, S2-26, S2-28, BH-045: sleeps of 20 to 40 s."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    luck = random.Random(seed)
    server = Server(tmp_path / "pg")
    migrate(server.start())
    folder, listen = flows.make(box, BODY), f"127.0.0.1:{free_port()}"
    url = f"http://{listen}"
    try:
        with (
            ControlPlaneClient(url) as plane,
            _plane(server, listen),
            AgentProgram(folder, url, "--tasks", "50"),
        ):
            for _ in range(COUNT):
                flows.start(plane, "loop", luck.uniform(20, 40), retries=5)
            wait_for(lambda: _begun(server) == COUNT, within_s=120, what="begin of all sleeps")
        with ControlPlaneClient(url) as plane:
            _restart_all(server, listen, folder)
            with _plane(server, listen), AgentProgram(folder, url, "--tasks", "50"):
                flows.until(plane, list(range(1, COUNT + 1)), within_s=300, current_state="completed")
        late_s = _check_log(server)
    finally:
        server.stop()
    print(f"the last one was {late_s:.1f} s late")
    assert late_s < LATE_S


def _plane(server: Server, listen: str) -> ControlPlaneProgram:
    return ControlPlaneProgram(WORKFLOW, *TIMES, "--database", server.url, listen=listen)


def _restart_all(server: Server, listen: str, folder: Path) -> None:
    """Kill an agent, a control plane and the database, one after another, while sleeps run out."""
    url = f"http://{listen}"
    with _plane(server, listen) as program, AgentProgram(folder, url, "--tasks", "50") as agent:
        time.sleep(3)
        agent.kill()
        with AgentProgram(folder, url, "--tasks", "50", name="second"):
            time.sleep(3)
            program.kill()
            with _plane(server, listen):
                time.sleep(3)
                server.end()
                asyncio.run(server.come_back())
                time.sleep(3)


def _begun(server: Server) -> int:
    return len([row for row in asyncio.run(_log(server)) if row["kind"] == "wait_begun"])


async def _log(server: Server) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(server.url)
    try:
        return list(await connection.fetch(LOG))
    finally:
        await connection.close()


def _check_log(server: Server) -> float:
    """Each slept once and woke once, not before its time; return how late the last one was."""
    rows = asyncio.run(_log(server))
    assert [row["kind"] for row in rows] == ["wait_begun", "wait_over"] * COUNT
    late_s: list[float] = []
    for began, over in zip(rows[::2], rows[1::2], strict=True):
        until = datetime.fromisoformat(began["data"].partition('"until":"')[2].partition('"')[0])
        late_s.append((over["at"] - until).total_seconds())
    assert min(late_s) >= 0
    return max(late_s)
