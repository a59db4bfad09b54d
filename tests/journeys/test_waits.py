"""Routines that wait: over crashes, on other boxes, in every kind of park, with each side effect counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import flows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# Every kind of call that is durable, with a place to die before and after each, and inside of steps.
MATRIX = """
dies(ctx, given, 0)
ctx.step("one", lambda: (wrote(ctx, "one"), dies(ctx, given, "in one")) and 1)
dies(ctx, given, 1)
ctx.sleep_for("nap", 0.2)
dies(ctx, given, 2)
answer = ctx.ask("ok", choices=["yes"], ttl="1h")
dies(ctx, given, 3)
kid = ctx.spawn("child", ctx.task, retries=100)
dies(ctx, given, 4)
done = ctx.wait_for_result(kid)
dies(ctx, given, 5)
got = ctx.wait_for_signal("go", timeout="1h")
dies(ctx, given, 6)
first = ctx.first("either", Signal("never"), Sleep(0.1))
dies(ctx, given, 7)
ctx.checkpoint("here")
dies(ctx, given, 8)
ctx.step("two", lambda: wrote(ctx, "two"))
dies(ctx, given, 9)
return [answer, done.value, got.payload, first.index]
"""
PLACES = [*range(10), "in one"]


def test_a_routine_dies_at_each_durable_boundary_and_each_effect_is_there_once(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-14, S2-06, S2-09, S2-15, S2-29 … S2-34, BH-044: the crash matrix; the signal is sent before it is awaited."""
    folder = flows.make(box, MATRIX, isolation="process")
    with AgentProgram(folder, plane_url, "--tasks", "12"):
        tasks = {
            (kind, place): flows.start(plane, kind, {"dies": place}, retries=2)
            for kind in ("plain", "loop")
            for place in PLACES
        }
        for task in tasks.values():
            flows.send(plane, task, "go", {"of": task})

        def completed() -> bool:
            flows.answer_all(plane, "yes")
            states = {flows.view(plane, task)["current_state"] for task in tasks.values()}
            return states <= {"completed", "failed"}

        wait_for(completed, within_s=90, what="end of all tasks")

    for (_, place), task in tasks.items():
        view = flows.view(plane, task)
        assert view["current_state"] == "completed", view
        assert view["result"] == ["yes", "child work", {"of": task}, 1]
        assert view["failures"] == 1, "it has died once, and nothing else was counted"
        effects = {phase: flows.count(folder, task, phase) for phase in ("one", "two")}
        assert effects == {"one": 2 if place == "in one" else 1, "two": 1}
    children = [line["of"] for line in flows.ledger(folder) if line["phase"] == "child work"]
    assert sorted(children) == sorted(tasks.values())


PARKS = """
ctx.step("before", lambda: wrote(ctx, "before"))
kind = given["kind"]
if kind == "sleep":
    got = ctx.sleep_for("nap", 3)
elif kind == "signal":
    got = (ctx.wait_for_signal("go")).payload
elif kind == "timeout":
    got = bool(ctx.wait_for_signal("never", timeout=3))
elif kind == "result":
    later = ctx.spawn("later", None)
    got = (ctx.wait_for_result(later)).value
elif kind == "any":
    got = (ctx.first("some", Signal("x"), Signal("go"))).index
else:
    got = ctx.ask("ok", ttl="1h")
ctx.step("after", lambda: wrote(ctx, "after"))
return got
"""
KINDS = {"sleep": None, "signal": 5, "timeout": False, "result": "late", "any": 1, "question": "yes"}
LATER = '@routine("later")\ndef later(ctx, given):\n    return ctx.wait_for_signal("late") and "late"\n'


