"""An answer goes to whoever runs the task then: another process, another box, the same box after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FaultProxy, Rule
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import durable, folders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# Which routine, run how.
HOW = {
    "def": ("hand", False, []),
    "async": ("loop", False, []),
    "def-process": ("hand", True, []),
    "async-process": ("loop", True, []),
    "inline": ("hand", False, ["--inline"]),
}


# One of each kind here, the others with the long counts: each starts two agents.
SOME = ("def", "async-process")


@pytest.mark.parametrize(
    "how", [*SOME, *(pytest.param(h, marks=pytest.mark.prove) for h in HOW if h not in SOME)]
)
def test_an_answer_goes_to_whoever_runs_the_task_then(
    how: str, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """S1-42, S1-44, S1-46, S1-48, S1-52, S1-54, S1-55: the one slot is free at once, and another box goes on.

    `except Exception` around the question caught nothing.
    """
    kind, is_isolated, options = HOW[how]
    folder = durable.make(box, plane_url, durable.ASKING)
    if is_isolated:
        durable.isolate(folder)
    token = f"ask-{how}"
    with AgentProgram(folder, plane_url, "--tasks", "1", *options):
        plane.start(token, kind=kind, size=3)
        asked = durable.open_question(plane, token)
        plane.start(f"{token}-next", kind=kind)
        durable.open_question(plane, f"{token}-next")
        task = durable.task_of(plane, token)
        wait_for(
            lambda: (1, "unwound") in durable.phases(folder, token), within_s=20, what="routine that unwinds"
        )
    assert (task["current_state"], task["watchdog_stop_reason"]) == ("parked", "awaiting_user_answer:approve")
    assert (task["failures"], asked["data"], asked["choices"]) == (0, {"size": [3]}, ["yes", "no"])

    durable.command(plane_url, "question", "answer", asked["question"], "yes")
    with AgentProgram(durable.another_box(folder), plane_url, *options, name="box-2") as agent:
        plane.until(token, status="completed", within_s=40)

    before = [(1, "begin"), (1, "build"), (1, "unwound")]
    assert durable.phases(folder, token) == [*before, (2, "begin"), (2, "unwound"), (2, "went on")]
    [line] = [line for line in folders.ledger(folder) if line["phase"] == "went on"]
    assert (line["answer"], line["size"]) == ("yes", [3])
    assert [entry for entry in plane.kinds(token) if "fail" in entry] == []
    assert '"level":"error"' not in agent.told


def test_an_agent_killed_between_ask_and_its_answer_does_not_ask_twice_bh_043(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-043(c), S1-59: the question stands, and what the next process settles harms nothing."""
    with FaultProxy(plane_url) as proxy:
        folder = durable.make(box, proxy.url, durable.ASKING)
        proxy.rules.append(Rule(r"POST /tasks/\d+/questions", times=10_000))
        with AgentProgram(folder, proxy.url) as first:
            plane.start("killed-asking")
            durable.open_question(plane, "killed-asking")
            first.kill()
        proxy.rules.clear()
        with AgentProgram(folder, proxy.url) as second:
            second.line('"event":"outbox.recovered"', within_s=40)
            durable.answer_question(plane, "killed-asking", "yes")
            plane.until("killed-asking", status="completed", within_s=40)

    assert [each["status"] for each in durable.questions(plane, "killed-asking")] == ["answered"]
    assert durable.task_of(plane, "killed-asking")["failures"] == 0
    assert [phase for _, phase in durable.phases(folder, "killed-asking")].count("build") == 1


@pytest.mark.prove
@pytest.mark.parametrize("is_heard", [False, True], ids=["before it is asked", "before its answer"])
def test_an_agent_killed_between_an_answer_and_the_next_question_asks_each_once_bh_043(
    is_heard: bool, box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-043(c): the first question stays answered, and the second is asked once, by whoever comes next."""
    token = f"two-questions-{is_heard}"
    with FaultProxy(plane_url) as proxy:
        folder = durable.make(box, proxy.url, durable.ASKING)
        with AgentProgram(folder, proxy.url) as first:
            plane.start(token, kind="hand", gate="loop")
            first_asked = durable.open_question(plane, token, within_s=60)
            heard = proxy.times_heard(r"POST /tasks/\d+/questions")
            proxy.rules.append(Rule(r"POST /tasks/\d+/questions", times=10_000, forwards=is_heard))
            durable.answer(plane, first_asked, -1)
            wait_for(
                lambda: proxy.times_heard(r"POST /tasks/\d+/questions") > heard,
                within_s=60,
                what="second question on its way",
            )
            if is_heard:
                durable.open_question(plane, token, within_s=60)
            first.kill()
        proxy.rules.clear()
        with AgentProgram(folder, proxy.url) as second:
            second.line('"event":"outbox.recovered"', within_s=60)
            durable.answer(plane, durable.open_question(plane, token, within_s=60), 42)
            plane.until(token, status="completed", within_s=60)

    asked = durable.questions(plane, token)
    assert [(each["occurrence"], each["answer"]) for each in asked] == [(1, -1), (2, 42)]
    assert [phase for _, phase in durable.phases(folder, token)].count("build") == 1
