"""What every request that changes a task must say, and how it names tokens and tasks: over real HTTP and a real database."""

from __future__ import annotations

import pytest
from control.http.keyed import BODIES, QUESTION, TASK, Keyed

CHANGES = [f"/tasks/{TASK}/{verb}" for verb in ("pause", "resume", "cancel", "retry")]


@pytest.mark.parametrize("path", [*CHANGES, f"/questions/{QUESTION}/answer"])
@pytest.mark.parametrize("given", [{}, {"expected_generation": None}], ids=["none", "null"])
def test_no_change_is_made_without_a_generation(plane: Keyed, path: str, given: dict[str, None]) -> None:
    """S1-95, S1-101."""
    thing = path.rpartition("/")[0]
    before = plane.ask("GET", thing, plane.key("viewer", "b")).json()
    body = BODIES[path.rpartition("/")[2]] | given
    if not given:
        del body["expected_generation"]
    answer = plane.ask("POST", path, plane.key("operator", "b"), json=body)
    assert (answer.status_code, answer.json()["code"]) == (428, "generation_required")
    assert plane.ask("GET", thing, plane.key("viewer", "b")).json() == before


def test_a_token_is_named_by_its_starter_and_a_task_by_a_number_of_its_own(plane: Keyed) -> None:
    """S3-80: paths of tokens take the text, paths of tasks the number, and neither takes the other."""
    plane.start("TICKET-1", "t")
    grant = plane.claim("t")
    assert (grant["token"], type(grant["task"])) == ("TICKET-1", int)
    viewer = plane.key("viewer", "t")
    assert plane.ask("GET", "/tokens/TICKET-1", viewer).json()["token"] == "TICKET-1"
    assert plane.ask("GET", f"/tasks/{grant['task']}", viewer).json()["token"] == "TICKET-1"
    for path in ("/tasks/TICKET-1", f"/tokens/{grant['task']}"):
        assert plane.ask("GET", path, viewer).status_code == 404
    report = plane.ask(
        "POST", f"/tasks/{grant['task']}/report", plane.key("supervisor", "t"), json=BODIES["report"]
    )
    assert report.json()["state"] == "testing"
