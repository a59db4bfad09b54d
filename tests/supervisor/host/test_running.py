"""How routines run in a real host: threads, the loop, timeouts, loss, and what they may say meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.host.child import Child, child, grant, inline, write_folder

from stateous_supervisor.link.frames import (
    Cancel,
    Drain,
    HeldUntil,
    Noted,
    Outcome,
    Pulse,
    Quit,
    Remembered,
    Run,
)

WAITS = """
@on_state(states.coding)
async def coding(ctx: TicketContext):
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaned up")

@on_state(states.other)
def other(ctx: TicketContext):
    while not ctx.lost:
        time.sleep(0.01)
    ctx.note("too late")
    ctx.memory["a"] = 1
    print("saw it")
    return events.coded()

@on_state(states.testing)
async def testing(ctx: TicketContext):
    for _ in range(4):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("swallowed")
"""


def test_async_routines_share_the_loop_and_def_routines_have_threads(host: Child, task: int) -> None:
    """S3-65, S3-66, A-16."""
    body = "ctx['main'] = threading.current_thread() is threading.main_thread()"
    assert bytes(host.body(body, task).context or b"") == b'{"main":true}'
    body += "; ctx['daemon'] = threading.current_thread().daemon"
    outcome = host.body(body, task + 1_000_000, "other")
    assert bytes(outcome.context or b"") == b'{"main":false,"daemon":true}'


def test_a_blocking_def_routine_delays_nobody(host: Child, task: int) -> None:
    """S3-66."""
    host.run(task, "other", context={"body": "time.sleep(1.5)\nreturn events.coded()"})
    host.began(task)
    assert host.body("return events.coded()", task + 1_000_000).outcome == "event"
    assert not [frame for frame in host.of_kind(Outcome) if frame.task == task]


def test_fifty_def_routines_run_at_once(host: Child, task: int) -> None:
    """S3-67: the host does not count slots; the agent does."""
    tasks = range(task + 2_000_000, task + 2_000_050)
    body = "barrier = sys.modules['bodies'].__dict__.setdefault('barrier', threading.Barrier(50))\nbarrier.wait(10)"
    for each in tasks:
        host.run(each, "other", context={"body": body})
    assert {host.outcome(each).outcome for each in tasks} == {"waiting"}


def test_began_carries_the_monotonic_clock_of_the_first_line(host: Child, task: int) -> None:
    outcome = host.body("ctx['at'] = time.monotonic()", task)
    at = json.loads(bytes(outcome.context or b""))["at"]
    assert 0 <= at - host.began(task).at < 1


def test_notes_and_memory_arrive_before_the_outcome_in_their_order(host: Child, task: int) -> None:
    """A-36, S3-77."""
    body = "ctx.note(' one ')\nctx.memory['k'] = {'a': [1]}\nctx.note('two')\ndel ctx.memory['k']\nreturn events.coded()"
    host.body(body, task)
    said = [f for f in host.seen if isinstance(f, Noted | Remembered | Outcome) and f.task == task]
    assert [type(frame) for frame in said] == [Noted, Remembered, Noted, Remembered, Outcome]
    told = [frame.text if isinstance(frame, Noted) else bytes(frame.value) for frame in said[:4]]  # type: ignore[union-attr]
    assert told == ["one", b'{"a":[1]}', "two", b"null"]


def test_a_note_is_out_before_the_routine_goes_on(host: Child, task: int) -> None:
    """A plain call returns when its frame is in the socket pair: also where the loop is blocked right after."""
    host.run(task, context={"body": "ctx.note('on my way'); time.sleep(1.5)"})
    host.wait(Noted, lambda frame: frame.task == task, wait_s=1.2)
    assert not [frame for frame in host.of_kind(Outcome) if frame.task == task]
    host.outcome(task)


def test_print_becomes_a_line_of_its_task_in_both_kinds(host: Child, task: int) -> None:
    """A-21."""
    host.body("print('from', ctx.task); sys.stderr.write('oops'); return events.coded()", task)
    host.body("print('from', ctx.task); return events.coded()", task + 1_000_000, "other")
    line = host.line(f"from {task}")
    assert (line.level, line.task, line.attempt) == ("info", task, 1)
    assert host.line(f"from {task + 1_000_000}").task == task + 1_000_000
    assert host.line("oops").level == "warning"


def test_print_of_tasks_and_threads_that_inherit_the_context_belongs_to_the_task(
    host: Child, task: int
) -> None:
    body = """
    async def inner(): print('inner', ctx.task)
    await asyncio.create_task(inner())
    await asyncio.to_thread(print, 'thread', ctx.task)
    """
    host.body(body, task)
    assert host.line(f"inner {task}").task == task
    assert host.line(f"thread {task}").task == task


def test_lines_of_two_routines_are_not_mixed(host: Child, task: int) -> None:
    body = "print('a', end=''); await asyncio.sleep(0.05); print(ctx.task)"
    host.run(task, context={"body": body})
    host.run(task + 1_000_000, context={"body": body})
    assert host.line(f"a{task}").text == f"a{task}"
    assert host.line(f"a{task + 1_000_000}").task == task + 1_000_000


def test_a_routine_that_prints_for_ever_fills_no_memory(host: Child, task: int) -> None:
    host.body("for number in range(200_000): print('flood')", task, "other")
    dropped = [frame for frame in host.seen if "log lines were dropped" in getattr(frame, "text", "")]
    lines = [frame for frame in host.seen if getattr(frame, "text", "") == "flood"]
    assert len(lines) == 200_000 or dropped
    host.seen.clear()


def test_a_timeout_ends_an_async_routine_and_names_itself(tmp_path: Path) -> None:
    """A-20."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        outcome = host.result(1, "coding", timeout_s=0.1)
        assert (outcome.outcome, outcome.is_dropped) == ("failed", False)
        assert outcome.error == "the routine ran longer than its timeout of 0.1 s"
        assert outcome.duration_s < 5


