"""`stateous-supervisor service`: what it prints, what it installs, and what it leaves alone (A-54, BH-058)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stateous_supervisor.cli.main import run
from stateous_supervisor.systemd.unit import is_edited

ANALYZE = shutil.which("systemd-analyze")
PROGRAM = Path(sys.executable).with_name("stateous-supervisor")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "builds"
    made.mkdir()
    (made / "stateous.yaml").write_text("url: http://127.0.0.1:9\n")
    return made


@pytest.fixture
def bin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own, without a systemctl until a test writes one."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", str(made))
    return made


def systemctl(bin_path: Path, version: int, code: int = 0) -> Path:
    """Write a systemctl that knows its version and notes down what it was asked."""
    asked = bin_path / "asked"
    script = bin_path / "systemctl"
    script.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo 'systemd {version} (x)' && exit 0\n"
        f"echo \"$@\" >> {asked}\necho 'no bus' >&2\nexit {code}\n"
    )
    script.chmod(0o755)
    return asked


def test_the_unit_of_a_folder_is_printed_for_the_program_that_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stateous.yaml").write_text("url: http://h\ndrain_timeout: 10m\ntoken_file: ../key\n")

    assert run(["service", str(folder)]) == 0

    unit = capsys.readouterr().out
    assert f"\nExecStart={PROGRAM} run {folder}\n" in unit
    assert "\nTimeoutStopSec=630\n" in unit
    assert f"\nLoadCredential=token:{folder}/../key\n" in unit
    assert "\nUser=stateous\n" in unit
    assert not is_edited(unit)


@pytest.mark.parametrize(("version", "kind"), [(252, "notify"), (257, "notify-reload")])
def test_the_systemd_on_the_box_decides_the_form(
    folder: Path, bin_path: Path, version: int, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    systemctl(bin_path, version)

    run(["service", str(folder)])

    assert f"\nType={kind}\n" in capsys.readouterr().out


def test_without_systemd_it_is_the_form_that_every_systemd_takes(
    folder: Path, bin_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["service", str(folder)])

    said = capsys.readouterr()
    assert "\nType=notify\n" in said.out
    assert "there is no systemctl here" in said.err


def test_what_the_shell_has_set_is_not_in_the_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEOUS_DRAIN_TIMEOUT", "9m")

    run(["service", str(folder)])

    assert "\nTimeoutStopSec=120\n" in capsys.readouterr().out


def test_an_unknown_user_is_named_with_the_line_that_makes_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["service", str(folder), "--user", "nobody-of-that-name"])

    assert "useradd --system" in capsys.readouterr().err


def test_a_folder_that_the_profile_hides_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["service", str(folder), "--profile", "strict"])

    assert f"the service will not see its folder {folder}" in capsys.readouterr().err


def test_installing_writes_the_unit_and_says_what_comes_next(
    folder: Path, bin_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = systemctl(bin_path, 252)

    assert run(["service", str(folder), "--install", "--directory", str(tmp_path), "--unit", "box"]) == 0

    file = tmp_path / "box.service"
    assert capsys.readouterr().out.splitlines() == [
        f"made       {file}",
        "next:",
        "  systemctl daemon-reload",
        "  systemctl enable --now box",
        f"  stateous-supervisor doctor {folder}",
    ]
    assert "StateDirectory=box\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert not asked.exists()


def test_installing_again_replaces_what_nobody_edited(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install = ["service", str(folder), "--install", "--directory", str(tmp_path)]
    run(install)
    (folder / "stateous.yaml").write_text("url: http://h\ndrain_timeout: 5m\n")

    assert run(install) == 0

    assert "TimeoutStopSec=330\n" in (tmp_path / "stateous-supervisor.service").read_text()
    assert "systemctl restart stateous-supervisor" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["builds", "stateous-supervisor.service"]


def test_a_unit_that_somebody_edited_is_kept(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install = ["service", str(folder), "--install", "--directory", str(tmp_path)]
    run(install)
    file = tmp_path / "stateous-supervisor.service"
    file.write_text(edited := file.read_text().replace("RestartSec=2", "RestartSec=20"))

    assert run(install) == 73
    assert file.read_text() == edited
    assert "was edited by hand" in capsys.readouterr().err

    assert run([*install, "--force"]) == 0
    assert "RestartSec=2\n" in file.read_text()


def test_a_directory_that_cannot_be_written_is_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", str(folder), "--install", "--directory", str(tmp_path / "absent")]) == 73

    assert "cannot be written: no such file or directory" in capsys.readouterr().err


def test_enable_reloads_enables_and_starts(folder: Path, bin_path: Path, tmp_path: Path) -> None:
    asked = systemctl(bin_path, 252)

    assert run(["service", str(folder), "--enable", "--directory", str(tmp_path)]) == 0

    unit = "stateous-supervisor"
    assert asked.read_text().splitlines() == ["daemon-reload", f"enable {unit}", f"restart {unit}"]


def test_a_systemctl_that_fails_is_told_with_its_reason(
    folder: Path, bin_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemctl(bin_path, 252, code=1)

    assert run(["service", str(folder), "--enable", "--directory", str(tmp_path)]) == 69
    assert "'systemctl daemon-reload' failed: no bus" in capsys.readouterr().err


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("profile", ["build", "strict"])
def test_systemd_finds_no_fault_in_an_installed_unit(tmp_path: Path, profile: str) -> None:
    """Also where the folder's name has what a unit file would take for its own."""
    folder = tmp_path / "50% $HOME of"
    folder.mkdir()
    (folder / "stateous.yaml").write_text(f"url: http://h\ntoken_file: key\nstate_dir: {tmp_path}/s\n")
    run(
        [
            "service",
            str(folder),
            "--install",
            "--directory",
            str(tmp_path),
            "--profile",
            profile,
            "--user",
            "root",
        ]
    )

    checked = subprocess.run(
        [ANALYZE or "", "verify", "--man=no", tmp_path / "stateous-supervisor.service"],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )

    assert [line for line in checked.stderr.splitlines() if "stateous-supervisor.service" in line] == []
    assert checked.returncode == 0, checked.stderr
