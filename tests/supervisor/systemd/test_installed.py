"""Unit files as `doctor` reads them."""

from __future__ import annotations

import math

import pytest

from stateous_supervisor.systemd.installed import read, seconds
from stateous_supervisor.systemd.unit import Service, render


def test_a_rendered_unit_is_read_back() -> None:
    service = Service(
        program="/opt/a b/bin/p",
        folder="/srv/50% $x",
        user="builder",
        token_file="/etc/k%",
        drain_timeout_s=600,
    )

    unit = read([render(service, profile="build", systemd_version=252)])

    assert unit.program == "/opt/a b/bin/p"
    assert unit.arguments == ("run", "/srv/50% $x")
    assert (unit.user, unit.is_dynamic, unit.stop_s) == ("builder", False, 630)
    assert (unit.state_directory, unit.credentials) == ("stateous-supervisor", {"token": "/etc/k%"})
    assert not unit.keeps_privileges


def test_a_drop_in_counts_after_the_unit() -> None:
    unit = read(
        [
            "[Service]\nExecStart=/p run /a\nUser=a\n# User=c\nTimeoutStopSec=5\n",
            "[Service]\nExecStart=\nExecStart=-/q run \\\n /b\nUser=b\nDynamicUser=yes\nTimeoutStopSec=infinity\n",
        ]
    )

    assert (unit.program, unit.arguments) == ("/q", ("run", "/b"))
    assert (unit.user, unit.is_dynamic, unit.stop_s) == ("b", True, math.inf)


def test_a_unit_that_says_nothing_has_the_managers_defaults() -> None:
    unit = read(["[Unit]\n"])

    assert (unit.program, unit.arguments, unit.user, unit.stop_s) == (None, (), None, 90)


@pytest.mark.parametrize(
    ("span", "expected"),
    [("90", 90), ("2min 30s", 150), ("1h", 3600), ("500ms", 0.5), ("infinity", math.inf)],
)
def test_spans_are_read_as_systemd_writes_them(span: str, expected: float) -> None:
    assert seconds(span) == expected
