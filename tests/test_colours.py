"""When both programs colour what they show: the rule is one, in the log as in the commands."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from stateous_control import colours as control
from stateous_supervisor import colours as supervisor
from stateous_supervisor.cli import daemon

CASES = [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": "0"}, False), ({"TERM": "dumb"}, False)]  # fmt: skip


@pytest.mark.parametrize("program", [control, supervisor], ids=["control", "supervisor"])
@pytest.mark.parametrize(("environment", "is_wanted"), CASES, ids=str)
def test_an_empty_no_color_asks_for_nothing(
    program: Any, environment: dict[str, str], is_wanted: bool
) -> None:
    assert program.has_colours(environment, is_terminal=True) is is_wanted
    assert not program.has_colours(environment, is_terminal=False)


@pytest.mark.parametrize(("environment", "is_wanted"), CASES, ids=str)
def test_the_agents_log_keeps_to_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_wanted: bool
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ours, theirs = os.openpty()
    monkeypatch.setattr(daemon, "STDERR", theirs)
    lines: list[str] = []
    config: Any = SimpleNamespace(log_format="auto", log_level="info", name="box")
    stderr: Any = SimpleNamespace(write=lines.append)
    try:
        daemon.log_for(config, stderr).tell(
            "control_plane.unreachable", error="nobody", failures=1, next_in_s=1.0
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert ("\x1b[" in "".join(lines)) is is_wanted
