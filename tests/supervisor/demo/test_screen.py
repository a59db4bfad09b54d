"""Colours only where somebody sees them, and nothing that a routine says moves the cursor."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from stateous_supervisor.demo.screen import Screen
from stateous_supervisor.demo.story import Line

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, environment: dict[str, str]) -> str:
    screen = Screen(environment, stream)
    screen.show("T-1", Line(AT, "enters\ncoding\x1b[2J", "good"))
    screen.show("T-1", Line(AT + timedelta(seconds=1.5), "completed"))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "environment"),
    [(io.StringIO, {}), (Terminal, {"NO_COLOR": "1"}), (Terminal, {"TERM": "dumb"})],
    ids=["no terminal", "NO_COLOR", "dumb"],
)
def test_lines_are_plain_where_no_colours_are_wanted(
    stream: type[io.StringIO], environment: dict[str, str]
) -> None:
    assert shown(stream(), environment) == "   0.0 s  T-1  enters coding [2J\n   1.5 s  T-1  completed\n"


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": ""}], ids=["nothing", "empty NO_COLOR"])
def test_a_terminal_gets_colours(environment: dict[str, str]) -> None:
    assert "\x1b[1;32menters coding [2J\x1b[0m" in shown(Terminal(), environment)
