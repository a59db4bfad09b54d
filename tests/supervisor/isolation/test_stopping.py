"""Stopping an isolated routine: all that it started ends with it, in time, whatever it does (BH-023, BH-027, A-30)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, Child, child, write_folder
from supervisor.isolation.cells import PROCESS, Box, is_alive, pids_in, until

from stateous_supervisor.host import cgroups
from stateous_supervisor.link.frames import Confinement, Noted, Outcome, Quit

GRACE_S = PROCESS.grace_s
PATIENT = Confinement(isolation="process", grace_s=40.0)
AT_ONCE_S = 20.0  # far from the grace of `PATIENT`, whatever else the box does

# Writes its own pid and those of what it started, and stays. `ignored` is how these take SIGTERM.
FAMILY = """
import signal, subprocess
def started(command):
    return subprocess.Popen(['sh', '-c', {ignored!r} + command]).pid
pids = [os.getpid(), started('sleep 600; :')]
pids.append(subprocess.Popen(['setsid', 'sh', '-c', {ignored!r} + 'sleep 600; :']).pid)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        pid = subprocess.Popen(['nohup', 'sh', '-c', {ignored!r} + 'sleep 600; :'], env={{}}, close_fds=True).pid
        with open({file!r} + '.escaped', 'w') as file: file.write(str(pid))
    os._exit(0)
with open({file!r}, 'w') as file: file.write(' '.join(map(str, pids)))
"""


def family(file: Path, *, ignored: str = "") -> str:
    return FAMILY.format(file=str(file), ignored=ignored)


def members(file: Path) -> list[int]:
    return pids_in(file, 3) + pids_in(file.with_suffix(".escaped"), 1)


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def test_a_lost_def_routine_is_stopped_with_everything_it_started(box: Box, task: int, pids: Path) -> None:
    """BH-027 (a), (b), (c): same group, `setsid`, double fork with `nohup` and an empty environment; A-30."""
    box.run(task, family(pids) + "time.sleep(10**6)", confinement=PATIENT)
    alive = members(pids)
    assert all(map(is_alive, alive))
    box.host.cancel(task, cause="lost")
    assert box.host.outcome(task, wait_s=AT_ONCE_S).is_dropped
    assert not any(map(is_alive, alive))


def test_what_ignores_sigterm_is_killed_after_the_grace(box: Box, task: int, pids: Path) -> None:
    """BH-023 (b), (c)."""
    body = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    box.run(task, body + family(pids, ignored="trap '' TERM; ") + "while True: time.sleep(1)")
    alive = members(pids)
    began_at = time.monotonic()
    box.host.cancel(task)
    assert box.host.outcome(task).is_dropped
    assert time.monotonic() - began_at >= GRACE_S - 0.05
    assert not any(map(is_alive, alive))


def test_a_process_that_stopped_itself_is_ended_too(box: Box, task: int) -> None:
    body = "ctx.note(str(os.getpid()))\nos.kill(os.getpid(), 19)\ntime.sleep(600)"
    box.run(task, body, confinement=PATIENT)
    pid = int(box.host.wait(Noted, lambda frame: frame.task == task).text)
    until(lambda: "(stopped)" in Path(f"/proc/{pid}/status").read_text(), AT_ONCE_S, "the stop")
    box.host.cancel(task)
    assert box.host.outcome(task, wait_s=AT_ONCE_S).is_dropped


def test_an_async_routine_is_cancelled_and_cleans_up_within_the_grace(
    box: Box, task: int, pids: Path
) -> None:
    """A-30: and what it started ends."""
    body = (
        family(pids)
        + f"""
try:
    await asyncio.sleep(600)
finally:
    await asyncio.sleep(0.2)
    open({str(pids.with_suffix(".clean"))!r}, 'w').write('1')
