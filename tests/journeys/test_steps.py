"""Steps are done once, whatever dies, and a pause takes effect between them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from control.databases import fresh, run_sql, url_of
from faults import FaultProxy, Rule, page
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import durable, folders
from journeys.conftest import TIMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

HELPERS = """
def held(ctx, name):
    wrote(ctx, name)
    while not is_open(ctx):
        time.sleep(0.02)
    return name
"""
BODY = """
one = ctx.step("one", lambda: wrote(ctx, "one") or {"n": 2**70, "none": None})
two = ctx.step("two", lambda: held(ctx, "two"))
ctx.checkpoint("between")
three = ctx.step("three", lambda: wrote(ctx, "three") or ctx.step_key)
wrote(ctx, "end", got=[one, two, three])
"""


def phases(folder: Path, token: str) -> list[str]:
    return [phase for _, phase in folders.phases(folder, token)]


def test_a_step_that_was_kept_is_not_done_again_after_kill_9(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-14, S2-06, S2-07, S2-15, BH-044: the step under way runs again, the one before it does not."""
    folder = durable.make(box, plane_url, BODY, HELPERS)
    plane.start("kept", gate=str(box / "gate"))
    with AgentProgram(folder, plane_url) as agent:
        wait_for(lambda: "two" in phases(folder, "kept"), within_s=30, what="second step")
        agent.kill()
    with AgentProgram(folder, plane_url) as agent:
        wait_for(lambda: phases(folder, "kept").count("two") == 2, within_s=30, what="second step again")
        for host in psutil.Process(agent.child.pid).children():
            host.kill()
        wait_for(lambda: phases(folder, "kept").count("two") == 3, within_s=30, what="second step once more")
        (box / "gate").touch()
        plane.until("kept", status="completed", within_s=40)

    assert phases(folder, "kept").count("one") == 1
    task = durable.task_of(plane, "kept")["task"]
    [end] = [line for line in folders.ledger(folder) if line["phase"] == "end"]
    assert end["got"] == [{"n": 2**70, "none": None}, "two", f"kept.{task}.1.three#1"]


def test_a_pause_is_observed_at_the_checkpoint_and_the_task_goes_on_after_it(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-68 … S1-72, S1-74, S1-76: the step under way is finished and kept first."""
    folder = durable.make(box, plane_url, BODY, HELPERS)
    plane.start("paused", gate=str(box / "gate"))
    with AgentProgram(folder, plane_url):
        wait_for(lambda: "two" in phases(folder, "paused"), within_s=30, what="second step")
        task = durable.task_of(plane, "paused")["task"]
        durable.command(plane_url, "task", "pause", task)
        assert durable.task_of(plane, "paused")["current_state"] == "running"
        (box / "gate").touch()
        durable.task_until(
            plane, "paused", current_state="parked", watchdog_stop_reason="user_paused", within_s=40
        )
        durable.command(plane_url, "task", "resume", task)
        plane.until("paused", status="completed", within_s=40)

    ran = phases(folder, "paused")
    assert ran[:-1] == ["begin", "one", "two", "begin", "three", "end"]
    assert durable.task_of(plane, "paused")["failures"] == 0


@pytest.mark.prove
def test_lost_requests_and_answers_of_checkpoints_keep_one_value_each(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S2-30, A-37."""
    (box.parent / "gate").touch()
    with FaultProxy(plane_url) as proxy:
        folder = durable.make(box, proxy.url, BODY, HELPERS)
        messages = "POST /tasks/messages"
        proxy.rules += [
            Rule(messages, forwards=False, times=2),
            Rule(messages, times=2),
            Rule(messages, answer=page(502)),
            Rule(r"POST /tasks/\d+/park", times=2),
        ]
        with AgentProgram(folder, proxy.url):
            plane.start("lossy", kind="loop", gate=str(box.parent / "gate"))
            plane.until("lossy", status="completed", within_s=60)
        assert not proxy.rules

    assert phases(folder, "lossy")[:-1] == ["begin", "one", "two", "three", "end"]
    task = durable.task_of(plane, "lossy")["task"]
    kept = plane.http.get(f"/tasks/{task}/checkpoints").json()["entries"]
    assert [each["step"] for each in kept] == ["one", "two", "between", "three"]


@pytest.mark.prove
def test_another_control_plane_on_a_copy_of_the_database_goes_on_alike(
    box: Path, postgres: str, migrated_template: str
) -> None:
    """S1-53, S2-02: what is parked for an answer and what is paused needs the rows and nothing else."""
    body = BODY + '\nwrote(ctx, "answered", answer=ctx.ask("go", ttl="2h"))\n'
    with fresh(postgres, migrated_template) as database:
        with (
            ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--database", database) as program,
            ControlPlaneClient(program.url) as plane,
        ):
            folder = durable.make(box, program.url, body, HELPERS)
            with AgentProgram(folder, program.url):
                plane.start("asks", kind="loop")
                durable.open_question(plane, "asks", within_s=40)
                plane.start("pauses", gate=str(box / "gate"))
                wait_for(lambda: "two" in phases(folder, "pauses"), within_s=30, what="second step")
                durable.command(program.url, "task", "pause", durable.task_of(plane, "pauses")["task"])
                (box / "gate").touch()
                durable.task_until(plane, "pauses", watchdog_stop_reason="user_paused", within_s=40)
        run_sql(
            postgres,
            f"CREATE DATABASE copied TEMPLATE {database.split('///')[1].split('?')[0]} STRATEGY FILE_COPY",
        )
        try:
            _go_on(folder, url_of(postgres, "copied"))
        finally:
            run_sql(postgres, "DROP DATABASE copied WITH (FORCE)")

    for token in ("asks", "pauses"):
        ran = phases(folder, token)
        assert [ran.count(step) for step in ("one", "two", "three", "end")] == [1, 1, 1, 2]
        assert ran[-2:] == ["answered", "begin"]


def _go_on(folder: Path, database: str) -> None:
    with (
        ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--database", database) as program,
        ControlPlaneClient(program.url) as plane,
        AgentProgram(durable.another_box(folder), program.url, name="box-2"),
    ):
        durable.command(program.url, "task", "resume", durable.task_of(plane, "pauses")["task"])
        for token in ("asks", "pauses"):
            durable.answer(plane, durable.open_question(plane, token, within_s=40), "yes")
            plane.until(token, status="completed", within_s=40)
