"""A strict routine whose code was changed under way: it parks, a person decides, and the right code ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import BIN, AgentProgram, ControlPlaneClient, Program, wait_for

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


BEGUN = """
child = ctx.spawn("held", given)
ctx.step("render", lambda: wrote(ctx, "render"))
try:
    ctx.wait_for_result(child, timeout=given["timeout"])
finally:
    wrote(ctx, "told")
ctx.step("notify", lambda: wrote(ctx, "notify"))
ctx.wait_for_signal("go")
return "done"
"""
HELD = """
@routine("held")
def held(ctx, given):
    ctx.wait_for_signal("go")
    return "held"
"""


def the_child(plane: ControlPlaneClient, parent: int) -> int:
    def there() -> list[int]:
        page = plane.http.get("/tasks", params={"limit": 100}).json()["entries"]
        return [each["task"] for each in page if each.get("parent") == parent]

    return int(wait_for(there, within_s=40, what=f"a child of {parent}")[0])


@pytest.mark.parametrize("timeout", [None, "1s"], ids=["unfinished", "timed out"])
def test_a_retry_of_a_strict_routine_begins_its_child_again_and_does_not_park(
    timeout: str | None, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-13, C14: the child that is left behind is no change of the code; what was passed after it stands."""
    folder = flows.make(box, BEGUN, more=HELD, is_strict=True)
    with AgentProgram(folder, plane_url) as agent:
        tasks = [flows.start(plane, kind, {"timeout": timeout}) for kind in ("plain", "loop")]
        for task in tasks:
            child = the_child(plane, task)
            reason = f"awaiting_result:{child}" if timeout is None else "awaiting_signal:go#1"
            flows.until(plane, [task], watchdog_stop_reason=reason)
            for verb in ("cancel", "retry"):
                body = {"expected_generation": flows.view(plane, task)["generation"]}
                plane.http.post(f"/tasks/{task}/{verb}", json=body).raise_for_status()
        again = [flows.view(plane, task)["retried_as"] for task in tasks]
        for task in again:
            child = the_child(plane, task)
            if timeout is None:
                flows.send(plane, child, "go")
            flows.send(plane, task, "go")
        views = flows.until(plane, again, current_state="completed")
        assert "replay.diverged" not in agent.told

    assert [(view["result"], view["failures"]) for view in views] == [("done", 0)] * 2
    for old, new in zip(tasks, again, strict=True):
        assert [flows.count(folder, old, "render"), flows.count(folder, new, "render")] == [1, 0]
        assert sum(flows.count(folder, task, "notify") for task in (old, new)) == 1