"""
    )
    box.run(task, body, "coding", confinement=PATIENT)
    alive = members(pids)
    box.host.cancel(task)
    assert box.host.outcome(task, wait_s=AT_ONCE_S).is_dropped
    assert pids.with_suffix(".clean").exists()
    assert not any(map(is_alive, alive))


def test_an_async_routine_that_swallows_cancellation_is_killed(box: Box, task: int) -> None:
    """BH-023 (a), A-34."""
    body = """
    ctx.note('here')
    while True:
        try: await asyncio.sleep(3600)
        except BaseException: pass
    """
    box.run(task, body, "coding")
    box.host.wait(Noted, lambda frame: frame.task == task)
    began_at = time.monotonic()
    box.host.cancel(task)
    assert box.host.outcome(task).is_dropped
    assert time.monotonic() - began_at >= GRACE_S - 0.05


def test_a_routine_may_clean_up_in_a_handler_of_its_own(box: Box, task: int, tmp_path: Path) -> None:
    """A `def` routine runs in its process's main thread, so it can have one."""
    body = f"""
    import signal
    def handler(*_): raise RuntimeError('stopped')
    signal.signal(signal.SIGTERM, handler)
    ctx.note('here')
    try:
        time.sleep(600)
    finally:
        open({str(tmp_path / "clean")!r}, 'w').write('1')
    """
    box.run(task, body, confinement=PATIENT)
    box.host.wait(Noted, lambda frame: frame.task == task)
    box.host.cancel(task)
    assert box.host.outcome(task, wait_s=AT_ONCE_S).is_dropped
    assert (tmp_path / "clean").read_text() == "1"


@pytest.mark.parametrize("state", ["other", "coding"])
def test_a_timeout_stops_the_routine_and_then_fails_the_attempt(box: Box, task: int, state: str) -> None:
    """A-20: also where it holds the interpreter's lock; a retry never runs beside it."""
    body = "ctx.note(str(os.getpid()))\nimport re; re.match(r'(a+)+$', 'a' * 60 + 'b')"
    outcome = box.outcome(task, body, state, timeout_s=0.5)
    pid = int(next(f.text for f in box.host.seen if isinstance(f, Noted) and f.task == task))
    assert (outcome.outcome, outcome.is_dropped) == ("failed", False)
    assert outcome.error == "the routine ran longer than its timeout of 0.5 s"
    assert not is_alive(pid)


def test_a_timeout_is_kept_by_the_keeper_of_a_routine_whose_host_stands_still(box: Box, task: int) -> None:
    """A-20: two seconds later than its host would have, and in no case after the agent fails the attempt."""
    box.run(task, "ctx.note(str(os.getpid()))\ntime.sleep(600)", timeout_s=1.0)
    pid = int(box.host.wait(Noted, lambda frame: frame.task == task).text)
    os.kill(box.host.process.pid, signal.SIGSTOP)
    try:
        until(lambda: not is_alive(pid), AT_ONCE_S, "the end of the routine")
    finally:
        os.kill(box.host.process.pid, signal.SIGCONT)
    assert box.host.outcome(task).outcome == "failed"


def test_what_a_routine_leaves_running_ends_after_it(box: Box, task: int, pids: Path) -> None:
    """A-48: its outcome waits for none of it."""
    escaped = str(pids.with_suffix(".escaped"))
    body = f"while not os.path.exists({escaped!r}) or not open({escaped!r}).read(): time.sleep(0.01)\nreturn events.coded()"
    outcome = box.outcome(task, family(pids) + body)
    assert outcome.event == "coded"
    alive = members(pids)
    until(lambda: not any(map(is_alive, alive)), AT_ONCE_S, "the end of what was left")


