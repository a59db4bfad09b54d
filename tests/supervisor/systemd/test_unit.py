"""The unit file, checked by the systemd on this machine (A-54, BH-058)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stateous_supervisor.systemd.unit import Profile, Service, parse_version, quoted, render

ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
SERVICE = Service(program="/usr/bin/env", folder="/srv/builds", token_file="/etc/stateous/token")


def unit_file(tmp_path: Path, profile: Profile) -> Path:
    version = parse_version(
        subprocess.run([ANALYZE or "", "--version"], capture_output=True, text=True).stdout
    )
    user = "root" if profile == "build" else "unused"
    service = Service(program=sys.executable, folder="/", user=user)
    path = tmp_path / "stateous-supervisor.service"
    path.write_text(render(service, profile=profile, systemd_version=version))
    return path


@needs_analyze
@pytest.mark.parametrize("profile", ["build", "strict"])
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path, profile: Profile) -> None:
    unit = unit_file(tmp_path, profile)

    checked = subprocess.run([ANALYZE or "", "verify", "--man=no", unit], capture_output=True, text=True)

    complaints = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert complaints == []
    assert checked.returncode == 0, checked.stderr


@needs_analyze
@pytest.mark.parametrize(("profile", "exposure_max"), [("build", 5.5), ("strict", 2.0)])
def test_the_exposure_score_stays_low(tmp_path: Path, profile: Profile, exposure_max: float) -> None:
    unit = unit_file(tmp_path, profile)

    scored = subprocess.run(
        [ANALYZE or "", "security", "--offline=yes", "--no-pager", unit],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )

    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", scored.stdout)
    assert score, scored.stdout + scored.stderr
    assert float(score[1]) <= exposure_max


def test_a_reload_reports_its_result_where_systemd_can_wait_for_it() -> None:
    new = render(SERVICE, profile="build", systemd_version=253)
    old = render(SERVICE, profile="build", systemd_version=252)

    assert "Type=notify-reload" in new
    assert "ExecReload" not in new
    assert "Type=notify\n" in old
    assert "ExecReload=/bin/kill -HUP $MAINPID" in old


def test_usage_and_configuration_faults_are_not_restarted_and_all_else_is() -> None:
    unit = render(SERVICE, profile="build", systemd_version=252)

    assert "Restart=always\n" in unit
    assert "RestartPreventExitStatus=64 78\n" in unit
    assert "StartLimitIntervalSec=0\n" in unit


def test_a_stop_reaches_the_agent_alone_and_waits_longer_than_the_drain() -> None:
    unit = render(
        Service(program="/p", folder="/f", drain_timeout_s=600), profile="build", systemd_version=252
    )

    assert "KillMode=mixed\n" in unit
    assert "TimeoutStopSec=630\n" in unit


def test_the_service_waits_for_the_network_is_no_root_and_has_folders_of_its_own_bh_058() -> None:
    """`notify`: ready once routines are loaded. The delay keeps twenty quick crashes from being a busy loop."""
    unit = render(Service(program="/p", folder="/f"), profile="build", systemd_version=252)

    lines = set(unit.splitlines())
    assert {"After=network-online.target", "Wants=network-online.target", "User=stateous"} <= lines
    assert {"StateDirectory=stateous-supervisor", "StateDirectoryMode=0700", "UMask=0077"} <= lines
    assert {"RuntimeDirectory=stateous-supervisor", "RestartSec=2", "WatchdogSec=60"} <= lines
    assert not [line for line in lines if line.startswith("Standard")]  # the journal takes what it says


def test_the_key_is_a_credential_and_never_an_argument() -> None:
    unit = render(SERVICE, profile="strict", systemd_version=252)

    assert "LoadCredential=token:/etc/stateous/token\n" in unit
    assert not re.search(r"ExecStart=.*token", unit)


@pytest.mark.parametrize(
    ("path", "written"),
    [("/a/b", "/a/b"), ("/a b", '"/a b"'), ("/100%", "/100%%"), ('/a"b', '"/a\\"b"')],
)
def test_paths_are_written_as_unit_files_want_them(path: str, written: str) -> None:
    assert quoted(path) == written


@pytest.mark.parametrize(
    ("text", "number"), [("systemd 252 (252.38-1~deb12u1)", 252), ("systemd 257~rc1", 257), ("", 0)]
)
def test_the_version_is_read_from_what_systemctl_prints(text: str, number: int) -> None:
    assert parse_version(text) == number
