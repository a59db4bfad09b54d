"""What many small tasks cost is counted, not timed: requests, statements, commits and frames go by sets, not by tasks.

Each bound is several times what a quiet machine needs, and a tenth of what one by one would need, so that only a
change of the shape breaks it: a request for each task, a commit for each message, a frame for each grant.
"""

from __future__ import annotations

import json
import sys

import httpx
import pytest
from control.databases import fresh, run_sql
from programs import ControlPlaneProgram, Program, wait_for

from journeys import folders

TASKS = 1_000
SLOTS = 100
ROUTINE = """
from contract import events, states
from stateous_supervisor import on_state


@on_state(states.check)
async def check(ctx):
    return events.passed()
"""
QUEUED = f"""
WITH k AS (
  INSERT INTO tokens (id, name, graph, workflow, state, status, visit, context, entered_at, entered_by, seq, visits,
    events)
  SELECT nextval('token_ids'), 't' || n, (SELECT graph FROM settings), 'errand', 'check', 'active', 1, '{{}}', now(),
    'made', 4, '{{"check":1}}', '{{"made":1}}' FROM generate_series(1, {TASKS}) AS n RETURNING id
)
INSERT INTO tasks (id, token_id, state, visit, ready_at) SELECT nextval('task_ids'), id, 'check', 1, now() FROM k
"""
# The agent's own program, with a count at each of its doors.
COUNTING = """
import atexit, json, sys
from collections import Counter
from pathlib import Path

from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.link_end import LinkEnd
from stateous_supervisor.agent.outbox import Outbox
from stateous_supervisor.cli.main import main

counts = Counter()


def count(door, method, name):
    inner = getattr(door, method)

    def counted(*given, **named):
        counts[name] += 1
        return inner(*given, **named)

    setattr(door, method, counted)


count(Client, "call", "requests")
count(Outbox, "commit", "commits")
count(LinkEnd, "send", "frames")
atexit.register(lambda: Path(__file__).with_suffix(".json").write_text(json.dumps(counts)))
main()
"""


@pytest.fixture(scope="module")
def counts(postgres: str, migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a thousand no-op tasks cost with a hundred slots: the agent's own counts, and the database's statements."""
    box = tmp_path_factory.mktemp("thrift")
    agent = box / "agent.py"
    agent.write_text(COUNTING)
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(folders.WORKFLOW, "--database", database) as plane,
        httpx.Client(base_url=plane.url, trust_env=False) as http,
    ):
        folder = folders.make(box / "folder", plane.url, check=ROUTINE)
        run_sql(database, QUEUED)
        before = _statements(http)
        options = ["--tasks", str(SLOTS), "--state-dir", str(box / "state"), "--log-level", "warning"]
        with Program([sys.executable, agent, "run", folder, *options]) as running:
            wait_for(
                lambda: not http.get("/tokens?status=active&limit=1").json(),
                within_s=50,
                what=f"end of all tasks: {running.told}",
            )
            statements = _statements(http) - before
            running.child.terminate()
            assert running.ended() == 0, running.told
    return {"statements": statements, **json.loads(agent.with_suffix(".json").read_text())}


def _statements(http: httpx.Client) -> int:
    lines = http.get("/metrics").text.splitlines()
    return int(
        float(next(line for line in lines if line.startswith("stateous_control_statements_total")).split()[1])
    )


def test_requests_go_by_the_hundred(counts: dict[str, int]) -> None:
    """Ten claims and ten deliveries, if all goes well; 2,000 one by one."""
    assert counts["requests"] <= 100


def test_statements_go_by_the_hundred(counts: dict[str, int]) -> None:
    """About 14 for each hundred; tens of thousands one by one."""
    assert counts["statements"] <= 600


def test_commits_to_the_outbox_go_by_the_hundred(counts: dict[str, int]) -> None:
    """Two for each hundred: grants before they start, outcomes before they are sent."""
    assert counts["commits"] <= 100


def test_frames_to_the_host_go_by_the_hundred(counts: dict[str, int]) -> None:
    """One for each claim."""
    assert counts["frames"] <= 60
