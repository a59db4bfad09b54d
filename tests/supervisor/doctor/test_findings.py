"""What facts mean: each kind of fact, each level, and a line that mends it (A-56)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from stateous_supervisor.agent.tls import REASONS, SENTENCES, VERIFY
from stateous_supervisor.doctor.facts import (
    Facts,
    FolderFacts,
    NetworkFacts,
    PlaneFacts,
    StateFacts,
    TlsFacts,
    TokenFacts,
    UnitFacts,
    UserFacts,
)
from stateous_supervisor.doctor.findings import TLS, Finding, judge
from stateous_supervisor.systemd.installed import InstalledUnit

MIB = 1_048_576
SUM = "sha256:" + "a" * 64
UNIT = InstalledUnit(
    program="/opt/p", arguments=("run", "/srv"), user="b", is_dynamic=False, stop_s=120, state_directory="s",
    credentials={"token": "/etc/key"}, keeps_privileges=False,
)  # fmt: skip
GOOD = Facts(
    user=UserFacts(current="b", service="b"),
    config_file="/srv/stateous.yaml",
    folder=FolderFacts(path="/srv", interpreter="/opt/python", python="3.13.0", states=("coding",)),
    network=NetworkFacts(host="cp", port=443, addresses=("10.0.0.1",), connected="10.0.0.1"),
    tls=TlsFacts(is_asked_for=True, version="TLSv1.3", valid_s=90 * 86_400.0),
    token=TokenFacts(file="/etc/key", mode="0600"),
    plane=PlaneFacts(
        url="https://cp", features=("batch",), is_extended=True, checksum=SUM, folder_checksum=SUM, lease_s=120,
        heartbeat_s=30, round_trip_s=0.01, skew_s=0.2,
    ),
    state=StateFacts(path="/var/lib/s", free_bytes=9_000 * MIB, holder=7, service_pid=7),
    unit=UnitFacts(name="u", file="/etc/u.service", unit=UNIT, program="/opt/p", folder="/srv", token_file="/etc/key"),
)  # fmt: skip


def finding(check: str, part: str = "", /, **changes: Any) -> Finding:
    """Return the finding of `check` when one part of good facts is otherwise."""
    facts = GOOD
    if part:
        facts = dataclasses.replace(GOOD, **{part: dataclasses.replace(getattr(GOOD, part), **changes)})
    elif changes:
        facts = dataclasses.replace(GOOD, **changes)
    return next(found for found in judge(facts) if found.check == check)


def test_a_good_box_has_nothing_but_ok() -> None:
    findings = judge(GOOD)

    assert [found for found in findings if found.level != "ok"] == []
    assert [found.check for found in findings] == [
        "user", "config", "python", "folder", "dns", "route", "tls", "token", "control plane", "contract",
        "round trip", "clock", "disk", "agent", "unit",
    ]  # fmt: skip


CASES: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("warn", "user", "user", {"current": "root"}, "the service runs as b"),
    (
        "ok",
        "user",
        "user",
        {"current": "nobody", "stands_for_dynamic": True},
        "stands for the user that systemd",
    ),
    ("fail", "config", "", {"config_fault": "it is wrong"}, "it is wrong"),
    (
        "fail",
        "python",
        "folder",
        {"unusable": "python: x cannot be started: no such file"},
        "cannot be started",
    ),
    ("fail", "folder", "folder", {"faults": ("two routines",)}, "two routines"),
    (
        "fail",
        "folder",
        "folder",
        {"states": (), "broken": ("a.py: x",)},
        "no routine that can be used; a.py: x",
    ),
    ("warn", "folder", "folder", {"broken": ("a.py:3: SyntaxError",)}, "a.py:3: SyntaxError"),
    ("fail", "dns", "network", {"addresses": None, "dns_error": "unknown"}, "cp has no address: unknown"),
    ("warn", "dns", "network", {"dns_s": 5.0}, "after 5.0 s"),
    ("fail", "dns", "network", {"via_proxy": "http://p:1", "addresses": None}, "the proxy cp has no address"),
    (
        "fail",
        "route",
        "network",
        {"connected": None, "refusals": ("10.0.0.1: refused",)},
        "10.0.0.1: refused",
    ),
    (
        "warn",
        "route",
        "network",
        {"refusals": ("10.0.0.2: refused",)},
        "not every address does: 10.0.0.2: refused",
    ),
    ("fail", "tls", "tls", {"is_asked_for": False, "speaks_tls": True}, "the port speaks TLS"),
    ("ok", "tls", "tls", {"is_asked_for": False}, "not used"),
    ("warn", "tls", "tls", {"valid_s": 86_400.0}, "valid for 1.0 more days"),
    ("fail", "token", "token", {"error": "permission denied"}, "cannot be read: permission denied"),
    (
        "warn",
        "token",
        "token",
        {"error": "denied", "is_handed_over": True},
        "systemd hands it to the service",
    ),
    ("fail", "token", "token", {"is_empty": True}, "is empty"),
    ("warn", "token", "token", {"is_exposed": True, "mode": "0644"}, "mode 0644: every user can read it"),
    (
        "fail",
        "control plane",
        "plane",
        {"error": "answered 401", "is_denied": True},
        "the key is not accepted",
    ),
    ("fail", "control plane", "plane", {"error": "it is a proxy"}, "it is a proxy"),
    ("warn", "control plane", "plane", {"alarms": ("no sweep",)}, "no sweep"),
    ("ok", "control plane", "plane", {"is_extended": False}, "baseline protocol"),
    (
        "fail",
        "contract",
        "plane",
        {"checksum": "sha256:" + "b" * 64},
        "aaaaaaaaaaaa, the control plane serves bbb",
    ),
    ("fail", "contract", "plane", {"folder_checksum": ""}, "no checksum"),
    ("ok", "contract", "plane", {"folder_checksum": None}, "routines without a graph need none"),
    (
        "fail",
        "contract",
        "plane",
        {"checksum": "sha256:x", "changed": ("coding",)},
        "concerns coding, and no task",
    ),
    ("warn", "round trip", "plane", {"round_trip_s": 3.0}, "3.0 s; a lease lasts 120 s"),
    ("fail", "round trip", "plane", {"round_trip_s": 15.0}, "leases will be lost"),
    ("warn", "clock", "plane", {"skew_s": 60.0}, "60 s behind the control plane"),
    ("warn", "clock", "plane", {"skew_s": -60.0}, "60 s ahead of the control plane"),
    (
        "ok",
        "clock",
        "plane",
        {"skew_s": 6.0, "skew_doubt_s": 1.0},
        "differs from the control plane's by 6.0 s",
    ),
    ("fail", "disk", "state", {"error": "read-only file system"}, "cannot be written: read-only file system"),
    ("fail", "disk", "state", {"free_bytes": MIB}, "1 MiB free; nothing is claimed when the disk is full"),
    ("warn", "disk", "state", {"free_bytes": 100 * MIB}, "100 MiB free"),
    ("fail", "disk", "state", {"free_files": 3}, "only 3 more files"),
    ("ok", "disk", "state", {"is_made_by_systemd": True}, "systemd makes it"),
    ("warn", "agent", "state", {"holder": 8}, "process 8 holds /var/lib/s"),
    ("ok", "unit", "unit", {"unit": None}, "is not installed"),
    ("warn", "unit", "unit", {"is_edited": True}, "edited by hand"),
    ("fail", "unit", "unit", {"folder": "/other"}, "runs /srv, not /other"),
    ("fail", "unit", "unit", {"program": "/new/p"}, "runs /opt/p; this is /new/p"),
    ("fail", "unit", "unit", {"has_program": False}, "not there or not executable"),
    ("fail", "unit", "unit", {"has_user": False}, "wants the user b, which is not there"),
    (
        "fail",
        "unit",
        "unit",
        {"drain_timeout_s": 600.0},
        "cut off after 120 s (TimeoutStopSec); drain_timeout is 600 s",
    ),
    ("fail", "unit", "unit", {"token_file": "/etc/other"}, "hands over /etc/key; token_file is /etc/other"),
]


@pytest.mark.parametrize(("level", "check", "part", "changes", "text"), CASES)
def test_each_fact_has_its_level_and_its_sentence(
    level: str, check: str, part: str, changes: dict[str, Any], text: str
) -> None:
    found = finding(check, part, **changes)

    assert found.level == level
    assert text in found.text


@pytest.mark.parametrize(("level", "check", "part", "changes", "text"), [c for c in CASES if c[0] != "ok"])
def test_whatever_is_not_well_has_a_line_that_mends_it(
    level: str, check: str, part: str, changes: dict[str, Any], text: str
) -> None:
    assert finding(check, part, **changes).mend


@pytest.mark.parametrize("fault", sorted({*VERIFY.values(), *REASONS.values(), "bad_files", "other"}))
def test_each_fault_of_tls_has_a_sentence_of_its_own(fault: str) -> None:
    found = finding("tls", "tls", fault=fault, detail="WORD")

    assert found == Finding("tls", "fail", f"{SENTENCES[fault]} (WORD)", TLS[fault])


def test_a_stop_without_a_limit_waits_for_every_drain() -> None:
    unit = dataclasses.replace(UNIT, stop_s=math.inf)

    assert finding("unit", "unit", unit=unit, drain_timeout_s=9e9).level == "ok"


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    facts = Facts(user=UserFacts(current="b"), config_file="f", config_fault="wrong")

    assert [found.check for found in judge(facts)] == ["user", "config"]
