"""What the kernel says of processes that it killed for want of memory (A-23)."""

from __future__ import annotations

from pathlib import Path

from stateous_supervisor.agent import shortage
from stateous_supervisor.agent.shortage import Kills


def group(root: Path, name: str, events: str) -> tuple[Path, Path]:
    """Make a control group with what it counts, and the file of a process that is in it."""
    (root / "mount" / name).mkdir(parents=True, exist_ok=True)
    (root / "mount" / name / "memory.events").write_text(events)
    (root / "proc").write_text(f"1:name=systemd:/other\n0::/{name}\n")
    return root / "proc", root / "mount"


def test_kills_of_the_own_group_are_counted(tmp_path: Path) -> None:
    where = group(tmp_path, "unit/agent", "low 0\nmax 73\noom 9\noom_kill 2\noom_group_kill 0\n")
    assert shortage.kills(*where) == Kills("/unit/agent", 2)


def test_where_nobody_counts_nothing_is_known(tmp_path: Path) -> None:
    """Version 1, a group without the controller, no /proc."""
    (tmp_path / "proc").write_text("4:memory:/unit\n")
    assert shortage.kills(tmp_path / "proc", tmp_path) == Kills("", 0)
    assert shortage.kills(*group(tmp_path, "unit", "low 0\n")) == Kills("", 0)
    assert shortage.kills(tmp_path / "none", tmp_path) == Kills("", 0)


def test_a_kill_is_one_since_then_in_the_group_of_now() -> None:
    assert shortage.is_between(Kills("/a", 2), Kills("/a", 3))
    assert not shortage.is_between(Kills("/a", 2), Kills("/a", 2))
    assert shortage.is_between(Kills("/unit", 2), Kills("/unit/agent", 1))
    assert not shortage.is_between(Kills("/unit", 2), Kills("/unit/agent", 0))
