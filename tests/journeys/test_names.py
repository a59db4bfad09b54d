"""Two agents with one name, as two boxes made from one image have (BH-010). An agent is its process, not its name."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from control.databases import run_sql
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders


def beginnings(folder: Path, token: str) -> int:
    return [phase for _, phase in folders.phases(folder, token)].count("begin")


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "restarted"])
def test_two_agents_of_one_name_leave_each_others_work_alone(
    box: Path, plane_url: str, plane: ControlPlaneClient, comes_back: bool
) -> None:
    """The heartbeats of the one neither renew nor lose what the other runs; its orphans are retried all the same.

    So they are when it is started again at once, under the same name, which is not refused.
    """
    prefix = "back" if comes_back else "twin"
    one = folders.make(box / "one", plane_url)
    two = folders.make(box / "two", plane_url)
    gate = box / "gate"

    with AgentProgram(one, plane_url, "--tasks", "2") as first:
        for name in ("a", "b"):
            plane.start(f"{prefix}-{name}", gate=str(gate))
            wait_for(partial(beginnings, one, f"{prefix}-{name}"), within_s=10, what="beginning")
        with AgentProgram(two, plane_url, "--tasks", "2") as second:
            for name in ("c", "d"):
                plane.start(f"{prefix}-{name}", gate=str(gate))
                wait_for(partial(beginnings, two, f"{prefix}-{name}"), within_s=10, what="beginning")
            first.kill()
            # Half of the slots of the name are gone; what they ran must come back although the name lives.
            gate.touch()
            with AgentProgram(one, plane_url, "--tasks", "2") if comes_back else nullcontext() as again:
                for name in "abcd":
                    plane.until(f"{prefix}-{name}", status="completed", within_s=30)
                assert again is None or again.child.poll() is None
            assert second.child.poll() is None

    for name in "cd":
        assert beginnings(two, f"{prefix}-{name}") >= 1
        assert "task_failed" not in plane.kinds(f"{prefix}-{name}")
    for name in "ab":
        ends = [kind for kind in plane.kinds(f"{prefix}-{name}") if kind in ("task_failed", "task_released")]
        # Who comes back gives them back, if it is there before their leases end.
        assert ends == ["task_failed"] or (comes_back and ends == ["task_released"]), ends


def test_a_copied_state_folder_delivers_nothing_twice(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """The copy of an outbox neither repeats its claims nor settles its grants."""
    one = folders.make(box / "one", plane_url)
    gate = box / "gate"

    with AgentProgram(one, plane_url) as first:
        plane.start("copied", gate=str(gate))
        wait_for(lambda: beginnings(one, "copied"), within_s=10, what="beginning")
        shutil.copytree(box / "one-state", box / "two-state", ignore=shutil.ignore_patterns("*.sock"))
        two = folders.make(box / "two", plane_url)
        with AgentProgram(two, plane_url):
            plane.start("beside-the-copy", kind="loop")
            plane.until("beside-the-copy", status="completed")
            gate.touch()
            plane.until("copied", status="completed")
        assert first.child.poll() is None

    assert "task_released" not in plane.kinds("copied")
    assert folders.phases(one, "copied")[:2] == [(1, "begin"), (1, "end")]


@pytest.mark.prove
@pytest.mark.timeout(180)
def test_a_successor_of_the_same_name_neither_hides_nor_takes_what_a_draining_agent_holds(
    box: Path, plane_url: str, plane: ControlPlaneClient, plane_database: str
) -> None:
    """DX-13: the old one drains, the list forgets both, the old one is killed: its orphan is back within one lease."""
    one = folders.make(box / "one", plane_url)
    two = folders.make(box / "two", plane_url)

    def start(token: str, where: Path) -> None:
        plane.start(token, gate=str(box / f"gate-{token}"))
        wait_for(lambda: beginnings(where, token), within_s=40, what=f"beginning of {token}")

    with AgentProgram(one, plane_url) as old:
        start("drained", one)
        start("orphaned", one)
        old.signal(signal.SIGTERM)
        old.line('"event":"supervisor.stopping"')
        with AgentProgram(two, plane_url) as new:
            start("fresh", two)
            run_sql(plane_database, "DELETE FROM supervisors")
            (box / "gate-drained").touch()
            plane.until("drained", status="completed")
            old.kill()
            killed = time.monotonic()
            wait_for(lambda: beginnings(two, "orphaned"), within_s=60, what="attempt elsewhere")
            print(
                f"the orphan ran again {time.monotonic() - killed:.1f} s after the kill, with a lease of 3 s"
            )
            for token in ("orphaned", "fresh"):
                (box / f"gate-{token}").touch()
                plane.until(token, status="completed")
            assert new.child.poll() is None

    for token, failures in (("drained", 0), ("fresh", 0), ("orphaned", 1)):
        assert plane.kinds(token).count("task_failed") == failures, token
        ran = Counter(
            (line["attempt"], line["task"])
            for folder in (one, two)
            for line in folders.ledger(folder)
            if (line["token"], line["phase"]) == (token, "begin")
        )
        assert set(ran.values()) == {1}, f"an attempt of {token} ran twice: {ran}"
