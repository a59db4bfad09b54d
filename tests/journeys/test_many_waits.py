"""Ten thousand sleepers and a thousand open questions beside one slot: they take nothing, and other work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import flows
from journeys.conftest import TIMES
from journeys.folders import WORKFLOW
from journeys.test_leaks import Sizes, sizes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

LONG = pytest.mark.prove
# The control plane's ten, the one that listens, and the test's own.
CONNECTIONS_MAX = 12
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
WAITING = """
if given == "sleeps":
    ctx.sleep_for("nap", "6h")
elif given == "asks":
    ctx.ask("ok", {"size": "x" * 1_000}, ttl="6h")
elif given is not None:
    for n in range(given):
        ctx.sleep_for("nap", 0.01)
return "went"
"""


def asked(url: str, statement: str) -> int:
    """Return the one number that a statement is for."""

    async def ask() -> int:
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval(statement))
        finally:
            await connection.close()

    return asyncio.run(ask())


@pytest.fixture
def alone(postgres: str, migrated_template: str) -> Iterator[tuple[str, str]]:
    """A control plane and a database that no other test is in."""
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(WORKFLOW, *TIMES, "--database", database) as program,
    ):
        yield program.url, database


def state_is(database: str, state: str, count: int, *, within_s: float) -> None:
    statement = f"SELECT count(*) FROM tasks WHERE current_state = '{state}'"
    wait_for(lambda: asked(database, statement) == count, within_s=within_s, what=f"{count} {state} tasks")


def check_flat(before: Sizes, after: Sizes, kb_max: int) -> None:
    print(f"before {before}, after {after}")
    assert after.descriptors <= before.descriptors + 5
    assert after.threads <= before.threads + 5
    assert len(after.processes) == len(before.processes)
    assert after.kb - before.kb < kb_max


@pytest.mark.parametrize(
    ("sleepers", "askers", "kb_max"), [(60, 20, 4_000), pytest.param(10_000, 1_000, 12_000, marks=LONG)]
)
def test_sleepers_and_open_questions_take_nothing_of_an_agent_with_one_slot(
    box: Path, alone: tuple[str, str], sleepers: int, askers: int, kb_max: int
) -> None:
    """S2-25, S2-27, S1-48: memory, threads, descriptors and connections are what they were, and other work flows."""
    url, database = alone
    folder = flows.make(box, WAITING)
    with ControlPlaneClient(url) as plane, AgentProgram(folder, url, "--tasks", "1") as agent:
        for number in range(20):
            flows.start(plane, "loop", ["sleeps", "asks"][number % 2])
        state_is(database, "parked", 20, within_s=60)
        before = sizes(agent.child.pid)
        for number in range(sleepers + askers):
            flows.start(plane, "loop", "sleeps" if number < sleepers else "asks")
        state_is(database, "parked", 20 + sleepers + askers, within_s=30 + (sleepers + askers) / 10)
        after = sizes(agent.child.pid)
        assert asked(database, CONNECTIONS) <= CONNECTIONS_MAX
        assert asked(database, "SELECT count(*) FROM leases") == 0
        assert asked(database, "SELECT count(*) FROM questions WHERE status = 'pending'") == 10 + askers
        others = [flows.start(plane, "plain") for _ in range(5)]
        views = flows.until(plane, others, within_s=30, current_state="completed")

    assert [view["result"] for view in views] == ["went"] * 5
    check_flat(before, after, kb_max)


@pytest.mark.parametrize(("tasks", "kb_max"), [(10, 4_000), pytest.param(1_000, 12_000, marks=LONG)])
def test_twenty_parks_of_each_task_leave_an_agent_as_it_was(
    box: Path, alone: tuple[str, str], tasks: int, kb_max: int
) -> None:
    """S2-24, S2-29: every task parks twenty times, beside each other and on the same agent."""
    url, database = alone
    folder = flows.make(box, WAITING)
    with ControlPlaneClient(url) as plane, AgentProgram(folder, url, "--tasks", "10") as agent:
        for _ in range(10):
            flows.start(plane, "loop", 5)
        state_is(database, "completed", 10, within_s=60)
        before = sizes(agent.child.pid)
        for _ in range(tasks):
            flows.start(plane, "loop", 20)
        state_is(database, "completed", 10 + tasks, within_s=60 + tasks)
        after = sizes(agent.child.pid)
        parks = "SELECT count(*) FROM task_log WHERE kind = 'wait_begun'"
        assert asked(database, parks) == 50 + 20 * tasks
        assert asked(database, "SELECT sum(failures) FROM tasks") == 0

    check_flat(before, after, kb_max)
