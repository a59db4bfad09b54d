"""The agent as a service of a living systemd: credential, reload, watchdog, groups, memory, disk, power (A-52, A-54, A-55)."""

from __future__ import annotations

import pytest

from machine.conftest import UNIT, Service

pytestmark = [pytest.mark.machine, pytest.mark.timeout(1_800)]

RUNNING = '"event":"routine.logged"'
STATE = "/var/lib/stateous-supervisor"


def exposure(service: Service, unit: str) -> float:
    """Return what `systemd-analyze security` says in all; 10 is the worst."""
    told = service.box.tell(f"systemd-analyze security {unit} --no-pager | tail -1")
    return float(told.split(": ")[1].split()[0])


def pid_of(service: Service) -> int:
    return int(service.show("MainPID"))


def test_the_guides_lead_to_a_service_that_doctor_calls_well(service: Service) -> None:
    assert service.show("ActiveState") == "active"
    assert service.show("Type") == "notify-reload"
    told = service.box.tell("/opt/stateous/bin/stateous-supervisor doctor /srv/builds")
    assert not [line for line in told.splitlines() if not line.startswith("ok ")]
    assert service.box.tell(f"systemd-analyze verify /etc/systemd/system/{UNIT}.service 2>&1") == ""
    assert exposure(service, UNIT) <= 5.5
    assert exposure(service, "stateous-control") <= 3.5


def test_the_key_is_a_credential_and_in_no_environment_a_52(service: Service) -> None:
    since = service.mark()
    service.start("names", "tell:names", own=True)
    service.until("names", "completed")
    told = service.log(since)
    key = service.box.tell("cat /etc/stateous/token").strip()
    seen = service.box.tell(
        f"cat /proc/{pid_of(service)}/environ /proc/{pid_of(service)}/cmdline | tr '\\0' ' '"
    )

    assert "CREDENTIALS_DIRECTORY" in seen
    assert "STATE_DIRECTORY" in told
    assert "CREDENTIALS_DIRECTORY" not in told
    assert "NOTIFY_SOCKET" not in told
    assert key
    assert key not in told + seen + service.log()


def test_each_isolated_routine_has_a_group_which_ends_with_it_a_24(service: Service) -> None:
    since = service.mark()
    service.start("group", "tell:groups leave:4321", own=True)
    service.until("group", "completed")

    assert f"{UNIT}.service/routines/" in service.log(since)
    assert service.box.try_to("pgrep -f '[s]leep 4321'") is None
    groups = f"/sys/fs/cgroup/system.slice/{UNIT}.service"
    assert service.box.tell(f"ls {groups}/agent/cgroup.procs")
    assert service.box.tell(f"find {groups}/routines -mindepth 1 -type d") == ""


def test_memory_that_runs_out_costs_what_took_it_a_23_a_24_bh_009(service: Service) -> None:
    service.override(["MemoryMax=400M", "MemorySwapMax=0"])
    agent = pid_of(service)
    service.start("beside", "sleep:40")
    service.start("hog", "hog:1000", own=True)
    own = service.until("hog", "failed: 'own' failed")
    beside = service.until("beside", "completed")
    service.start("large", "hog:1000")
    thread = service.until("large", "failed: 'thread' failed")

    assert own.count("was killed by signal 9 (SIGKILL), out of memory\n") >= 2
    assert beside.count("claimed by") == 1
    assert thread.count("the routine's host died: killed by SIGKILL, out of memory") >= 2
    assert thread.count("claimed by") == 2
    assert pid_of(service) == agent


def test_a_reload_is_over_when_systemctl_says_so_a_45(service: Service) -> None:
    service.start("reload", "sleep:30")
    service.until("reload", "claimed by")
    service.box.tell(f"echo 'tasks: [' >> /srv/builds/stateous.yaml && systemctl reload {UNIT}")
    refused = service.show("StatusText")
    service.box.tell(f"sed -i '$d' /srv/builds/stateous.yaml && systemctl reload {UNIT}")
    taken = service.show("StatusText")

    assert "reload refused: /srv/builds/stateous.yaml:6: this is not YAML" in refused
    assert "refused" not in taken
    assert service.until("reload", "completed").count("claimed by") == 1


