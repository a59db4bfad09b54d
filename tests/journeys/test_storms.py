"""A hundred agents that all come back in the moment in which the control plane does (BH-035).

Real agents spread out (`tests/supervisor/test_crowds.py`, on a clock that jumps); here nobody does.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from control.databases import fresh
from programs import ControlPlaneClient, ControlPlaneProgram

from journeys import folders
from journeys.conftest import TIMES

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]

AGENTS = 100
P99_S = 5.0


class Agent:
    """One that asks without any patience, and notes how long each answer took."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.holder = {"supervisor": f"box-{number}", "instance": "i"}
        self.took: list[float] = []

    async def come_back(self) -> int:
        """Ask until the control plane is there, then beat, claim and report; the answer is the task that was done."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60, verify=False) as http:
            beat = {"tasks": [], "states": ["hand"]}
            while True:
                try:
                    await self._say(http, "/tasks/heartbeat", **beat)
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
            claim = {"states": ["hand"], "max": 1, "request": "first"}
            (grant,) = (await self._say(http, "/tasks/claim", **claim)).json()["tasks"]
            done = {"kind": "event", "event": "made", "payload": {"size": 1}, "attempt": grant["attempt"]}
            await self._say(http, f"/tasks/{grant['task']}/report", **done)
            return int(grant["task"])

    async def _say(self, http: httpx.AsyncClient, path: str, **body: Any) -> httpx.Response:
        began_at = time.monotonic()
        answer = await http.post(path, json=self.holder | body)
        self.took.append(time.monotonic() - began_at)
        assert answer.status_code == 200, answer.text
        return answer


def test_a_hundred_agents_that_come_back_at_once_are_all_served_soon(
    postgres: str, migrated_template: str
) -> None:
    with fresh(postgres, migrated_template) as database:
        options = [*TIMES, "--database", database]
        with ControlPlaneProgram(folders.WORKFLOW, *options) as first:
            at = first.url.removeprefix("http://")
            with ControlPlaneClient(first.url) as client:
                for number in range(AGENTS):
                    client.start(f"T-{number}")
        agents = [Agent(f"http://{at}", number) for number in range(AGENTS)]

        async def storm() -> list[int]:
            return await asyncio.gather(*(agent.come_back() for agent in agents))

        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(asyncio.run, storm())
            time.sleep(1.0)
            with ControlPlaneProgram(folders.WORKFLOW, *options, listen=at) as again:
                tasks = waiting.result()
                assert "Traceback" not in again.told
    took = sorted(each for agent in agents for each in agent.took)
    assert len(set(tasks)) == AGENTS
    assert len(took) == 3 * AGENTS
    assert took[int(len(took) * 0.99)] < P99_S, took[-5:]
