"""The crash matrix at random: agents are killed at any moment while routines wait in every way, for 500 rounds."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient

from journeys import flows
from journeys.test_waits import MATRIX

ROUNDS = 500
AGENTS = 3
AT_ONCE = 25
WITHIN_S = 1_500.0


@pytest.mark.prove
@pytest.mark.timeout(1_800)
def test_five_hundred_routines_come_through_agents_that_die_at_random(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-14, S2-06, S2-15, S2-34, BH-044: an effect is twice where its value was not stored, and never lost."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    luck = random.Random(seed)
    first = flows.make(box, MATRIX)
    folders = [first, flows.another_box(first)]
    with contextlib.ExitStack() as stack:
        agents = [_agent(stack, folders[number % 2], plane_url, number) for number in range(AGENTS)]
        tasks, kills, open_tasks = list[int](), 0, set[int]()
        end = time.monotonic() + WITHIN_S
        next_kill = time.monotonic()
        while len(tasks) < ROUNDS or open_tasks:
            assert time.monotonic() < end, f"{len(open_tasks)} are not over, seed {seed}"
            while len(tasks) < ROUNDS and len(open_tasks) < AT_ONCE:
                task = flows.start(plane, luck.choice(["plain", "loop"]), {"dies": None}, retries=100)
                flows.send(plane, task, "go", task)
                tasks.append(task)
                open_tasks.add(task)
            flows.answer_all(plane, "yes")
            open_tasks -= {task for task in open_tasks if _is_over(plane, task)}
            if time.monotonic() >= next_kill:
                number = luck.randrange(AGENTS)
                agents[number].kill()
                kills += 1
                agents[number] = _agent(stack, folders[number % 2], plane_url, number)
                next_kill = time.monotonic() + luck.uniform(0.5, 4.0)
    counts = Counter((line["task"], line["phase"]) for line in flows.ledger(first))
    again = sum(counts[task, phase] - 1 for task in tasks for phase in ("one", "two"))
    print(f"{len(tasks)} routines, {kills} kills, {again} steps again")
    for task in tasks:
        view = flows.view(plane, task)
        assert view["current_state"] == "completed", view
        assert view["result"] == ["yes", "child work", task, 1]
        # A step is done again only where an attempt was cut off, and there are no more of those than were counted.
        assert 2 <= counts[task, "one"] + counts[task, "two"] <= 2 + view["attempt"]
    assert kills > 0


def _agent(stack: contextlib.ExitStack, folder: Path, url: str, number: int) -> AgentProgram:
    state = folder.parent / f"state-{number}"
    return stack.enter_context(
        AgentProgram(folder, url, "--tasks", "8", "--state-dir", state, name=f"box-{number}")
    )


def _is_over(plane: ControlPlaneClient, task: int) -> bool:
    return flows.view(plane, task)["current_state"] in ("completed", "failed", "cancelled", "expired")