@pytest.mark.parametrize("kind", ["plain", pytest.param("loop", marks=pytest.mark.prove)])
def test_every_kind_of_park_goes_on_on_another_box_with_nothing_but_the_rows(
    kind: str, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-53, S2-01, S2-04, S2-26, DX-11: the first box is gone for good; times are those of the first park."""
    folder = flows.make(box, PARKS, more=LATER)
    with AgentProgram(folder, plane_url) as agent:
        tasks = {park: flows.start(plane, kind, {"kind": park}) for park in KINDS}
        flows.until(plane, list(tasks.values()), current_state="parked")
        later = [each["task"] for each in _all(plane) if each.get("parent") == tasks["result"]]
        flows.until(plane, later, current_state="parked")
        agent.kill()
    with AgentProgram(flows.another_box(folder), plane_url, name="box-2"):
        flows.send(plane, tasks["signal"], "go", 5)
        flows.send(plane, tasks["any"], "go")
        flows.send(plane, max(later), "late")
        flows.answer_all(plane, "yes")
        flows.until(plane, list(tasks.values()), current_state="completed")

    for park, task in tasks.items():
        view = flows.view(plane, task)
        assert (view["result"], view["failures"]) == (KINDS[park], 0), park
        assert [flows.count(folder, task, phase) for phase in ("before", "after")] == [1, 1], park
    for park in ("sleep", "timeout"):
        log = plane.http.get(f"/tasks/{tasks[park]}/log").json()["entries"]
        [until] = [entry["data"]["until"] for entry in log if "until" in entry["data"]]
        assert until < next(entry["at"] for entry in log if entry["kind"] == "wait_over")


TRIED = """
got = None
for number in range(3):
    try:
        if given == "sleep":
            ctx.sleep_for("nap", 0.2)
            got = "slept"
        elif given == "signal":
            got = (ctx.wait_for_signal("go")).payload
        elif given == "any":
            got = (ctx.first("some", Signal("go"), Sleep("1h"))).index
        elif given == "result":
            later = ctx.spawn("later", None)
            got = (ctx.wait_for_result(later)).value
        elif given == "checkpoint":
            got = ctx.checkpoint("here")
        else:
            got = ctx.ask("ok", ttl="1h")
        break
    except Exception:
        wrote(ctx, "caught")
wrote(ctx, "end")
return got
"""
GOTTEN = {"sleep": "slept", "signal": 5, "any": 0, "result": "late", "checkpoint": None, "question": "yes"}


def test_no_handler_of_exceptions_and_no_retry_swallows_a_park_dx_06(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """Each kind of wait in `except Exception` within a loop that tries again, in routines of both kinds."""
    folder = flows.make(box, TRIED, more=LATER)
    with AgentProgram(folder, plane_url, "--tasks", "20"):
        tasks = {
            (kind, park): flows.start(plane, kind, park) for kind in ("plain", "loop") for park in GOTTEN
        }
        for (_, park), task in tasks.items():
            if park in ("signal", "any"):
                flows.until(plane, [task], current_state="parked")
                flows.send(plane, task, "go", 5)

        def completed() -> bool:
            flows.answer_all(plane, "yes")
            for each in _all(plane):
                if each.get("routine") == "later" and each["current_state"] == "parked":
                    plane.http.post(f"/tasks/{each['task']}/signals/late", json={"payload": 1})
            return {flows.view(plane, task)["current_state"] for task in tasks.values()} == {"completed"}

        wait_for(completed, within_s=60, what="end of all tasks")

    for (_, park), task in tasks.items():
        view = flows.view(plane, task)
        assert (view["result"], view["failures"]) == (GOTTEN[park], 0), park
        assert (flows.count(folder, task, "caught"), flows.count(folder, task, "end")) == (0, 1), park


def _all(plane: ControlPlaneClient) -> list[Any]:
    entries: list[Any] = plane.http.get("/tasks", params={"limit": 1000}).json()["entries"]
    return entries


MANY = """
for number in range(given):
    ctx.sleep_for("nap", 0.01)
    got = ctx.wait_for_signal("go")
    wrote(ctx, f"step {got.payload}")
return given
"""


@pytest.mark.prove
@pytest.mark.parametrize("count", [50])
def test_suspensions_use_no_attempts_dx_01(
    count: int, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-29: as many sleeps as signals with no retry at all; signals come early and late, each counts once (DX-09)."""
    folder = flows.make(box, MANY)
    task = flows.start(plane, "plain", count)
    for number in range(count // 2):
        flows.send(plane, task, "go", number)
    with AgentProgram(folder, plane_url):
        for number in range(count // 2, count):
            flows.send(plane, task, "go", number)
        [view] = flows.until(plane, [task], within_s=120, current_state="completed")

    assert (view["result"], view["failures"]) == (count, 0)
    for number in range(count):
        assert flows.count(folder, task, f"step {number}") >= 1


def test_a_rolling_deploy_fails_no_attempt_dx_22(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-52, S2-57: one supervisor has the first version and another the second; the third waits for somebody."""
    body = 'ctx.step("a", lambda: wrote(ctx, "ran"))\nctx.sleep_for("nap", 0.1)\nreturn {}'
    old = flows.make(box.parent / "old", body.format('"old"'))
    new = flows.make(box.parent / "new", body.format('"new"'), version=2)
    with AgentProgram(old, plane_url, name="old"), AgentProgram(new, plane_url, name="new"):
        tasks = [flows.start(plane, "plain", version=1 + number % 2) for number in range(12)]
        alone = flows.start(plane, "plain", version=3)
        views = flows.until(plane, tasks, current_state="completed")
        waiting = flows.view(plane, alone)

    assert [view["result"] for view in views] == ["old", "new"] * 6
    assert {(view["failures"], view["attempt"]) for view in views} == {(0, 2)}
    assert (waiting["current_state"], waiting["attempt"], waiting["failures"]) == ("pending", 0, 0)
    plane.http.post(f"/tasks/{alone}/cancel", json={"expected_generation": waiting["generation"]})


SLOW = """
@routine("slow")
def slow(ctx, given):
    def work():
        wrote(ctx, "slow begins")
        while not Path(given).exists():
            time.sleep(0.02)
        wrote(ctx, "slow ends")
    ctx.step("slow", work)
    ctx.step("next", lambda: wrote(ctx, "next"))
"""
PARENT = """
kid = ctx.spawn("slow", given["gate"])
got = ctx.wait_for_result(kid, timeout=given["timeout"])
return [bool(got), bool(got)]
"""


def test_an_abandoned_child_finishes_its_step_and_begins_no_other(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-38, S2-40 … S2-42, S2-46, S2-47 … S2-50: by a timeout of its parent, and by its parent's end."""
    folder = flows.make(box, PARENT, more=SLOW)
    gate = box.parent / "gate"
    with AgentProgram(folder, plane_url):
        timed = flows.start(plane, "plain", {"gate": str(gate), "timeout": 1})
        cancelled = flows.start(plane, "loop", {"gate": str(gate), "timeout": "1h"})
        wait_for(
            lambda: [line["phase"] for line in flows.ledger(folder)].count("slow begins") == 2,
            within_s=40,
            what="both children at work",
        )
        flows.until(plane, [cancelled], current_state="parked")
        view = flows.view(plane, cancelled)
        plane.http.post(
            f"/tasks/{cancelled}/cancel", json={"expected_generation": view["generation"]}
        ).raise_for_status()
        [ended] = flows.until(plane, [timed], current_state="completed")
        gate.touch()
        wait_for(
            lambda: [line["phase"] for line in flows.ledger(folder)].count("slow ends") == 2,
            within_s=40,
            what="the end of both steps",
        )
        children = {each["task"]: each for each in _all(plane) if each.get("routine") == "slow"}
        mine = [each for each in children.values() if each.get("parent") in (timed, cancelled)]

    assert ended["result"] == [False, False]
    assert {each["current_state"] for each in mine} <= {"cancelled"}
    assert "next" not in [line["phase"] for line in flows.ledger(folder)]
