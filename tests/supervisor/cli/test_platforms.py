"""What runs where (A-65)."""

from __future__ import annotations

import pytest

from stateous_supervisor.cli import main
from stateous_supervisor.cli.platforms import fault


@pytest.mark.parametrize("command", main.COMMANDS)
def test_linux_has_every_command(command: str) -> None:
    assert fault("linux", command, is_inline=False) is None


@pytest.mark.parametrize("command", ["check", "config", "init", "contract", "try"])
def test_routines_are_written_on_macos(command: str) -> None:
    assert fault("darwin", command, is_inline=False) is None


def test_macos_runs_inline_only() -> None:
    assert fault("darwin", "run", is_inline=True) is None
    assert "--inline only" in (fault("darwin", "run", is_inline=False) or "")


def test_a_command_for_the_box_is_refused_on_macos() -> None:
    assert "'service' needs Linux" in (fault("darwin", "service", is_inline=False) or "")


@pytest.mark.parametrize("platform", ["win32", "freebsd14", "cygwin"])
def test_the_rest_is_refused_in_one_sentence(
    platform: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", platform)

    code = main.run(["run", "folder", "--inline"])

    assert code == 64
    assert capsys.readouterr().err == (
        f"error: stateous-supervisor runs on Linux, and on macOS for writing routines; this is {platform}\n"
    )
