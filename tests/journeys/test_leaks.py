"""Many short tasks leave memory, threads, descriptors and the state folder where they were (A-62, BH-030)."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pytest
from control.databases import fresh
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES
from stateous_supervisor.agent import output
from stateous_supervisor.agent.outbox_file import FILE

pytestmark = pytest.mark.slow

# A state for each kind of routine: a thread, a coroutine, a process of its own.
WORKFLOW = """
stateous: 1
workflow: many
context: Many
states:
  thread: {retries: 3, emits: [made]}
  coroutine: {retries: 3, emits: [made]}
  isolated: {retries: 3, emits: [made]}
events:
  made: {payload: Made}
transitions:
  - {from: __start__, to: coroutine, when: "ctx['kind'] == 'coroutine'"}
  - {from: __start__, to: isolated, when: "ctx['kind'] == 'isolated'"}
  - {from: __start__, to: thread, otherwise: true}
  - {from: thread, on: made, to: __end__}
  - {from: coroutine, on: made, to: __end__}
  - {from: isolated, on: made, to: __end__}
schemas:
  Many:
    type: object
    properties: {kind: {type: string}, does: {type: string}, begun: {type: string, default: ""}}
    required: [kind, does]
  Made: {type: object, properties: {text: {type: string}}, required: [text]}
"""
ROUTINES = """
import asyncio
import subprocess
import time
from pathlib import Path
from contract import Made, events, states
from stateous_supervisor import on_state


@on_state(states.thread)
def thread(ctx):
    if begin(ctx):
        while not ctx.lost:
            time.sleep(0.02)
        time.sleep(0.2)
    return work(ctx)


@on_state(states.coroutine)
async def coroutine(ctx):
    if begin(ctx):
        await asyncio.sleep(3_600)
    return work(ctx)


@on_state(states.isolated, isolation="process")
def isolated(ctx):
    if begin(ctx):
        time.sleep(3_600)
    return work(ctx)


def begin(ctx):
    is_long = ctx["does"] == "last"
    if is_long:
        Path(ctx["begun"]).touch()
    return is_long


def work(ctx):
    large = bytearray(1_000_000)
    if ctx.task % 3 == 0:
        print("printed")
    if ctx["does"] == "fail" and ctx.attempt == 1:
        raise RuntimeError(f"with {len(large)} bytes in its frame")
    if ctx["does"] == "run":
        subprocess.run(["echo", "from a program"])
    return events.made(Made(text="x" * 1_000_000 if ctx["does"] == "return" else ""))
"""
DOES = ("fail", "return", "fail", "run", "last")
BATCH = 50
HOST = "stateous_supervisor.host"
REST_S = 20.0  # idle threads of `def` routines stay ten seconds
PART = 1_000
KINDS = ("isolated", "coroutine", "thread", "coroutine", "thread")
OUTAGE_S = 30.0
OUTAGE_EVERY_S = 120.0
BEATS = 6
BEAT_S = 1.0  # in `TIMES`


class Process(NamedTuple):
    """What one process takes."""

    pid: int
    name: str
    descriptors: int
    threads: int
    kb: int


class Sizes(NamedTuple):
    """What an agent takes with its host, the nursery and the warden. Shown process by process."""

    processes: tuple[Process, ...]

    @property
    def descriptors(self) -> int:
        return sum(process.descriptors for process in self.processes)

    @property
    def threads(self) -> int:
        return sum(process.threads for process in self.processes)

    @property
    def kb(self) -> int:
        return sum(process.kb for process in self.processes)

    @property
    def pids(self) -> list[int]:
        return sorted(process.pid for process in self.processes)

    def __str__(self) -> str:
        return "; ".join(
            f"{p.name} ({p.pid}) {p.descriptors} fds {p.threads} threads {p.kb:,} kB" for p in self.processes
        )


def sizes(agent: int) -> Sizes:
    """Measure the processes below `agent`, and those in their sessions: a warden is nobody's child."""
    below = psutil.Process(agent).children(recursive=True)
    known = {agent, *(process.pid for process in below)}
    sessions = {_session(pid) for pid in known} - {None}
    processes = [p for p in psutil.process_iter() if p.pid in known or _session(p.pid) in sessions]
    return Sizes(tuple(_measured(process) for process in processes))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _measured(process: psutil.Process) -> Process:
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    kb = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))
    return Process(process.pid, _name(process), process.num_fds(), process.num_threads(), kb)


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    if f"{HOST}.nursery" in words:
        return "nursery"  # and what it forks for isolated routines
    if HOST in words:
        return "host" if os.getpgid(process.pid) == os.getsid(process.pid) else "warden"
    return "agent" if any(word.endswith("/stateous-supervisor") for word in words) else process.name()


