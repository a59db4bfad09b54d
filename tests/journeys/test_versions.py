"""Versions of a state's routine, beside each other: in one folder, and in folders of a rolling deploy."""

from __future__ import annotations

from pathlib import Path

import pytest
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram

from journeys import durable, folders
from journeys.conftest import TIMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROUTINE = """
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand, version={version})
def hand_{version}(ctx):
    wrote(ctx, ctx.step("which", lambda: "version {version}"))
    return events.made(Made(size={version}))
"""


def ran(folder: Path, token: str) -> list[str]:
    return [phase for _, phase in folders.phases(folder, token) if phase.startswith("version")]


def test_a_task_is_run_by_the_version_it_was_made_with(
    box: Path, postgres: str, migrated_template: str
) -> None:
    """S2-21, S2-52, S2-57, DX-22: boxes with the old version alone and the new one alone, over a mixed queue."""
    second = box.parent / "second.yaml"
    text = folders.WORKFLOW.read_text()
    second.write_text(text.replace("hand: {retries: 2,", "hand: {retries: 2, version: 2,"))
    assert second.read_text() != text
    old, new = [f"old-{number}" for number in range(4)], [f"new-{number}" for number in range(4)]
    with fresh(postgres, migrated_template) as database:
        with (
            ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--database", database) as program,
            ControlPlaneClient(program.url) as plane,
        ):
            for token in old:
                plane.start(token)
        with (
            ControlPlaneProgram(second, *TIMES, "--database", database) as program,
            ControlPlaneClient(program.url) as plane,
        ):
            for token in new:
                plane.start(token)
            first_box = folders.make(box, program.url, hand=ROUTINE.format(version=1))
            next_box = folders.make(box.parent / "next", program.url, second, hand=ROUTINE.format(version=2))
            with (
                AgentProgram(first_box, program.url, name="first"),
                AgentProgram(next_box, program.url, name="next"),
            ):
                for token in old + new:
                    plane.until(token, status="completed", within_s=40)
            tasks = [durable.task_of(plane, token) for token in old + new]

    assert {(task["attempt"], task["failures"]) for task in tasks} == {(1, 0)}
    assert [task["version"] for task in tasks] == [1] * 4 + [2] * 4
    assert [ran(first_box, token) for token in old + new] == [["version 1"]] * 4 + [[]] * 4
    assert [ran(next_box, token) for token in old + new] == [[]] * 4 + [["version 2"]] * 4
