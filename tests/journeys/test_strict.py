"""A strict routine whose code was changed under way: it parks, a person decides, and the right code ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import BIN, AgentProgram, ControlPlaneClient, Program

from journeys import flows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

RIGHT = """
wrote(ctx, "top")
ctx.step("render", lambda: wrote(ctx, "render"))
ctx.wait_for_signal("go")
ctx.step("notify", lambda: wrote(ctx, "notify"))
return "done"
"""
# Its first step has another name by now, so what was rendered is not come by.
WRONG = RIGHT.replace('"render"', '"render again"')


def told(url: str, *words: str | int) -> str:
    with Program([BIN / "stateous-control", *map(str, words), "--url", url]) as asked:
        assert asked.ended(within_s=30) == 0, asked.told
        return asked.told


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.prove)])
def test_a_strict_routine_that_was_changed_parks_until_a_person_resumes_it(
    isolation: str, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-13, S2-14, C12: nothing of the wrong code is done, nothing is lost, and no retry is spent."""
    right = flows.make(box, RIGHT, isolation=isolation, is_strict=True)
    with AgentProgram(right, plane_url):
        tasks = [flows.start(plane, kind) for kind in ("plain", "loop")]
        flows.until(plane, tasks, watchdog_stop_reason="awaiting_signal:go#1")
    wrong = flows.make(box.parent / "wrong", WRONG, isolation=isolation, is_strict=True)
    with AgentProgram(wrong, plane_url, name="wrong") as agent:
        for task in tasks:
            flows.send(plane, task, "go")
        flows.until(plane, tasks, watchdog_stop_reason="nondeterminism:render")
        told(plane_url, "task", "resume", tasks[0])
        flows.until(plane, tasks[:1], watchdog_stop_reason="nondeterminism:render", attempt=3)
        assert "replay.diverged" in agent.told
        listed = told(plane_url, "task", "list", "--reason", "nondeterminism")
        log = told(plane_url, "task", "log", tasks[0])
    assert {line["phase"] for line in flows.ledger(wrong)} == {"top"}, "nothing new was done"
    with AgentProgram(right, plane_url):
        for task in tasks:
            flows.resume(plane, task)
        views = flows.until(plane, tasks, current_state="completed")

    assert all(str(task) in listed for task in tasks)
    assert "render again#1" in log
    assert [(view["result"], view["failures"]) for view in views] == [("done", 0)] * 2
    for task in tasks:
        assert [flows.count(right, task, phase) for phase in ("top", "render", "notify")] == [2, 1, 1]