def test_a_timeout_ends_the_attempt_of_a_def_routine_at_once(tmp_path: Path) -> None:
    """A-20: the thread is left to itself, and what it returns later is dropped."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS.replace("ctx.lost", "(tmp := False)")})) as host:
        outcome = host.result(1, "other", timeout_s=0.1)
        assert outcome.error == "the routine ran longer than its timeout of 0.1 s"
        assert host.wait(Pulse, lambda frame: frame.abandoned == 1).running == 0


def test_a_timeout_of_the_decorator_holds_where_the_agent_gives_none(tmp_path: Path) -> None:
    text = "@on_state(states.coding, timeout=0.1)\nasync def coding(ctx):\n    await asyncio.sleep(60)\n"
    with inline(write_folder(tmp_path, {"a.py": text})) as host:
        assert "timeout of 0.1 s" in (host.result(1).error or "")
        assert host.loaded().routines[0].timeout_s == 0.1


def test_a_lost_async_routine_is_cancelled_and_cleans_up(tmp_path: Path) -> None:
    """A-30, S3-69."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        host.run(1)
        host.began(1)
        host.cancel(1)
        outcome = host.outcome(1, wait_s=1)
        assert outcome.is_dropped
        assert host.wait(Pulse, lambda frame: frame.running == 0).abandoned == 0


def test_a_lost_def_routine_runs_on_and_its_result_is_dropped(tmp_path: Path) -> None:
    """A-30, S3-70."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        host.run(1, "other")
        host.began(1)
        host.cancel(1)
        assert host.outcome(1, wait_s=1).is_dropped
        host.wait(Pulse, lambda frame: frame.abandoned == 0)
        assert len(host.of_kind(Outcome)) == 1
        assert not host.of_kind(Noted)
        assert not host.of_kind(Remembered)


def test_a_routine_that_swallows_its_cancel_is_cancelled_again_and_then_abandoned(tmp_path: Path) -> None:
    """A-34."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS}), cancel_again_s=0.1) as host:
        host.run(1, "testing")
        host.began(1)
        host.cancel(1)
        assert host.outcome(1).is_dropped
        assert host.wait(Pulse, lambda frame: frame.abandoned == 1).running == 0
        assert host.result(2, "coding", timeout_s=0.05).outcome == "failed"


def test_a_late_cancel_never_touches_a_newer_attempt(tmp_path: Path) -> None:
    """A-31."""
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        host.run(1, attempt=2)
        host.began(1)
        host.cancel(1, attempt=1)
        host.cancel(1, attempt=3)
        host.wait(Pulse, lambda frame: frame.running == 1)
        assert not host.of_kind(Outcome)


