"""A routine in a process of its own says and returns what it would in a thread (A-17, A-24)."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, child, write_folder
from supervisor.isolation.cells import PROCESS, Box, fd_targets, is_alive, until

from stateous_supervisor.link.frames import Confinement, HeldUntil, Logged, Noted, Outcome, Remembered

KINDS = ("other", "coding")


@pytest.mark.parametrize("state", KINDS)
def test_an_isolated_routine_runs_in_a_process_and_session_of_its_own(
    box: Box, task: int, state: str
) -> None:
    """A-24, for `def` and `async def`."""
    body = "ctx['pid'], ctx['sid'] = os.getpid(), os.getsid(0)\nreturn events.coded()"
    written = box.written(task, body, state)
    assert written["pid"] == written["sid"] != box.host.process.pid
    assert box.host.outcome(task).event == "coded"


@pytest.mark.parametrize("state", KINDS)
def test_notes_and_memory_arrive_before_the_outcome_in_their_order(box: Box, task: int, state: str) -> None:
    """A-36."""
    box.outcome(task, "ctx.note('one')\nctx.memory['k'] = 1\nctx.note('two')\nreturn events.coded()", state)
    said = [f for f in box.host.seen if isinstance(f, Noted | Remembered | Outcome) and f.task == task]
    assert [type(frame) for frame in said] == [Noted, Remembered, Noted, Outcome]


def test_an_exception_is_a_failed_attempt_with_its_traceback(box: Box, task: int) -> None:
    outcome = box.outcome(task, "raise ValueError('bad')")
    assert (outcome.outcome, outcome.error) == ("failed", "ValueError: bad")
    assert "bodies.py" in (outcome.traceback or "")


def test_output_of_the_routine_and_of_its_programs_belongs_to_its_task(box: Box, task: int) -> None:
    """A-21, A-63: lines that did not end, too, and all before the outcome."""
    body = f"""
    import subprocess
    print('printed {task}')
    subprocess.run(['sh', '-c', 'echo out {task}; echo err {task} >&2'])
    sys.stderr.write('unfinished {task}')
    """
    box.outcome(task, body)
    lines = {f.text: f for f in box.host.seen if isinstance(f, Logged) and f.text.endswith(f" {task}")}
    assert set(lines) == {f"{word} {task}" for word in ("printed", "out", "err", "unfinished")}
    assert {(line.task, line.attempt) for line in lines.values()} == {(task, 1)}
    assert (lines[f"out {task}"].level, lines[f"err {task}"].level) == ("info", "warning")
    seen = box.host.seen
    assert max(map(seen.index, lines.values())) < seen.index(box.host.outcome(task))


def test_a_routine_marked_isolated_is_so_unless_the_file_says_thread(tmp_path: Path) -> None:
    routine = """
    @on_state(states.coding, isolation="process")
    def coding(ctx):
        ctx["pid"] = os.getpid()
        return events.coded()
    """
    with child(write_folder(tmp_path, {"marked.py": routine})) as host:
        box = Box(host)
        own = box.written(1, "", "coding", confinement=Confinement())["pid"]
        shared = box.written(2, "", "coding", confinement=Confinement(isolation="thread"))["pid"]
    assert own != host.process.pid
    assert shared == host.process.pid


def test_a_grant_larger_than_a_socket_buffer_arrives_whole(box: Box, task: int) -> None:
    memory = {"big": "x" * 2_000_000}
    written = box.written(task, "ctx['n'] = len(ctx.memory['big'])\nreturn events.coded()", memory=memory)
    assert written == {"n": 2_000_000}


def test_an_outcome_larger_than_a_socket_buffer_arrives_whole(box: Box, task: int) -> None:
    written = box.written(task, "ctx['big'] = 'x' * 800_000\nreturn events.coded()")
    assert len(written["big"]) == 800_000


def test_a_renewed_lease_is_seen_in_the_routine(box: Box, task: int) -> None:
    body = "until = time.monotonic() + 5\nwhile ctx.lease < 1_000 and time.monotonic() < until: time.sleep(0.01)\nctx['s'] = ctx.lease"
    box.run(task, body)
    box.host.began(task)
    box.host.send(HeldUntil(tasks=[task], lease_s=5_000.0))
    assert json.loads(bytes(box.host.outcome(task).context or b""))["s"] > 4_000


def test_what_an_attempt_cost_stands_in_its_outcome(box: Box, task: int) -> None:
    """A-24, A-58: CPU time of the routine and of a program that it waited for, and the peak of its memory."""
    body = """
    import subprocess
    held = bytearray(b'x' * 60_000_000)
    burn = 'import time\\nt=time.process_time()\\nwhile time.process_time()-t<0.25: pass'
    exec(burn)
    subprocess.run([sys.executable, '-c', burn])
    """
    outcome = box.outcome(task, body)
    assert 0.5 <= (outcome.cpu_s or 0) < 5
    assert 70_000_000 < (outcome.peak_bytes or 0) < 400_000_000
    cheap_s = box.outcome(task + 1, "pass").cpu_s
    assert cheap_s is not None
    assert cheap_s < 0.2


def test_a_thread_routine_has_no_cost_of_its_own(box: Box, task: int) -> None:
    outcome = box.outcome(task, "pass", confinement=Confinement())
    assert (outcome.cpu_s, outcome.peak_bytes) == (None, None)


def test_nothing_but_its_link_and_its_pipes_is_handed_to_a_routine(box: Box, task: int) -> None:
    """A-26, BH-025: no link of the host, no socket of another routine, no descriptor of the agent."""
    box.run(task, "while not ctx.lost: time.sleep(0.01)")
    box.run(task + 1, "ctx['pid'] = os.getpid()\nprint('here')\ntime.sleep(1)\nreturn events.coded()")
    box.host.began(task + 1)
    line = next(p for p in (p for p in descendants(box.host.process.pid)) if is_routine(p))
    mine = fd_targets(line)
    others = fd_targets(box.host.process.pid)
    assert mine[0] == "/dev/null"
    assert mine[1].startswith("pipe:")
    assert mine[2].startswith("pipe:")
    sockets = [target for target in mine.values() if target.startswith("socket:")]
    # Its link, and the two ends by which its own loop wakes itself.
    assert len(sockets) == 3
    assert not set(sockets) & set(others.values())
    box.host.cancel(task)
    box.host.outcome(task)


def descendants(root: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(root).children(recursive=True)]


def is_routine(pid: int) -> bool:
    return os.getsid(pid) == pid and "pipe:" in fd_targets(pid).get(1, "") and len(fd_targets(pid)) > 6


def test_signals_and_environment_are_those_of_a_fresh_program(tmp_path: Path) -> None:
    """A-26, BH-028: no handler of the host's, nothing blocked, no secret; what user code did to the host is not here."""
    body = """
    import signal
    ctx['handlers'] = [signal.getsignal(s) == signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)]
    ctx['blocked'] = len(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    ctx['names'] = sorted(k for k, v in os.environ.items() if v == 'secret')
    ctx['oom'] = int(open('/proc/self/oom_score_adj').read())
    """
    secret = dict.fromkeys(["PLAIN"], "secret")
    with child(write_folder(tmp_path, {"bodies.py": BODIES}), env=secret) as host:
        hurt = "os.environ.clear(); os.environ['X'] = 'secret'; os.chdir('/'); import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        host.body(hurt, 1)
        written = Box(host).written(2, body)
    assert written["handlers"] == [True, True, True]
    assert (written["blocked"], written["names"]) == (0, ["PLAIN"])
    assert written["oom"] >= 500


