"""A routine asks people: it parks, holds nothing, and goes on with the answer wherever there is an agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import FaultProxy, Rule
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import durable, folders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

QUESTION = r"POST /tasks/\d+/questions"
KINDS = pytest.mark.parametrize("kind", ["hand", "loop"])


@pytest.fixture(scope="module")
def proxy(plane_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(plane_url) as between:
        yield between


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy) -> Iterator[Path]:
    made = durable.make(tmp_path_factory.mktemp("asking") / "box", proxy.url, durable.ASKING)
    with AgentProgram(made, proxy.url):
        yield made


@KINDS
def test_a_question_is_asked_until_the_answer_is_good_dx_07(
    kind: str, folder: Path, plane: ControlPlaneClient
) -> None:
    """BH-043(b): each pass has a question of its own, and old answers come back in their places."""
    token = f"loop-{kind}"
    plane.start(token, kind=kind, gate="loop")

    for given in (-1, -2, 42):
        durable.answer_question(plane, token, given)

    plane.until(token, status="completed", within_s=40)
    asked = durable.questions(plane, token)
    assert [(each["occurrence"], each["answer"]) for each in asked] == [(1, -1), (2, -2), (3, 42)]
    assert [
        line["answer"] for line in folders.ledger(folder) if line["token"] == token and "answer" in line
    ] == [42]
    assert [phase for _, phase in durable.phases(folder, token)].count("build") == 1


@KINDS
def test_a_retry_decorator_lets_a_park_through_dx_06(
    kind: str, folder: Path, plane: ControlPlaneClient
) -> None:
    token = f"retried-{kind}"
    plane.start(token, kind=kind, gate="retried")

    durable.answer_question(plane, token, 1)

    plane.until(token, status="completed", within_s=40)
    told = [phase for _, phase in durable.phases(folder, token)]
    assert (told.count("try"), told.count("caught")) == (2, 0)


@KINDS
def test_a_swallowed_park_is_refused_again_and_is_no_outcome_dx_06(
    kind: str, folder: Path, plane: ControlPlaneClient
) -> None:
    """What the routine went on to return is dropped: the task waits, and the token has not moved."""
    token = f"swallowed-{kind}"
    plane.start(token, kind=kind, gate="swallowed")
    durable.open_question(plane, token)
    wait_for(lambda: (1, "went on") in durable.phases(folder, token), within_s=20, what="end of the routine")
    assert durable.task_of(plane, token)["current_state"] == "parked"

    durable.answer_question(plane, token, "fine")

    plane.until(token, status="completed", within_s=40)
    told = [phase for number, phase in durable.phases(folder, token) if number == 1]
    assert told == ["begin", "build", "Parked", "again Parked", "unwound", "went on"]
    assert [entry for entry in plane.kinds(token) if "fail" in entry] == []


@pytest.mark.parametrize("forwards", [False, True], ids=["request", "answer"])
def test_a_lost_request_or_answer_of_an_ask_asks_once_bh_043(
    forwards: bool, folder: Path, proxy: FaultProxy, plane: ControlPlaneClient
) -> None:
    """Nothing came, or the question was asked and nobody heard: the same question again, and one is asked."""
    token = f"lost-{forwards}"
    proxy.rules.append(Rule(QUESTION, times=2, forwards=forwards))
    plane.start(token)
    durable.open_question(plane, token)
    wait_for(lambda: not proxy.rules, within_s=40, what="repeat of the question")
    wait_for(
        lambda: (1, "unwound") in durable.phases(folder, token), within_s=20, what="routine that unwinds"
    )

    durable.answer_question(plane, token, "no")

    plane.until(token, status="completed", within_s=40)
    assert len(durable.questions(plane, token)) == 1
    assert [entry for entry in plane.kinds(token) if "fail" in entry] == []
