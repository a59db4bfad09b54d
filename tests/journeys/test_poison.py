"""Records in the outbox that nobody can send, with thousands of good ones behind them (A-38, A-40, BH-032)."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control.databases import fresh
from programs import BIN, AgentProgram, ControlPlaneClient, ControlPlaneProgram, Words, wait_for
from stateous_contract.limits import BATCH_BYTES_MAX

from journeys import folders
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.outbox import Batch, Envelope
from stateous_supervisor.agent.outbox_file import open_outbox

pytestmark = pytest.mark.slow

DEAD = Identity("box-1", "dead")
UNKNOWN, TORN = 999_999_998, 999_999_999
TOLD = {"report.refused", "outbox.set_aside"}


@pytest.fixture
def patient_url(postgres: str, migrated_template: str) -> Iterator[str]:
    """A control plane whose leases outlast the claim of thousands."""
    times = ["--lease", "900", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.1"]
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(folders.WORKFLOW, *times, "--database", database) as program,
    ):
        yield program.url


def claimed(plane: ControlPlaneClient, count: int) -> dict[str, int]:
    """Claim so many tasks as a process that dies then; return the task of each token."""
    asked = {"supervisor": DEAD.supervisor, "instance": DEAD.instance, "states": ["hand"], "max": 100}
    found: dict[str, int] = {}
    while len(found) < count:
        answer = plane.http.post(
            "/tasks/claim", json={**asked, "request": f"poison-{count}-{len(found)}"}
        ).json()
        found |= {grant["token"]: grant["task"] for grant in answer["tasks"]}
    return found


def report(number: int, task: int, **payload: Any) -> Envelope:
    outcome = {"outcome": "event", "event": "made", "payload": payload}
    body = json.dumps({"task": task, "attempt": 1, "kind": "report", **outcome}).encode()
    return Envelope(number, task, 1, "hand", "t", DEAD, "report", body)


@pytest.mark.parametrize("count", [100, pytest.param(5_000, marks=pytest.mark.prove)])
def test_good_outcomes_behind_bad_ones_arrive_and_each_bad_one_is_told_once(
    count: int, box: Path, patient_url: str
) -> None:
    """BH-032: refused (422), too large (413), of an unknown task (404), half-written; then the good ones."""
    with ControlPlaneClient(patient_url) as plane:
        judge(count, box, patient_url, plane)


def judge(count: int, box: Path, url: str, plane: ControlPlaneClient) -> None:
    folder, state = folders.make(box, url), box.parent / f"{box.name}-state"
    good = [f"good-{count}-{number}" for number in range(count)]
    refused, large = f"refused-{count}", f"large-{count}"
    for token in [refused, large, *good]:
        plane.start(token)
    tasks = claimed(plane, count + 2)
    bad = [
        report(1, tasks[refused], size="no number"),
        report(2, tasks[large], size=1, text="x" * BATCH_BYTES_MAX),
        report(3, UNKNOWN, size=1),
        report(4, TORN)._replace(body=b'{"task":1,"att'),
    ]
    outbox = open_outbox(state)
    outbox.commit(
        Batch(messages=[*bad, *(report(n, tasks[token], size=1) for n, token in enumerate(good, 5))])
    )
    outbox.close()
    with AgentProgram(folder, url, "--tasks", "50") as agent:
        for token in [*good, refused, large]:
            plane.until(token, status="completed", within_s=120)
        asking: Words = [BIN / "stateous-supervisor", "status", folder, "--state-dir", state, "--json"]

        def seen() -> Any:
            return json.loads(subprocess.run(asking, capture_output=True, text=True).stdout)

        status = wait_for(
            lambda: (s := seen())["outbox_depth"] == 0 and s, within_s=20, what="an empty outbox"
        )
        lines = [json.loads(line) for line in list(agent.lines) if line.startswith("{")]
    for token in good:
        assert "task_failed" not in plane.kinds(token)
    told = Counter((line["event"], line.get("task")) for line in lines if line["event"] in TOLD)
    assert told == {
        ("report.refused", tasks[refused]): 1,
        ("report.refused", tasks[large]): 1,
        ("report.refused", UNKNOWN): 1,
        ("outbox.set_aside", None): 1,
    }
    assert [line.partition(" attempt")[0] for line in status["set_aside"]] == [f"report of task {TORN}"]
    for token in (
        refused,
        large,
    ):  # a failure took the place of what was refused, and a later attempt was reported
        attempts = [e["data"]["attempt"] for e in plane.history(token) if e["kind"] == "task_claimed"]
        assert attempts[:2] == [1, 2]