def test_a_fork_of_user_code_never_talks_on_the_link(box: Box, task: int) -> None:
    """BH-025: it notes nothing, reports nothing, and does not hang in the attempt."""
    body = """
    child = os.fork()
    if child == 0:
        ctx.note('from the fork')
        return events.coded()
    ctx['code'] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return events.coded()
    """
    assert box.written(task, body) == {"code": 0}
    assert not [f for f in box.host.seen if isinstance(f, Noted) and f.task == task]
    assert len([f for f in box.host.seen if isinstance(f, Outcome) and f.task == task]) == 1


def test_a_fork_in_a_thread_routine_never_waits_for_the_link(box: Box, task: int) -> None:
    """The same in the host itself."""
    body = """
    child = os.fork()
    if child == 0:
        ctx.note('from the fork')
        os._exit(3)
    ctx['code'] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return events.coded()
    """
    assert box.written(task, body, confinement=Confinement()) == {"code": 3}


def test_pools_of_processes_work_in_an_isolated_routine(box: Box, task: int) -> None:
    body = """
    import multiprocessing
    with multiprocessing.get_context('fork').Pool(2) as pool:
        ctx['fork'] = pool.map(abs, [-1, -2])
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        ctx['spawn'] = pool.map(abs, [-3])
    return events.coded()
    """
    for state in KINDS:
        assert box.written(task + KINDS.index(state), body, state) == {"fork": [1, 2], "spawn": [3]}


def test_handlers_of_the_import_do_not_run_at_the_end_of_a_routine_and_its_own_do(tmp_path: Path) -> None:
    files = {
        "bodies.py": BODIES,
        "early.py": f"import atexit; atexit.register(lambda: open({str(tmp_path / 'early')!r}, 'a').write('x'))",
    }
    with child(write_folder(tmp_path / "folder", files)) as host:
        Box(host).outcome(1, f"import atexit; atexit.register(open, {str(tmp_path / 'late')!r}, 'w')")
    assert not (tmp_path / "early").exists()
    assert (tmp_path / "late").exists()


def test_an_exit_handler_that_sleeps_holds_nobody_up(box: Box, task: int) -> None:
    """BH-023 (e)."""
    began_at = time.monotonic()
    outcome = box.outcome(task, "import atexit; atexit.register(time.sleep, 600)\nreturn events.coded()")
    assert outcome.event == "coded"
    assert time.monotonic() - began_at < 4


def test_a_non_daemon_thread_of_the_routine_holds_nobody_up(box: Box, task: int) -> None:
    """BH-023 (d)."""
    began_at = time.monotonic()
    body = "threading.Thread(target=time.sleep, args=(600,)).start()\nctx['pid'] = os.getpid()\nreturn events.coded()"
    pid = box.written(task, body)["pid"]
    assert time.monotonic() - began_at < 2
    until(lambda: not is_alive(pid), 2, "the end of the process")


@pytest.mark.prove
def test_isolation_costs_at_most_50_ms_at_the_median_over_a_thread(box: Box, task: int) -> None:
    """A-24."""

    def median_s(start: int, confinement: Confinement) -> float:
        times = []
        for number in range(30):
            began_at = time.monotonic()
            box.outcome(task + start + number, "return events.coded()", confinement=confinement)
            times.append(time.monotonic() - began_at)
        return statistics.median(times)

    box.outcome(task + 9_000_000, "pass")
    assert median_s(1_000_000, PROCESS) - median_s(2_000_000, Confinement()) < 0.05


def test_signals_to_the_terminals_group_do_not_reach_a_routine(box: Box, task: int) -> None:
    """BH-028 (a): Ctrl-C goes to the agent's group alone."""
    box.run(task, "time.sleep(0.5)\nreturn events.coded()")
    box.host.began(task)
    os.killpg(os.getpgid(box.host.process.pid), signal.SIGINT)
    assert box.host.outcome(task).event == "coded"