def test_a_grant_of_a_newer_attempt_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        host.run(1, attempt=1)
        host.began(1)
        host.run(1, attempt=2)
        assert host.outcome(1, attempt=1).is_dropped
        host.cancel(1, attempt=2)
        assert host.outcome(1, attempt=2).is_dropped


def test_a_cancel_right_behind_its_grant_still_ends_the_attempt(tmp_path: Path) -> None:
    with inline(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        for task, state in enumerate(["coding", "other"] * 10, 1):
            host.send(
                Run(grant=grant(task, state), lease_s=9.0), Cancel(task=task, attempt=1, cause="cancelled")
            )
        assert all(host.outcome(task).is_dropped for task in range(1, 21))
        host.wait(Pulse, lambda frame: frame.running == 0 and frame.abandoned == 0)


def test_the_lease_counts_down_and_is_renewed(host: Child, task: int) -> None:
    """A-17, A-32."""
    body = """
    first = ctx.lease
    while ctx.lease < 500: await asyncio.sleep(0.01)
    ctx['leases'] = [first, ctx.lease]
    """
    host.run(task, context={"body": body})
    host.began(task)
    host.send(HeldUntil(tasks=[task], lease_s=600.0))
    first, second = json.loads(bytes(host.outcome(task).context or b""))["leases"]
    assert 100 < first <= 120
    assert 500 < second <= 600


def test_check_stops_a_def_routine_that_asks(host: Child, task: int) -> None:
    """A-17: `except Exception` does not swallow it."""
    body = """
    while True:
        try: ctx.check()
        except Exception: pass
        time.sleep(0.01)
    """
    host.run(task, "other", context={"body": body})
    host.began(task)
    host.cancel(task)
    host.outcome(task)
    assert host.wait(Pulse, lambda frame: frame.abandoned == 0)


def test_drain_ends_the_host_when_the_last_routine_ended(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"waits.py": WAITS.replace("60", "0.3")})
    with child(folder) as host:
        host.run(1)
        host.began(1)
        host.send(Drain())
        assert host.outcome(1).outcome == "waiting"
        host.wait_end()
        host.stop()
        assert host.process.returncode == 0


def test_quit_cancels_what_runs_and_ends_whatever_routines_do(tmp_path: Path) -> None:
    """A-34, A-44."""
    with child(write_folder(tmp_path, {"waits.py": WAITS})) as host:
        for task, state in enumerate(["coding", "other", "testing"], 1):
            host.run(task, state)
            host.began(task)
        host.send(Quit())
        host.wait_end(wait_s=6)
        assert host.outcome(1).is_dropped
        assert host.line("cleaned up").task == 1
        host.stop()
        assert host.process.returncode == 0


def test_modules_of_the_folder_clean_up_at_a_drain(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"import atexit, pathlib\natexit.register(pathlib.Path({str(mark)!r}).touch)\n"
    with child(write_folder(tmp_path / "folder", {"a.py": text})) as host:
        host.send(Drain())
        host.wait_end()
        assert mark.exists()


def test_many_short_tasks_leave_no_memory_and_no_descriptors(tmp_path: Path) -> None:
    """A-62, BH-030: also where user code switched the collector off, and where tasks fail."""
    text = """
    import gc
    gc.disable()
    @on_state(states.coding)
    async def coding(ctx):
        ctx["n"] = ctx["title"]
        if ctx.task % 10 == 0: raise ValueError("every tenth")
        return events.coded()
    """
    with child(write_folder(tmp_path, {"a.py": text})) as host:
        _run_many(host, range(1, 3_001))
        before = _sizes(host)
        _run_many(host, range(10_001, 16_001))
        after = _sizes(host)
    assert after["descriptors"] == before["descriptors"]
    assert after["threads"] == before["threads"]
    assert after["kb"] - before["kb"] < 1_500


def _run_many(host: Child, tasks: range) -> None:
    for first in range(0, len(tasks), 100):
        batch = tasks[first : first + 100]
        host.send(*(Run(grant=grant(task), lease_s=9.0) for task in batch))
        host.outcome(batch[-1])
        host.seen.clear()


def _sizes(host: Child) -> dict[str, int]:
    here = Path(f"/proc/{host.process.pid}")
    private = [
        line for line in (here / "smaps_rollup").read_text().splitlines() if line.startswith("Private_Dirty")
    ]
    return {
        "descriptors": len(list((here / "fd").iterdir())),
        "threads": len(list((here / "task").iterdir())),
        "kb": int(private[0].split()[1]),
    }