def at_rest(agent: int, threads_max: int | None = None) -> Sizes:
    """Wait for the end of the last isolated routine and, with `threads_max`, for that of threads that `def` routines
    left idle. What is still there after a while is for the caller to judge.
    """
    deadline = time.monotonic() + REST_S
    while True:
        with suppress(psutil.Error, OSError):  # a process ended while it was measured
            now = sizes(agent)
            is_quiet = sorted(p.name for p in now.processes) == ["agent", "host", "nursery", "warden"]
            if (is_quiet and now.threads <= (threads_max or now.threads)) or time.monotonic() > deadline:
                return now
        time.sleep(0.1)


class Crowd:
    """Tokens in batches. Of five, two fail once with a megabyte in their frame, one returns a megabyte, one runs a
    program, and one lasts until its token is cancelled. In each batch all connections are cut; with `has_outages` the
    control plane is out of reach for half a minute every two minutes.
    """

    def __init__(self, plane: ControlPlaneClient, way: FaultProxy, begun: Path, *, has_outages: bool) -> None:
        self._plane = plane
        self._way = way
        self._begun = begun
        self._next_outage = time.monotonic() + OUTAGE_EVERY_S if has_outages else float("inf")
        self._count = 0
        self.outages = 0

    def run(self, count: int) -> None:
        """Run `count` tokens to their ends."""
        for _ in range(0, count, BATCH):
            lost = dict(filter(None, [self._start() for _ in range(BATCH)]))
            self._way.cut()
            self._be_out()
            self._lose(lost)
            self._way.heard.clear()

    def _lose(self, lost: dict[str, Path]) -> None:
        """Cancel tokens once all others are over, and their routines have begun."""
        wait_for(lambda: self._have_begun(lost), within_s=90, what="batch of which only the long ones go on")
        for token, file in lost.items():
            self._plane.cancel(token)
            file.unlink()

    def _start(self) -> tuple[str, Path] | None:
        """Start the next token; if it lasts, return it and the file that it makes when it begins."""
        does, kind = DOES[self._count % 5], KINDS[self._count // 5 % 5]
        self._count += 1
        token = f"many-{self._count}"
        file = self._begun / token
        self._plane.start(token, kind=kind, does=does, begun=str(file))
        return (token, file) if does == "last" else None

    def _have_begun(self, lost: dict[str, Path]) -> bool:
        active = self._plane.http.get(f"/tokens?status=active&limit={BATCH}").json()
        return {token["token"] for token in active} == set(lost) and all(
            file.exists() for file in lost.values()
        )

    def _be_out(self) -> None:
        if time.monotonic() < self._next_outage:
            return
        self._way.is_down = True
        self._way.cut()
        time.sleep(OUTAGE_S)
        self._way.is_down = False
        self._next_outage = time.monotonic() + OUTAGE_EVERY_S
        self.outages += 1


def gaps_between_beats(plane: ControlPlaneClient, way: FaultProxy, begun: Path) -> list[float]:
    """Hold one task for some heartbeats, and return the seconds between them."""
    beat = "POST /tasks/heartbeat"
    way.heard.clear()
    plane.start("held", kind="coroutine", does="last", begun=str(begun / "held"))
    wait_for(lambda: way.times_heard(beat) >= BEATS, within_s=40, what="last heartbeat")
    plane.cancel("held")
    return [
        later - earlier
        for earlier, later in pairwise(at for at, _, name, _ in list(way.heard) if name == beat)
    ]


def open_rows(state: Path) -> dict[str, int]:
    """Count what an agent's book holds for others. A claim may be open: it waits for work."""
    with closing(sqlite3.connect(f"file:{state / FILE}?mode=ro", uri=True)) as book:
        return {
            table: book.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("grants", "messages", "aside")
        }


@pytest.fixture
def many(postgres: str, migrated_template: str, tmp_path: Path) -> Iterator[ControlPlaneClient]:
    """A client of a control plane of its own."""
    workflow = tmp_path / "many.yaml"
    workflow.write_text(WORKFLOW)
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(workflow, *TIMES, "--database", database) as program,
        ControlPlaneClient(program.url) as plane,
    ):
        yield plane


