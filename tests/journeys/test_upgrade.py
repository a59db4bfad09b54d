"""A workflow is changed while its tokens are under way: nothing stops but what the change concerns (A-09)."""

from __future__ import annotations

from pathlib import Path

import pytest
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES

pytestmark = pytest.mark.slow


def changed(path: Path, *changes: tuple[str, str]) -> Path:
    """The journeys' workflow with some texts replaced, as a file of its own."""
    text = folders.WORKFLOW.read_text("utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text, "utf-8")
    return path


ADDED = (
    ("hand: {retries: 2, emits: [made]}", "hand: {retries: 5, timeout: 9h, emits: [made, dropped]}"),
    ("  answered: {}\n", "  answered: {}\n  dropped: {}\n"),
    ("  - {from: hand, on: error", "  - {from: hand, on: dropped, to: __end__}\n  - {from: hand, on: error"),
    ("      tries:", "      urgent: {type: boolean}\n      tries:"),
)
CHECK_CHANGED = (
    ("check: {emits: [passed]}", "check: {emits: [judged]}"),
    ("  answered: {}\n", "  answered: {}\n  judged: {payload: Made}\n"),
    ("{from: check, on: passed, to: __end__}", "{from: check, on: judged, to: __end__}"),
)


def test_a_change_stops_nobody_whom_it_does_not_concern(
    box: Path, postgres: str, migrated_template: str, tmp_path: Path
) -> None:
    """Three versions, one agent that is never restarted, tokens that go on by the version they started on."""
    with fresh(postgres, migrated_template) as database:
        options = [*TIMES, "--database", database]
        with ControlPlaneProgram(folders.WORKFLOW, *options) as first:
            url = first.url
            folder = folders.make(box / "one", url)
            with AgentProgram(folder, url) as agent, ControlPlaneClient(url) as plane:
                plane.start("old", gate=str(box / "gate"))
                wait_for(lambda: folders.phases(folder, "old"), within_s=15, what="the first attempt")
                first.kill()

                added = changed(tmp_path / "added.yaml", *ADDED)
                with ControlPlaneProgram(added, *options, listen=url.removeprefix("http://")):
                    (box / "gate").touch()
                    plane.until("old", status="completed")
                    plane.start("new", urgent=True)
                    plane.until("new", status="completed")
                    agent.line('"event":"contract.agreed"')

                later = changed(tmp_path / "later.yaml", *CHECK_CHANGED)
                with ControlPlaneProgram(later, *options, listen=url.removeprefix("http://")):
                    agent.line('"event":"contract.outdated"')
                    plane.start("latest")
                    plane.until("latest", state="check")
                    plane.start("last")
                    plane.until("last", state="check")
                    kinds = plane.kinds("latest")

    assert kinds[-1] == "task_queued", "a state that has really changed waits for a supervisor that knows it"