def test_a_killed_agent_comes_back_and_settles_what_it_held_a_46(service: Service) -> None:
    service.start("killed", "leave:5432 sleep:20", own=True)
    service.until("killed", "claimed by")
    service.box.until("pgrep -f '[s]leep 5432'")
    service.box.tell(f"systemctl kill --signal=KILL --kill-whom=main {UNIT}")
    service.box.until("! pgrep -f '[s]leep 5432'", within_s=60)
    history = service.until("killed", "completed")

    assert "given back: agent_died" in history
    assert history.count("claimed by") == 2
    assert service.show("NRestarts") == "1"


def test_an_agent_that_hangs_is_ended_by_the_watchdog_and_comes_back_a_55(service: Service) -> None:
    service.override(["WatchdogSec=20"])
    since, agent = service.mark(), pid_of(service)
    service.box.tell(f"kill -STOP {agent}")
    told = service.until_logged('"event":"supervisor.started"', since)

    assert "Watchdog timeout" in told
    assert "Fatal Python error: Aborted" in told
    assert pid_of(service) != agent


def test_an_agent_that_waits_for_its_control_plane_is_alive_a_55(service: Service) -> None:
    service.override(["WatchdogSec=20"])
    agent = pid_of(service)
    service.box.tell("systemctl stop stateous-control && sleep 60")
    status = service.show("StatusText")
    service.box.tell("systemctl start stateous-control")
    service.box.until("bash -c 'echo > /dev/tcp/127.0.0.1/8080'")
    service.start("after", "sleep:0")

    assert "control plane away" in status
    service.until("after", "completed")
    assert pid_of(service) == agent


def test_a_disk_that_turns_read_only_stops_claims_and_nothing_else_a_41_bh_031(service: Service) -> None:
    service.box.tell(
        f"systemctl stop {UNIT} && truncate -s 64M /root/disk && mkfs.ext4 -q /root/disk && modprobe loop"
        f" && mount -o loop,errors=remount-ro /root/disk {STATE} && chown stateous: {STATE} && systemctl start {UNIT}"
    )
    agent = pid_of(service)
    service.start("before", "sleep:30")
    service.until("before", "claimed by")
    service.box.tell(f"echo broken > /sys/fs/ext4/$(basename $(findmnt -no SOURCE {STATE}))/trigger_fs_error")
    before = service.until("before", "completed")
    service.start("during", "sleep:0")
    service.box.until(f"systemctl show {UNIT} -p StatusText | grep -q 'the disk refuses'", within_s=120)
    during = service.history("during")
    service.box.tell(f"systemctl stop {UNIT} || true; umount -l {STATE} && systemctl start {UNIT}")
    after = service.until("during", "completed")

    assert pid_of(service) != agent
    assert before.count("claimed by") == 1
    assert "completed" not in during
    assert after.count("claimed by") <= 2  # a claim that waited may have brought it, and it was given back


def test_a_stop_waits_longer_than_its_time_while_work_goes_on_a_43_a_55(service: Service) -> None:
    service.override(["TimeoutStopSec=10"])
    service.start("drained", "sleep:40", own=True)
    service.until("drained", "claimed by")
    service.box.tell(f"systemctl stop {UNIT}")

    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    assert service.until("drained", "completed").count("claimed by") == 1


def test_the_strict_profile_runs_routines_under_a_user_that_systemd_makes_a_54(service: Service) -> None:
    program = "/opt/stateous/bin/stateous-supervisor"
    service.box.tell(f"systemctl stop {UNIT} && rm -rf {STATE}")
    service.box.tell(f"{program} service /srv/builds --profile strict --install --enable")
    service.start("strict", "tell:names", own=True)
    service.until("strict", "completed")
    found = exposure(service, UNIT)
    service.box.tell(f"systemctl stop {UNIT} && rm -rf /var/lib/private/stateous-supervisor {STATE}")
    service.box.tell(f"{program} service /srv/builds --install --enable")

    assert found <= 2.0


def test_after_a_power_failure_the_box_goes_on_by_itself_bh_058(service: Service) -> None:
    service.start("power", "sleep:60")
    service.until("power", "claimed by")
    service.box.tell("sync")
    service.box.cut_power()
    service.box.boot()
    service.box.until("journalctl -b -u stateous-control -o cat | grep -q 'listening on'")
    history = service.until("power", "completed")

    assert "given back: agent_died" in history
    assert history.count("claimed by") == 2
