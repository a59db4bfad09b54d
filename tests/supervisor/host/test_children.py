"""What programs print that a routine in the shared host starts: it belongs to its attempt (A-21, A-63)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, Child, child, write_folder

from stateous_supervisor.link.frames import Logged

THREAD, LOOP = "other", "coding"


def lines(host: Child, task: int) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in host.of_kind(Logged) if line.task == task]


@pytest.mark.parametrize("state", [THREAD, LOOP])
def test_a_program_that_inherits_the_streams_prints_for_its_task(host: Child, task: int, state: str) -> None:
    body = """
    import subprocess
    subprocess.run(["sh", "-c", "echo out; echo err >&2; printf 'no end'"])
    subprocess.run("echo again", shell=True, stdout=sys.stdout, stderr=subprocess.STDOUT)
    return events.coded()
    """
    host.body(body, task, state)

    assert sorted(lines(host, task)) == [("info", "no endagain"), ("info", "out"), ("warning", "err")]


def test_a_program_of_asyncio_prints_for_its_task(host: Child, task: int) -> None:
    body = """
    program = await asyncio.create_subprocess_exec("echo", "from asyncio")
    await program.wait()
    return events.coded()
    """
    host.body(body, task, LOOP)

    assert lines(host, task) == [("info", "from asyncio")]


def test_a_forked_child_prints_for_its_task(host: Child, task: int) -> None:
    body = """
    import multiprocessing
    multiprocessing.get_context("fork").Process(target=lambda: os.write(1, b"forked\\n")).start()
    if os.fork() == 0:
        print("printed", flush=True)
        os.system("echo below the fork")
        os._exit(0)
    os.wait(); os.wait()
    return events.coded()
    """
    host.body(body, task, THREAD)

    assert sorted(text for _, text in lines(host, task)) == ["below the fork", "forked", "printed"]


def test_a_fork_before_exec_keeps_its_stream(host: Child, task: int) -> None:
    body = """
    import subprocess
    subprocess.run(["echo", "after preexec_fn"], preexec_fn=os.setsid)
    return events.coded()
    """
    host.body(body, task, THREAD)

    assert lines(host, task) == [("info", "after preexec_fn")]


def test_where_a_program_was_told_to_write_it_writes(host: Child, task: int, tmp_path: Path) -> None:
    body = f"""
    import subprocess
    with open({str(tmp_path / "out")!r}, "w") as out:
        subprocess.run(["echo", "to a file"], stdout=out)
    said = subprocess.run(["echo", "to a pipe"], stdout=subprocess.PIPE, text=True).stdout
    subprocess.run(["echo", "to nobody"], stdout=subprocess.DEVNULL)
    print(said, end="")
    return events.coded()
    """
    host.body(body, task, THREAD)

    assert (tmp_path / "out").read_text() == "to a file\n"
    assert lines(host, task) == [("info", "to a pipe")]


def test_two_attempts_at_once_are_told_apart(host: Child, task: int) -> None:
    body = """
    import subprocess
    for _ in range(50):
        subprocess.run(["echo", str(ctx.task)])
    return events.coded()
    """
    tasks = [task, task + 2_000_000, task + 3_000_000]
    for each in tasks:
        host.run(each, THREAD, context={"title": "a", "body": body})
    for each in tasks:
        host.outcome(each, wait_s=30)

    assert all(lines(host, each) == [("info", str(each))] * 50 for each in tasks)


def test_a_program_that_outlives_its_routine_is_heard_on_and_blocks_nothing(
    host: Child, task: int, tmp_path: Path
) -> None:
    """What it prints is read, more than a pipe holds, also when the outcome has long been said."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    body = f"""
    import subprocess
    subprocess.Popen("cat {gate}; head -c 300000 /dev/zero | tr '\\\\0' x | fold -w 1000; echo; echo last", shell=True)
    return events.coded()
    """
    assert host.body(body, task, THREAD).outcome == "event"
    gate.write_text("begin\n")

    assert host.line("last").task == task


def test_what_belongs_to_no_task_goes_to_the_hosts_own_descriptors(tmp_path: Path) -> None:
    """`os.system`, and a program started while a file is imported: A-63's stated limit."""
    early = 'import subprocess\nsubprocess.run(["echo", "at import"])\n'
    folder = write_folder(tmp_path / "folder", {"bodies.py": BODIES, "early.py": early})
    with child(folder) as fresh:
        fresh.body("os.system('echo from system'); return events.coded()", 1, THREAD)
        out, _ = fresh.stop()

    assert sorted(out.decode().split("\n")) == ["", "at import", "from system"]
    assert [line.text for line in fresh.of_kind(Logged)] == []


def test_programs_of_many_attempts_leave_no_descriptor_behind(tmp_path: Path) -> None:
    """A-62: pipes go with their attempts."""
    folder = write_folder(tmp_path / "folder", {"bodies.py": BODIES})
    body = "import subprocess\nsubprocess.run(['true'])\nreturn events.coded()"
    with child(folder) as fresh:
        fresh.body(body, 1, THREAD)
        descriptors = Path(f"/proc/{fresh.process.pid}/fd")
        before = len(list(descriptors.iterdir()))
        for number in range(2, 60):
            fresh.body(body, number, THREAD)
        after = len(list(descriptors.iterdir()))
    assert after <= before + 2
