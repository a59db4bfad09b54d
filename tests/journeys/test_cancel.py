"""A token is cancelled while its routine runs: coroutines are cancelled, functions run on and are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plane_url: str) -> Iterator[Path]:
    made = folders.make(tmp_path_factory.mktemp("cancel") / "box", plane_url)
    with AgentProgram(made, plane_url, "--tasks", "1"):
        yield made


def held(folder: Path, plane: ControlPlaneClient, token: str, gate: Path, **context: str) -> None:
    plane.start(token, gate=str(gate), **context)
    wait_for(lambda: folders.phases(folder, token), within_s=10, what="beginning")


def test_a_coroutine_whose_task_is_lost_is_cancelled(
    folder: Path, plane: ControlPlaneClient, tmp_path: Path
) -> None:
    """S3-24, S3-25, S3-69."""
    held(folder, plane, "coroutine", tmp_path / "gate", kind="loop")

    plane.cancel("coroutine")

    wait_for(lambda: (1, "cancelled") in folders.phases(folder, "coroutine"), within_s=4, what="cancellation")
    assert plane.token("coroutine")["status"] == "cancelled"


def test_a_function_runs_on_and_its_result_is_dropped(
    folder: Path, plane: ControlPlaneClient, tmp_path: Path
) -> None:
    """S3-70, A-30: its slot is free for the next task while it runs on."""
    held(folder, plane, "function", tmp_path / "gate")
    plane.cancel("function")
    before = plane.history("function")

    plane.start("next")
    plane.until("next", status="completed")
    assert (1, "end") not in folders.phases(folder, "function")
    (tmp_path / "gate").touch()
    wait_for(lambda: (1, "end") in folders.phases(folder, "function"), within_s=4, what="end of the function")

    plane.start("after")
    plane.until("after", status="completed")
    assert plane.history("function") == before


def test_an_event_from_outside_takes_a_running_task_away(
    folder: Path, plane: ControlPlaneClient, tmp_path: Path
) -> None:
    """S3-59, S3-60."""
    held(folder, plane, "event", tmp_path / "gate", kind="loop")

    plane.http.post("/tokens/event/events/made", json={"payload": {"size": 9}}).raise_for_status()

    wait_for(lambda: (1, "cancelled") in folders.phases(folder, "event"), within_s=4, what="cancellation")
    plane.until("event", status="completed")
    assert [line["payload"] for line in folders.ledger(folder) if "payload" in line][-1] == {"size": 9}