def hold_to_size(
    plane: ControlPlaneClient,
    box: Path,
    *,
    warm: int,
    count: int,
    kb_max: int,
    has_outages: bool = False,
    **env: str,
) -> None:
    """Run `warm` tokens, and then `count`; an agent may grow by `kb_max` meanwhile, and by nothing else."""
    url = str(plane.http.base_url)
    folder = folders.make(
        box / "leaks", url, box.parent / "many.yaml", many=ROUTINES, hand="", loop="", check=""
    )
    state, begun = box / "leaks-state", box / "begun"
    begun.mkdir()
    with (
        FaultProxy(url) as way,
        AgentProgram(folder, way.url, "--tasks", "20", env=env) as agent,
    ):
        pid = agent.child.pid
        for kind in ("coroutine", "isolated"):  # with these, everything has begun that stays
            plane.start(f"first-{kind}", kind=kind, does="run")
            plane.until(f"first-{kind}", status="completed")
        rest = at_rest(pid)
        crowd = Crowd(plane, way, begun, has_outages=has_outages)
        crowd.run(warm)
        before = at_rest(pid)
        for _ in range(0, count, PART):
            crowd.run(min(count, PART))
            print(worked := at_rest(pid), flush=True)
        gaps = gaps_between_beats(plane, way, begun)
        after = at_rest(pid, rest.threads + 2)
        rows = open_rows(state)
    told = f"at rest: {rest}\nwarm: {before}\nworked: {worked}\nat rest again: {after}"
    print(f"{told}\nbeats: {gaps}, outages: {crowd.outages}")
    assert after.pids == rest.pids, told
    assert abs(after.threads - rest.threads) <= 2, told
    assert abs(after.descriptors - rest.descriptors) <= 10, told
    assert worked.kb - before.kb < kb_max, told
    assert rows == {"grants": 0, "messages": 0, "aside": 0}
    assert median(gaps) == pytest.approx(BEAT_S, abs=0.2)
    assert sum(file.stat().st_size for file in state.iterdir() if file.is_file()) < 16 * 1_048_576
    assert len(list((state / output.FOLDER).iterdir())) <= output.ATTEMPTS_MAX


@pytest.mark.timeout(180)
def test_short_tasks_leave_an_agent_as_it_was(many: ControlPlaneClient, box: Path) -> None:
    """With few arenas: each grows until it has had the largest that comes, which takes a thousand tasks of all."""
    hold_to_size(many, box, warm=50, count=100, kb_max=10_000, MALLOC_ARENA_MAX="2")


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_twenty_thousand_tasks_and_outages_leave_an_agent_as_it_was(
    many: ControlPlaneClient, box: Path
) -> None:
    """At most a kilobyte a task (BH-030)."""
    hold_to_size(many, box, warm=2_000, count=20_000, kb_max=20_000, has_outages=True)


@pytest.mark.prove
@pytest.mark.timeout(7_200)
def test_a_hundred_thousand_short_tasks_leave_an_agent_as_it_was(many: ControlPlaneClient, box: Path) -> None:
    hold_to_size(many, box, warm=5_000, count=100_000, kb_max=45_000)
