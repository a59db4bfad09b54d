"""What is left of a host when its agent or it is gone, although no turn of its interpreter is to be had (A-48)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, Child, child, members, write_folder
from supervisor.isolation.cells import Box, is_alive, pids_in, until

SOON_S = 20.0
HOG = "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')"
# One in the host's process group, one in a group of its own, and one in a session of its own.
PROGRAMS = """
import subprocess
pids = [subprocess.Popen(['sh', '-c', "trap '' TERM; sleep 600; :"], **more).pid
        for more in ({{}}, {{'process_group': 0}}, {{'start_new_session': True}})]
with open({file!r}, 'w') as file: file.write(' '.join(map(str, pids)))
"""


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Child]:
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as started:
        yield started


@pytest.fixture
def programs(fresh: Child, tmp_path: Path) -> Iterator[list[int]]:
    file = tmp_path / "pids"
    fresh.run(1, "other", context={"body": PROGRAMS.format(file=str(file)) + HOG})
    started = pids_in(file, 3)
    yield started
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_host_whose_interpreter_is_held_ends_with_its_agent(fresh: Child, programs: list[int]) -> None:
    """A-48: so do the programs of its session; one that was moved out of it goes on."""
    session = fresh.process.pid
    fresh.sock.close()
    fresh.process.wait(SOON_S)
    until(lambda: not members(session), SOON_S, "the end of the session")
    assert [is_alive(pid) for pid in programs] == [False, False, True]


def test_a_host_that_is_killed_leaves_no_program(fresh: Child, programs: list[int]) -> None:
    """A-48: nor does one whose process group the agent killed."""
    session = fresh.process.pid
    os.killpg(session, signal.SIGKILL)
    fresh.process.wait(SOON_S)
    until(lambda: not members(session), SOON_S, "the end of the session")
    assert [is_alive(pid) for pid in programs] == [False, False, True]


def test_user_code_that_waits_for_all_its_children_ends(fresh: Child) -> None:
    """The warden is no child of the host."""
    body = """
    import subprocess
    started = subprocess.Popen(['true'])
    found = []
    while True:
        try: found.append(os.wait()[1])
        except ChildProcessError: break
    ctx['found'] = found
    return events.coded()
    """
    assert bytes(fresh.body(body, 1, "other").context or b"") == b'{"found":[0]}'


def test_signals_to_all_of_the_session_leave_the_warden(fresh: Child) -> None:
    """As `pkill` sends them."""
    for pid in members(fresh.process.pid):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    body = "return events.coded()"
    assert fresh.body(body, 1).event == "coded"
    assert len(members(fresh.process.pid)) == 2


def test_a_nursery_that_hangs_in_its_import_ends_with_its_host(tmp_path: Path) -> None:
    """A-48: it sees nothing while it imports."""
    file = tmp_path / "pids"
    hangs = f"""
    if 'stateous_supervisor.host.nursery' in ' '.join(sys.orig_argv):
        with open({str(file)!r}, 'w') as file: file.write(str(os.getpid()))
        {HOG}
    """
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES, "hangs.py": hangs})) as host:
        Box(host).run(1, "pass")
        (nursery,) = pids_in(file, 1)
        assert is_alive(nursery)
        host.process.kill()
        host.process.wait(SOON_S)
        until(lambda: not is_alive(nursery), SOON_S, "the end of the nursery")


def test_the_warden_ends_soon_after_an_orderly_end(tmp_path: Path) -> None:
    with child(write_folder(tmp_path, {"bodies.py": BODIES})) as host:
        session = host.process.pid
        assert len(members(session)) == 2
        began_at = time.monotonic()
        host.sock.close()
        host.process.wait(SOON_S)
        until(lambda: not members(session), SOON_S, "the end of the warden")
        assert time.monotonic() - began_at < 2.0
