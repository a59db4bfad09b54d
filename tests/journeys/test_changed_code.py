"""Code is exchanged while its tasks sleep: each step gets its own value, whatever stands where by now (BH-044)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control.databases import run_sql
from programs import AgentProgram, ControlPlaneClient

from journeys import flows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MORE = """
CHANGED = {changed}
COUNT = range(5)


def tried(ctx):
    if ctx.attempt == 1:
        raise OSError("away")
    return "tried"


@routine("sides")
async def sides(ctx, given):
    async def side(name):
        async def work():
            await asyncio.sleep(0.05 if name == "x" else 0)
            return wrote(ctx, name)

        return await ctx.step(name, work)

    got = await asyncio.gather(*map(side, ["y", "z", "x"] if CHANGED else ["x", "y"]))
    await ctx.sleep_for("nap", 3600)
    return got
"""
SECOND = """

@routine("plain", version=2)
def second(ctx, given):
    return ctx.step("a", lambda: wrote(ctx, "second"))
"""
BODY = """
case, got = given["case"], []
if case == "loop":
    for n in COUNT:
        got.append(ctx.step("fetch", lambda n=n: (wrote(ctx, f"fetch {n}"), n)[1]))
        if n == 2:
            ctx.sleep_for("nap", 3600)
elif case == "numbered":
    for n in reversed(COUNT) if CHANGED else COUNT:
        got.append(ctx.step("fetch", lambda n=n: (wrote(ctx, f"fetch {n}"), n)[1], occurrence=n + 1))
    ctx.sleep_for("nap", 3600)
elif case == "falsy":
    for n, value in enumerate([None, False, 0, ""]):
        got.append(ctx.step(f"falsy {n}", lambda n=n, value=value: (wrote(ctx, f"falsy {n}"), value)[1]))
    ctx.sleep_for("nap", 3600)
elif case == "fails":
    got.append(ctx.step("done", lambda: wrote(ctx, "done")))
    got.append(ctx.step("flaky", lambda: (wrote(ctx, "flaky"), tried(ctx))[1]))
    ctx.sleep_for("nap", 3600)
else:
    if CHANGED and case == "inserted":
        got.append(ctx.step("new", lambda: wrote(ctx, "new")))
    if CHANGED and case == "swapped":
        got.append(ctx.step("b", lambda: wrote(ctx, "b")))
    name = "a by now" if CHANGED and case == "renamed" else "a"
    got.append(ctx.step(name, lambda: {"changed": wrote(ctx, name)} if CHANGED else wrote(ctx, name)))
    ctx.sleep_for("nap", 3600)
    if not (CHANGED and case == "swapped"):
        got.append(ctx.step("b", lambda: wrote(ctx, "b")))
return got
"""
# What each returns in the end, and how often each step was done.
CASES: dict[str, tuple[Any, dict[str, int]]] = {
    "loop": ([0, 1, 2, 3, 4], {f"fetch {n}": 1 for n in range(5)}),
    "numbered": ([4, 3, 2, 1, 0], {f"fetch {n}": 1 for n in range(5)}),
    "falsy": ([None, False, 0, ""], {f"falsy {n}": 1 for n in range(4)}),
    "fails": (["done", "tried"], {"done": 1, "flaky": 2}),
    "inserted": (["new", "a", "b"], {"new": 1, "a": 1, "b": 1}),
    "swapped": (["b", "a"], {"a": 1, "b": 1}),
    "renamed": ([{"changed": "a by now"}, "b"], {"a": 1, "a by now": 1, "b": 1}),
    "retyped": (["a", "b"], {"a": 1, "b": 1}),
    "versioned": (["a", "b"], {"a": 1, "b": 1}),
}
OVER = 'UPDATE waits SET parts = \'[{{"kind":"sleep","at":"2020-01-01T00:00:00Z"}}]\', due_at = \'2020-01-01\' WHERE task_id = ANY (ARRAY[{}])'


def test_each_step_gets_its_own_value_from_changed_code(
    box: Path, plane_url: str, plane: ControlPlaneClient, plane_database: str
) -> None:
    """S2-16 … S2-22, S2-52 … S2-55, BH-044: run to the sleep, exchange the code, wake."""
    old = flows.make(box, BODY, more=MORE.format(changed=False))
    with AgentProgram(old, plane_url, "--tasks", "12"):
        tasks = {
            (kind, case): flows.start(plane, kind, {"case": case}, retries=1)
            for kind in ("plain", "loop")
            for case in CASES
        }
        sides = flows.start(plane, "sides")
        asleep = [*tasks.values(), sides]
        flows.until(plane, asleep, watchdog_stop_reason="sleeping:nap#1")
    folder = box.parent / "changed"
    new = flows.make(folder, BODY, more=MORE.format(changed=True) + SECOND)
    folder.with_suffix(".ledger").symlink_to(old.with_suffix(".ledger"))
    run_sql(plane_database, OVER.format(",".join(map(str, asleep))))
    with AgentProgram(new, plane_url, "--tasks", "12", name="new"):
        second = flows.start(plane, "plain", {}, version=2)
        flows.until(plane, [*asleep, second], current_state="completed")

    for (kind, case), task in tasks.items():
        result, effects = CASES[case]
        assert flows.view(plane, task)["result"] == result, (kind, case)
        assert {name: flows.count(old, task, name) for name in effects} == effects, (kind, case)
    assert flows.view(plane, sides)["result"] == ["y", "z", "x"]
    assert {name: flows.count(old, sides, name) for name in "xyz"} == {"x": 1, "y": 1, "z": 1}
    assert (flows.view(plane, second)["result"], flows.count(old, second, "a")) == ("second", 0)
