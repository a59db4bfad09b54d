"""The main job: a folder's routines move tokens from state to state, over real HTTP and a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plane_url: str) -> Iterator[Path]:
    made = folders.make(tmp_path_factory.mktemp("errand") / "box", plane_url)
    with AgentProgram(made, plane_url):
        yield made


def test_a_token_goes_from_state_to_state_until_it_ends(folder: Path, plane: ControlPlaneClient) -> None:
    """S3-63, S3-68, S3-72: context, payload, memory, notes and history all arrive."""
    plane.start("main", size=7)

    ended = plane.until("main", status="completed")

    assert ended["context"] == {"kind": "hand", "gate": "", "fails": 0, "size": 7, "tries": 1}
    assert plane.kinds("main") == [
        "started", "event_accepted", "entered", "task_queued", "task_claimed", "memory_set", "note", "context_changed",
        "event_accepted", "task_done", "entered", "task_queued", "task_claimed", "event_accepted", "task_done",
        "completed",
    ]  # fmt: skip
    mine = [line for line in folders.ledger(folder) if line["token"] == "main"]
    assert [line.get("payload") for line in mine] == [None, None, {"size": 7}]


def test_a_routine_that_raises_is_tried_again(folder: Path, plane: ControlPlaneClient) -> None:
    """S3-33, S3-35: memory is kept from attempt to attempt."""
    plane.start("again", fails=2)

    assert plane.until("again", status="completed")["context"]["tries"] == 3
    failed = [entry["data"]["error"] for entry in plane.history("again") if entry["kind"] == "task_failed"]
    assert failed == ["RuntimeError: told to fail, attempt 1", "RuntimeError: told to fail, attempt 2"]


def test_the_last_failure_is_the_event_error(folder: Path, plane: ControlPlaneClient) -> None:
    """S3-36, S3-38, S3-39, S3-71: retries are 2, so there are three attempts, and the routine ran in each."""
    plane.start("over", fails=3)

    plane.until("over", state="rescue")

    assert folders.phases(folder, "over") == [(1, "begin"), (2, "begin"), (3, "begin")]


def test_a_coroutine_works_like_a_function(folder: Path, plane: ControlPlaneClient) -> None:
    """S3-64, S3-65."""
    plane.start("by-the-loop", kind="loop", size=3)

    plane.until("by-the-loop", status="completed")

    assert folders.phases(folder, "by-the-loop") == [(1, "begin"), (1, "end"), (1, "begin")]


def test_a_routine_that_returns_none_waits_for_someone_outside(
    folder: Path, plane: ControlPlaneClient
) -> None:
    """S3-31, S3-50."""
    plane.start("ask", kind="asking")

    def is_waiting() -> bool:
        return "task_waiting" in plane.kinds("ask")

    wait_for(is_waiting, within_s=10, what="waiting task")
    plane.http.post("/tokens/ask/events/answered").raise_for_status()

    assert plane.token("ask")["status"] == "completed"


def test_twenty_tokens_are_all_done(folder: Path, plane: ControlPlaneClient) -> None:
    names = [f"many-{number}" for number in range(20)]

    for name in names:
        plane.start(name, kind="hand" if len(name) % 2 else "loop")

    for name in names:
        plane.until(name, status="completed")
