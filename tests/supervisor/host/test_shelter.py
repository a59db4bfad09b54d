"""User code that hurts its process by accident, and the host that goes on (A-21, A-22, A-26, A-47)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, Child, child, members, write_folder

from stateous_supervisor.link.frames import Logged, Outcome, Pulse

HURTS = [
    "os.chdir('/')",
    "os.environ.clear()",
    "sys.stdout.close(); sys.stderr.close()",
    "sys.stdout = sys.stderr = None",
    "import logging; logging.disable(50); logging.basicConfig(force=True)",
    "import socket; socket.setdefaulttimeout(0.001)",
    "import asyncio; asyncio.set_event_loop_policy(None)",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL)",
    "import signal; signal.alarm(1); time.sleep(1.1)",
    "asyncio.get_running_loop().stop()",
    "sys.path.clear()",
    "import builtins; builtins.print = None",
    "import warnings; warnings.simplefilter('error')",
    "sys.setrecursionlimit(120)",
    "import threading; threading.excepthook = None",
    "import gc; gc.disable()",
    "asyncio.get_running_loop().call_soon(sys.exit, 3); await asyncio.sleep(0)",
    "t = asyncio.create_task(asyncio.to_thread(sys.exit)); await asyncio.sleep(0.05)",
]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Child]:
    with child(write_folder(tmp_path, {"bodies.py": BODIES})) as started:
        yield started


def test_what_user_code_does_to_its_process_changes_nothing(fresh: Child) -> None:
    """A-47: one after the other in one host, and after each an ordinary task of both kinds."""
    for number, hurt in enumerate(HURTS):
        outcome = fresh.body(f"{hurt}\nreturn events.coded()", 10 * number + 1)
        assert outcome.outcome == "event", (hurt, outcome.error)
        assert fresh.body("return events.coded()", 10 * number + 2).outcome == "event", hurt
        assert fresh.body("return events.coded()", 10 * number + 3, "other").outcome == "event", hurt
    assert fresh.process.poll() is None


def test_a_signal_handler_that_raises_costs_no_outcome(fresh: Child) -> None:
    """The handler runs in the main thread, wherever that is."""
    body = """
    import signal
    def handler(*_): raise RuntimeError('alarm')
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
    """
    fresh.body(body, 1)
    for task in range(2, 80):
        fresh.run(task, context={"body": "await asyncio.sleep(0.01)\nreturn events.coded()"})
    outcomes = [fresh.outcome(task) for task in range(2, 80)]
    assert {each.outcome for each in outcomes} <= {"event", "failed"}
    fresh.body("import signal; signal.setitimer(signal.ITIMER_REAL, 0)", 100)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM]
)
def test_signals_that_mean_the_agent_do_not_end_the_host(
    host: Child, task: int, number: signal.Signals
) -> None:
    os.kill(host.process.pid, number)
    assert host.body("return events.coded()", task).outcome == "event"


def test_programs_that_routines_start_take_signals_as_ever(host: Child, task: int) -> None:
    body = """
    import signal, subprocess
    started = subprocess.Popen(['sleep', '60'])
    started.terminate()
    ctx['code'] = started.wait(5)
    """
    assert bytes(host.body(body, task, "other").context or b"") == b'{"code":-15}'


def test_the_host_leaves_the_terminal(host: Child) -> None:
    assert os.getsid(host.process.pid) == host.process.pid


def test_output_at_the_shared_descriptors_goes_to_the_pipes_and_never_to_the_link(fresh: Child) -> None:
    """A-21: `os.system` and raw writes; programs that `subprocess` starts have pipes of their attempt (A-63)."""
    body = """
    os.system('echo out; echo err >&2; printf "%2000000d" 1')
    os.system('echo; echo given')
    os.write(1, b'raw\\n')
    print('printed')
    return events.coded()
    """
    fresh.run(1, "other", context={"body": body})
    read = subprocess.Popen(["head", "-c", "2000000"], stdin=fresh.process.stdout, stdout=subprocess.DEVNULL)
    assert fresh.outcome(1).outcome == "event"
    read.wait(5)
    out, err = fresh.stop()
    assert b"given\nraw\n" in out
    assert b"printed" not in out
    assert err == b"err\n"
    assert fresh.line("printed").task == 1


def test_a_full_pipe_of_output_does_not_stop_the_host(fresh: Child) -> None:
    """A-28: nobody reads the pipe here."""
    fresh.run(1, "other", context={"body": "os.write(1, b'x' * 10_000_000)"})
    fresh.began(1)
    assert fresh.body("return events.coded()", 2).outcome == "event"


def test_children_do_not_inherit_the_link(fresh: Child) -> None:
    """A-26: neither by exec nor by fork; the end of the host is seen although they live on."""
    body = """
    import subprocess
    started = subprocess.Popen(['sleep', '60'], close_fds=False)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    ctx['pids'] = [started.pid, child]
    """
    pids = json.loads(bytes(fresh.body(body, 1, "other").context or b""))["pids"]
    try:
        fresh.process.kill()
        fresh.wait_end(wait_s=2)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_forked_child_that_falls_out_of_its_routine_reports_nothing(fresh: Child) -> None:
    body = """
    child = os.fork()
    if child == 0:
        print('in the child')
        sys.exit(7)
    ctx['code'] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return events.coded()
    """
    for task, state in enumerate(["coding", "other"], 1):
        outcome = fresh.body(body, task, state)
        assert bytes(outcome.context or b"") == b'{"code":7}'
    assert len(fresh.of_kind(Outcome)) == 2


def test_a_pool_of_processes_works_in_a_routine(fresh: Child) -> None:
    """Its workers are ended by SIGTERM, which the host itself ignores."""
    body = """
    import multiprocessing
    with multiprocessing.get_context('fork').Pool(2) as pool:
        ctx['n'] = pool.map(abs, [-1, -2])
    return events.coded()
    """
    assert bytes(fresh.body(body, 1, "other").context or b"") == b'{"n":[1,2]}'


def test_the_end_of_the_link_ends_the_host_at_once(tmp_path: Path) -> None:
    """Whatever routines do: this one blocks the loop, another one a thread."""
    with child(write_folder(tmp_path, {"bodies.py": BODIES})) as host:
        host.run(1, "other", context={"body": "time.sleep(60)"})
        host.run(2, context={"body": "time.sleep(60)"})
        host.began(1)
        host.began(2)
        host.sock.close()
        ended_at = time.monotonic()
        host.process.wait(5)
        assert time.monotonic() - ended_at < 1


def test_bytes_that_are_no_frame_end_the_host(tmp_path: Path) -> None:
    with child(write_folder(tmp_path, {})) as host:
        host.sock.sendall(b"\xff" * 64)
        host.wait_end(wait_s=2)


def test_kinds_that_this_host_does_not_know_are_ignored(host: Child, task: int) -> None:
    frame = b'[{"kind":"from the future","x":1}]'
    host.sock.sendall(len(frame).to_bytes(4, "big") + frame)
    assert host.body("return events.coded()", task).outcome == "event"


def test_a_blocked_loop_is_told_with_file_line_and_task_while_it_lasts(fresh: Child) -> None:
    """A-22: within 2 s, and cleared when it ends."""
    fresh.run(1, context={"body": "time.sleep(2.5)\nreturn events.coded()"})
    fresh.began(1)
    pulse = fresh.wait(Pulse, lambda frame: frame.stack is not None, wait_s=2)
    assert pulse.stack is not None
    assert pulse.stack.startswith("bodies.py:")
    assert (pulse.task, pulse.attempt) == (1, 1)
    fresh.outcome(1)
    fresh.seen.clear()
    fresh.wait(Pulse, lambda frame: frame.loop_lag_s < 0.5 and frame.stack is None)


def test_a_blocked_loop_does_not_stop_def_routines(fresh: Child) -> None:
    """A-22."""
    fresh.run(1, context={"body": "time.sleep(2)"})
    fresh.began(1)
    assert fresh.body("return events.coded()", 2, "other").outcome == "event"
    assert not [frame for frame in fresh.of_kind(Outcome) if frame.task == 1]


def test_what_is_logged_without_any_configuration_keeps_its_level(host: Child, task: int) -> None:
    host.body("import logging; logging.getLogger('x').error('bad %s', 1)", task)
    line = host.line("bad 1")
    assert (line.level, line.task) == ("error", task)


def test_a_segfault_ends_the_host_with_its_signal_and_a_traceback(tmp_path: Path) -> None:
    """A-23: the agent sees the signal."""
    with child(write_folder(tmp_path, {"bodies.py": BODIES})) as host:
        host.run(1, "other", context={"body": "import ctypes; ctypes.string_at(0)"})
        host.wait_end()
        _, err = host.stop()
        assert host.process.returncode == -signal.SIGSEGV
        assert b"Segmentation fault" in err


def test_an_idle_host_is_small(tmp_path: Path) -> None:
    """A-62: agent and host together may have 90 MB; its warden is in this."""
    with child(write_folder(tmp_path, {"bodies.py": BODIES})) as host:
        host.body("return events.coded()", 1)
        both = members(host.process.pid)
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in both]
        pss_kb = [int(line.split()[1]) for lines in rollups for line in lines if line.startswith("Pss:")]
        assert len(pss_kb) == 2
        assert sum(pss_kb) < 45_000


def test_a_line_of_the_host_itself_belongs_to_no_task(fresh: Child) -> None:
    fresh.body("asyncio.get_running_loop().call_soon(sys.exit, 3); await asyncio.sleep(0)", 1)
    fresh.wait(Logged, lambda frame: "user code raised into the event loop" in frame.text)
