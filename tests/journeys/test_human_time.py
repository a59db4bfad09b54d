"""A limit on how long a routine runs counts what it runs, and never what people take (DX-19)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import flows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIMITED = """
def work(ctx, given):
    wrote(ctx, "begin")
    ctx.step("before", lambda: time.sleep(given["before"]))
    answer = ctx.ask("ok", ttl="1h")
    time.sleep(given["after"])
    wrote(ctx, "end")
    return answer


@routine("thread", timeout={limit_s})
def thread(ctx, given):
    return work(ctx, given)


@routine("process", timeout={limit_s}, isolation="process")
def process(ctx, given):
    return work(ctx, given)


@routine("coroutine", timeout={limit_s})
async def coroutine(ctx, given):
    wrote(ctx, "begin")
    await ctx.step("before", lambda: asyncio.sleep(given["before"]))
    answer = await ctx.ask("ok", ttl="1h")
    await asyncio.sleep(given["after"])
    wrote(ctx, "end")
    return answer
"""
KINDS = ("thread", "process", "coroutine")


@pytest.mark.parametrize(
    ("limit_s", "human_s"), [(4.0, 5.0), pytest.param(5.0, 60.0, marks=pytest.mark.prove)]
)
def test_the_time_that_people_take_is_no_time_that_a_routine_ran(
    limit_s: float, human_s: float, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """DX-19: the limit is for an attempt; it neither runs while a task is parked nor is lost by it."""
    folder = flows.make(box, "return None", more=LIMITED.replace("{limit_s}", f"{limit_s}"))
    with AgentProgram(folder, plane_url, "--tasks", "9"):
        short = {"before": 0.1, "after": 0.1}
        kept = [flows.start(plane, kind, short) for kind in KINDS]
        broken = [flows.start(plane, kind, short | {"after": limit_s * 20}) for kind in KINDS]
        flows.until(plane, kept + broken, current_state="parked")
        time.sleep(human_s)
        assert {flows.view(plane, task)["current_state"] for task in kept + broken} == {"parked"}
        flows.answer_all(plane, "yes")
        views = flows.until(plane, kept, current_state="completed", within_s=60)
        wait_for(
            lambda: all(flows.view(plane, task)["current_state"] == "failed" for task in broken),
            within_s=60,
            what="end by the limit",
        )

    assert [(view["result"], view["failures"]) for view in views] == [("yes", 0)] * len(KINDS)
    assert [flows.count(folder, task, "begin") for task in kept] == [2, 2, 2]
    assert [flows.count(folder, task, "end") for task in kept + broken] == [1, 1, 1, 0, 0, 0]
    for task in broken:
        view = flows.view(plane, task)
        assert f"longer than its timeout of {limit_s:g} s" in view["error"], view