def test_a_lost_attempt_says_nothing_more(box: Box, task: int) -> None:
    """A-30: notes after the loss are dropped, and so is its result."""
    body = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.note('early')
    while not ctx.lost: time.sleep(0.01)
    ctx.note('late')
    return events.coded()
    """
    box.run(task, body)
    box.host.wait(Noted, lambda frame: frame.task == task)
    box.host.cancel(task)
    assert box.host.outcome(task).is_dropped
    assert [f.text for f in box.host.seen if isinstance(f, Noted) and f.task == task] == ["early"]


def test_late_news_of_an_older_attempt_never_touches_the_newer_one(box: Box, task: int) -> None:
    """A-31."""
    box.run(task, "time.sleep(600)")
    box.host.began(task)
    box.run(task, "time.sleep(0.5)\nreturn events.coded()", attempt=2)
    box.host.cancel(task, attempt=1)
    assert box.host.outcome(task, attempt=1, wait_s=AT_ONCE_S).is_dropped
    assert box.host.outcome(task, attempt=2).event == "coded"


def test_an_attempt_that_is_lost_before_its_process_stands_is_over(own_box: Box) -> None:
    own_box.run(1, "time.sleep(600)")
    own_box.host.cancel(1)
    assert own_box.host.outcome(1).is_dropped


def hosted(tmp_path: Path, pids: Path, body: str) -> tuple[Child, list[int]]:
    host = Child(write_folder(tmp_path / "folder", {"bodies.py": BODIES}))
    host.loaded()
    Box(host).run(1, body)
    return host, members(pids)


@pytest.mark.parametrize("death", ["killed", "closed"])
def test_the_end_of_the_host_ends_its_isolated_routines(tmp_path: Path, pids: Path, death: str) -> None:
    """A-48, BH-027: after `kill -9`, or when the agent is gone, also what escaped and ignores SIGTERM."""
    host, alive = hosted(tmp_path, pids, family(pids, ignored="trap '' TERM; ") + "time.sleep(600)")
    with host:
        if death == "killed":
            os.killpg(host.process.pid, signal.SIGKILL)
        else:
            host.sock.close()
            host.process.wait(AT_ONCE_S)
        until(lambda: not any(map(is_alive, alive)), AT_ONCE_S, "the end of the routine's processes")


def test_quit_ends_isolated_routines_within_its_time(tmp_path: Path, pids: Path) -> None:
    """A-44."""
    host, alive = hosted(tmp_path, pids, family(pids) + "time.sleep(600)")
    with host:
        host.send(Quit())
        host.process.wait(AT_ONCE_S)
        assert not any(map(is_alive, alive))


def test_zombies_of_a_routine_are_reaped_while_it_runs(box: Box, task: int) -> None:
    """BH-027: orphans that end; nobody but the keeper could collect them."""
    body = """
    for _ in range(20):
        if os.fork() == 0:
            if os.fork() == 0: time.sleep(0.05)
            os._exit(0)
        os.wait()
    time.sleep(0.3)
    def stat(pid): return open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()
    stats = []
    for pid in filter(str.isdecimal, os.listdir('/proc')):
        try: stats.append(stat(pid))
        except OSError: pass
    ctx['zombies'] = sum(1 for s in stats if s[0] == 'Z' and s[1] == str(os.getppid()))
    return events.coded()
    """
    assert box.written(task, body) == {"zombies": 0}


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A control group that stands for one that systemd delegated: it is made here, marked, and removed."""
    mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    root = next((Path(a.split()[4]) for a, b in mounts if b.startswith("cgroup2 ")), None)
    group = None if root is None else root / f"stateous-test-{os.getpid()}"
    try:
        if group is None:
            pytest.skip("NO CGROUP V2 HERE: what routines do in control groups of their own is not tested")
        group.mkdir()
        os.setxattr(group, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"CGROUPS CANNOT BE MADE HERE ({error}): routines in groups of their own are not tested")
    yield group
    until(lambda: is_removed(group), AT_ONCE_S, "the end of the groups")


def is_removed(group: Path) -> bool:
    """Try to remove a control group with those below it, which the host's keepers may be removing too."""
    for folder in [*group.glob("routines/*/"), *group.glob("*/"), group]:
        with suppress(OSError):  # it is gone, or the kernel has not done with who was in it
            folder.rmdir()
    return not group.exists()


def test_in_a_delegated_control_group_each_routine_has_one_of_its_own(
    tmp_path: Path, pids: Path, delegated: Path
) -> None:
    """A-24: what it started is in it, is killed with it, and the group is removed afterwards."""
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as host:
        (delegated / "cgroup.procs").write_text(str(host.process.pid))
        box = Box(host)
        box.run(1, family(pids, ignored="trap '' TERM; ") + "time.sleep(600)")
        alive = members(pids)
        (leaf,) = delegated.glob("routines/1-1-*/")
        assert set(alive) <= set(map(int, (leaf / "cgroup.procs").read_text().split()))
        assert (delegated / "cgroup.procs").read_text() == ""
        host.cancel(1)
        assert host.outcome(1).is_dropped
        assert not any(map(is_alive, alive))
        until(lambda: not leaf.exists(), AT_ONCE_S, "the end of the group")


def test_a_control_group_that_was_not_delegated_is_left_alone() -> None:
    """No other group of the box is touched."""
    own = cgroups._own()
    assert own is None or cgroups._is_marked(own) or cgroups.find() is None


def test_outcomes_come_once_each(own_box: Box) -> None:
    """Cancels, timeouts and ends at the same moment."""
    own_box.outcome(99, "pass")
    for number in range(1, 21):
        own_box.run(
            number,
            "time.sleep(0.1)\nreturn events.coded()",
            timeout_s=0.12,
            confinement=Confinement(isolation="process", grace_s=0.1),
        )
    for number in range(1, 21):
        own_box.host.cancel(number)
    for number in range(1, 21):
        own_box.host.outcome(number)
    time.sleep(0.3)
    own_box.host.body("return events.coded()", 100)
    assert sorted(f.task for f in own_box.host.of_kind(Outcome)) == [*range(1, 21), 99, 100]
