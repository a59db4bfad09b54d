"""Control planes that are processes of their own, on one database, while everything happens at once.

What clients were told with a 2xx is held to the rows and histories afterwards.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from control.databases import fresh, run_sql
from control.engine.invariants import check_histories
from control.engine.planes import held_by_another, sql
from programs import ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOLDER = {"supervisor": "box", "instance": "i1"}
HELD = 200
FEW = 20
STATES = ["hand", "check", "rescue"]
OUTCOMES: dict[str, list[dict[str, Any]]] = {
    "hand": [
        {"kind": "event", "event": "made", "payload": {"size": 1}},
        {"kind": "failed", "error": "by chance"},
    ],
    "check": [{"kind": "event", "event": "passed"}, {"kind": "released", "reason": "drain"}],
    "rescue": [{"kind": "event", "event": "passed"}],
}


@contextmanager
def control_planes(database: str, count: int, *options: str) -> Iterator[list[ControlPlaneProgram]]:
    """As many control planes as that on one database; none has a fault in its log afterwards."""
    with ExitStack() as stack:
        made = [
            ControlPlaneProgram(folders.WORKFLOW, *(options or TIMES), "--database", database)
            for _ in range(count)
        ]
        yield [stack.enter_context(each) for each in made]
        for each in made:
            assert each.child.poll() is None
    for each in made:
        assert "Traceback" not in each.told
        assert "deadlock" not in each.told


def ask(database: str, statement: str, *values: Any) -> list[Any]:
    return asyncio.run(sql(database, statement, *values))


# Heartbeats, reports, cancels and sweeps.


@dataclass
class Board:
    """What an agent holds, and what it was told. `strange` are answers that nobody may get."""

    held: dict[int, dict[str, Any]] = field(default_factory=dict)
    accepted: list[tuple[int, int, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    beats: int = 0
    refused: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def seen(self) -> int:
        """How often that happened which happened least."""
        return min(self.beats, len(self.accepted), len(self.cancelled), self.refused)

    def shuffled(self) -> list[dict[str, Any]]:
        held = list(self.held.values())
        random.shuffle(held)
        return held

    def one(self) -> list[dict[str, Any]]:
        """One of the oldest, so that threads meet."""
        held = list(self.held.values())[:6]
        return [random.choice(held)] if held else []

    def say(self, http: httpx.Client, path: str, *expected: int, **body: Any) -> httpx.Response | None:
        """Send it; None where it was refused, and a line for what is not expected."""
        try:
            answer = http.post(path, json=body)
        except httpx.HTTPError as error:
            self.strange.append(f"{path}: {error!r}")
            return None
        if answer.is_success:
            return answer
        self.refused += 1
        if answer.status_code not in expected:
            self.strange.append(f"{path}: {answer.status_code} {answer.text}")
        return None


def feed(board: Board, http: httpx.Client, number: int) -> None:
    """Start tokens and claim, so that there are always about 200 tasks; some are forgotten at once."""
    missing = HELD - len(board.held)
    if missing <= 0:
        return
    starts = [{"token": f"T-{number}-{n}"} for n in range(missing)]
    board.say(http, "/starts", starts=starts)
    answer = board.say(http, "/tasks/claim", **HOLDER, states=STATES, max=missing, request=f"r-{number}")
    if answer is not None and answer.status_code == 200:
        for grant in answer.json()["tasks"]:
            if random.random() > 0.05:
                board.held[grant["task"]] = grant


def beat(board: Board, http: httpx.Client) -> None:
    held = board.shuffled()
    attempts = {str(each["task"]): each["attempt"] for each in held}
    tasks = [each["task"] for each in held]
    answer = board.say(http, "/tasks/heartbeat", **HOLDER, tasks=tasks, attempts=attempts)
    if answer is not None:
        board.beats += 1
        for task in answer.json()["lost"]:
            if board.held.get(task, {}).get("attempt") == attempts[str(task)]:
                board.held.pop(task, None)


def report(board: Board, http: httpx.Client) -> None:
    """Report a task that another thread may be reporting, too, with another outcome."""
    for grant in board.one():
        outcome = random.choice(OUTCOMES[grant["state"]])
        path, attempt = f"/tasks/{grant['task']}/report", grant["attempt"]
        if board.say(http, path, 409, **HOLDER, attempt=attempt, **outcome) is not None:
            board.accepted.append((grant["task"], attempt, outcome["kind"]))
        if board.held.get(grant["task"]) is grant:
            board.held.pop(grant["task"], None)
    time.sleep(0.005)


def cancel(board: Board, http: httpx.Client) -> None:
    for grant in board.one():
        if board.say(http, f"/tokens/{grant['token']}/cancel", 409) is not None:
            board.cancelled.append(grant["token"])
    time.sleep(0.02)


def contend(urls: Sequence[str], seconds: float) -> Board:
    """Play it for so long: four threads of each kind, each at one of the control planes."""
    board = Board()

    def keep(work: Callable[[Board, httpx.Client], None], url: str) -> None:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
            while not board.is_over.is_set():
                work(board, http)

    threads = [
        threading.Thread(target=keep, args=(work, urls[n % len(urls)]))
        for work in (beat, report, cancel)
        for n in range(4)
    ]
    with httpx.Client(base_url=urls[0], timeout=30, trust_env=False) as http:
        feed(board, http, 0)
        for thread in threads:
            thread.start()
        deadline, number = time.monotonic() + seconds, 1
        while not board.strange and (
            time.monotonic() < deadline or (board.seen < FEW and time.monotonic() < deadline + 60)
        ):
            feed(board, http, number)
            number += 1
            time.sleep(0.02)
    board.is_over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return board


def check_what_was_told(board: Board, database: str) -> None:
    """Every 2xx agrees with the end: one outcome for an attempt, done what was taken, cancelled what was cancelled."""
    kinds: dict[tuple[int, int], set[str]] = {}
    for task, attempt, kind in board.accepted:
        kinds.setdefault((task, attempt), set()).add(kind)
    assert [each for each, found in kinds.items() if len(found) > 1] == []
    rows = {row["id"]: row for row in ask(database, "SELECT id, current_state, attempt, failures FROM tasks")}
    for task, attempt, kind in board.accepted:
        row = rows[task]
        if kind == "event":
            assert (row["current_state"], row["attempt"]) == ("completed", attempt)
        elif kind == "failed":
            assert row["failures"] >= 1
            assert row["attempt"] > attempt or row["current_state"] != "running"
    cancelled = {row["name"] for row in ask(database, "SELECT name FROM tokens WHERE status = 'cancelled'")}
    assert set(board.cancelled) <= cancelled
    assert len(board.cancelled) == len(set(board.cancelled)), "a token was cancelled twice"


ISOLATIONS = ("read committed", "repeatable read", "serializable")


@pytest.mark.parametrize(
    ("isolation", "seconds"),
    [("repeatable read", 2.0), *(pytest.param(each, 60.0, marks=pytest.mark.prove) for each in ISOLATIONS)],
)
def test_heartbeats_reports_cancels_and_sweeps_at_once_leave_one_truth(
    postgres: str, migrated_template: str, isolation: str, seconds: float
) -> None:
    """BH-006, S1-15, S1-17: 200 tasks, four threads of each, and leases that end; whatever the database's default."""
    with fresh(postgres, migrated_template) as database:
        name = database.partition("///")[2].partition("?")[0]
        run_sql(database, f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
        with control_planes(database, 2) as planes:
            board = contend([each.url for each in planes], seconds)
            assert board.strange == []
            if seconds > 5:
                ended = "SELECT count(*) AS n FROM history WHERE data LIKE '%stopped answering%'"
                assert ask(database, ended)[0]["n"] > 0
        print(
            f"{board.beats} beats, {len(board.accepted)} reports, {len(board.cancelled)} cancels, {board.refused} refused"
        )
        assert board.seen >= FEW
        check_what_was_told(board, database)
        asyncio.run(check_histories(database))


# Three control planes and an agent that is gone.


def claim_all(plane: ControlPlaneClient, count: int, number: int) -> None:
    """Claim until so many are had, all of them at the attempt of this number."""
    grants: list[dict[str, Any]] = []

    def had() -> bool:
        body = {**HOLDER, "states": ["hand"], "max": count, "request": f"r{number}-{time.monotonic()}"}
        answer = plane.http.post("/tasks/claim", json=body)
        grants.extend(answer.json()["tasks"] if answer.status_code == 200 else ())
        return len(grants) >= count

    wait_for(had, within_s=30, what=f"claim of {count} tasks")
    assert {grant["attempt"] for grant in grants} == {number}


@pytest.mark.prove
def test_three_control_planes_end_each_abandoned_attempt_once(postgres: str, migrated_template: str) -> None:
    """BH-007: a hundred tasks are left three times; one failure and one line for each, and one `error` in the end."""
    # Long enough that all are claimed before the first lease ends.
    times = ["--lease", "6", "--heartbeat", "2", "--sweep", "0.2", "--retry-delay", "0"]
    with fresh(postgres, migrated_template) as database, control_planes(database, 3, *times) as planes:
        with ControlPlaneClient(planes[0].url) as plane:
            starts = [{"token": f"T-{n}"} for n in range(100)]
            assert plane.http.post("/starts", json={"starts": starts}).status_code == 200
            for number in (1, 2, 3):
                claim_all(plane, 100, number)
                wait_for(
                    lambda: ask(database, "SELECT count(*) AS n FROM leases")[0]["n"] == 0,
                    within_s=40,
                    what="end of all leases",
                )
                rows = ask(
                    database,
                    "SELECT failures, count(*) AS n FROM tasks WHERE state = 'hand' GROUP BY 1 ORDER BY 1",
                )
                assert [tuple(row) for row in rows] == [(number, 100)]
            time.sleep(1.0)  # sweeps that have nothing to do any more
        rows = ask(
            database,
            "SELECT count(*) FILTER (WHERE kind = 'task_failed') AS failed, count(*) FILTER (WHERE kind = 'task_retrying') AS retried, "
            "count(*) FILTER (WHERE data::jsonb ->> 'event' = 'error') AS errors FROM history GROUP BY token_id",
        )
        assert {tuple(row) for row in rows} == {(3, 2, 1)}
        assert len(rows) == 100
        rows = ask(database, "SELECT state, count(*) AS n FROM tokens GROUP BY 1")
        assert [tuple(row) for row in rows] == [("rescue", 100)]
        asyncio.run(check_histories(database))


@pytest.mark.prove
def test_a_token_that_somebody_holds_delays_no_other_and_nobody_waits_at_its_row(
    postgres: str, migrated_template: str
) -> None:
    """BH-007: for 30 s; three control planes; ninety-nine are swept in time, and the last one as soon as it is free."""
    with fresh(postgres, migrated_template) as database, control_planes(database, 3) as planes:
        with ControlPlaneClient(planes[0].url) as plane:
            starts = [{"token": f"T-{n}"} for n in range(100)]
            assert plane.http.post("/starts", json={"starts": starts}).status_code == 200
            claim_all(plane, 100, 1)
        asyncio.run(sweep_around(database, held_s=30.0))
        rows = ask(database, "SELECT failures, count(*) AS n FROM tasks GROUP BY 1")
        assert [tuple(row) for row in rows] == [(1, 100)]
        asyncio.run(check_histories(database))


async def sweep_around(database: str, held_s: float) -> None:
    """Hold one token's row for so long, and look at what becomes of all leases meanwhile."""
    left = "SELECT task_id FROM leases"
    async with held_by_another(database, "SELECT 1 FROM tokens WHERE id = 50 FOR UPDATE"):
        began = time.monotonic()
        async with asyncio.timeout(40):
            while len(await sql(database, left)) > 1:
                await asyncio.sleep(0.05)
        swept_s = time.monotonic() - began
        print(f"99 of 100 were swept after {swept_s:.1f} s, with a lease of 3 s")
        assert swept_s < 15
        while time.monotonic() - began < held_s:
            waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            assert (await sql(database, waiting))[0]["n"] == 0, "a sweep waits for the row"
            await asyncio.sleep(0.1)
        assert len(await sql(database, left)) == 1
    async with asyncio.timeout(30):
        while await sql(database, left):
            await asyncio.sleep(0.05)
