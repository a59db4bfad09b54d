"""The box's own facts, from real files, locks and users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stateous_supervisor.agent.outbox_file import open_outbox
from stateous_supervisor.doctor import box, user
from stateous_supervisor.doctor.facts import TokenFacts
from stateous_supervisor.systemd.unit import Service, render

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to look as another user")


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_every_user_can_read_is_exposed(tmp_path: Path, mode: int, is_exposed: bool) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "key"
    file.write_text("secret\n")
    file.chmod(mode)

    facts = box.look_at_token(file, is_credential=False)

    assert (facts.is_exposed, facts.mode, facts.is_empty) == (is_exposed, f"{mode:04o}", False)
    assert "secret" not in repr(facts)


def test_a_key_in_a_folder_that_keeps_others_out_is_not_exposed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "key").write_text(" \n")
    (tmp_path / "key").chmod(0o644)

    facts = box.look_at_token(tmp_path / "key", is_credential=True)

    assert (facts.is_exposed, facts.is_empty) == (False, True)


def test_a_key_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert box.look_at_token(tmp_path / "key", is_credential=False) == TokenFacts(
        file=str(tmp_path / "key"), error="no such file or directory", is_missing=True
    )


def test_a_state_folder_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    facts = box.look_at_state(tmp_path, is_made_by_systemd=False, service_pid=None)

    assert (facts.error, facts.holder) == (None, None)
    assert facts.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    facts = box.look_at_state(tmp_path / "a" / "b", is_made_by_systemd=False, service_pid=None)

    assert facts.error is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    facts = box.look_at_state(tmp_path / "state", is_made_by_systemd=False, service_pid=None)

    assert facts.error == "not a directory"


@as_root
def test_a_state_folder_that_only_systemd_lets_in_is_no_fault_of_ours(tmp_path: Path) -> None:
    """A-56: /var/lib/private keeps all out but root and the services; doctor looks as `nobody`."""
    private = tmp_path / "private"
    (private / "box").mkdir(parents=True)
    private.chmod(0o700)
    state = tmp_path / "box"
    state.symlink_to(private / "box")
    os.setresuid(65534, 65534, 0)
    try:
        made = box.look_at_state(state, is_made_by_systemd=True, service_pid=None)
        own = box.look_at_state(state, is_made_by_systemd=False, service_pid=None)
    finally:
        os.setresuid(0, 0, 0)

    assert (made.error, made.holder) == (None, None)
    assert made.free_bytes > 0
    assert own.error is not None
    assert own.error.endswith("is not writable")


def test_who_holds_the_state_folder_is_known_without_taking_it(tmp_path: Path) -> None:
    outbox = open_outbox(tmp_path)
    try:
        assert box.holder_of(tmp_path) == os.getpid()
    finally:
        outbox.close()
    assert box.holder_of(tmp_path) is None
    open_outbox(tmp_path).close()


def test_an_installed_unit_is_read_with_its_drop_ins(tmp_path: Path) -> None:
    service = Service(program="/bin/sh", folder="/srv", user="root")
    (tmp_path / "u.service").write_text(render(service, profile="build", systemd_version=252))
    (tmp_path / "u.service.d").mkdir()
    (tmp_path / "u.service.d" / "more.conf").write_text("[Service]\nTimeoutStopSec=1h\n")

    found = box.find_unit("u", tmp_path)
    facts = box.look_at_unit(
        "u", found, program="/bin/sh", folder="/srv", token_file=None, drain_timeout_s=None
    )

    assert (facts.has_user, facts.has_program, facts.is_edited) == (True, True, False)
    assert facts.unit is not None
    assert facts.unit.stop_s == 3600


def test_a_unit_that_is_not_installed_is_none(tmp_path: Path) -> None:
    assert box.find_unit("u", tmp_path) == (tmp_path / "u.service", None, False)


def test_users_are_known_by_name_and_number() -> None:
    assert box.user_id("root") == 0
    assert box.user_id("1234") == 1234
    assert box.user_id("no-such-user-here") is None
    assert box.user_name(0) == "root"
    assert box.user_name(3_999_999) == "3999999"


@as_root
def test_a_command_runs_as_the_services_user_with_the_key_as_a_credential(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the key")
    key.chmod(0o600)
    script = 'id -u; cat "$CREDENTIALS_DIRECTORY/token"; echo; ls -ld "$CREDENTIALS_DIRECTORY/token" | cut -c1-10; pwd'

    done = user.run_as(65534, ["/bin/sh", "-c", script], key_file=key)

    assert done.stdout.splitlines() == ["65534", "the key", "-r--------", "/"]


@as_root
def test_a_program_that_the_user_may_not_run_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)

    with pytest.raises(PermissionError):
        user.run_as(65534, [str(program)], key_file=None)
