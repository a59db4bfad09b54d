"""What is measured, one function for each figure. Nothing of ours is asked: marks of a routine, rows, `/proc`."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import peer
from machine import Bench, bench, postgres_cpu_s, spread, wait_until
from sides import Ours, Peer, Sdlc, Side, database, free_port, our_bin

SLOTS = 100
PEER_TASKS = 200  # at 16 a second; more would only take longer
SETTLE_S = 10.0
Add = Callable[..., None]


@dataclass
class Place:
    """Where one test runs: the server's address, a folder of its own, the server's folder, and where rows go."""

    dsn: str
    folder: Path
    postgres: Path
    add: Add

    def make(self, kind: type[Side], name: str, programs: Path) -> Side:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return kind(name, programs, database(self.dsn, name.replace("-", "_")), folder, free_port())


def drain(place: Place, runs: int, count: int) -> None:
    """No-op tasks, preloaded, 100 slots; the two sides in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    programs = peer.find()
    for run in range(runs):
        with bench(place.folder) as running:
            side = place.make(Ours, f"ours-drain-{run}", our_bin())
            ours.append(_drain(place, side, running, count=count, stop_at=count))
        if programs:
            with bench(place.folder) as running:
                side = place.make(Peer, f"peer-drain-{run}", programs)
                theirs.append(_drain(place, side, running, count=PEER_TASKS + SLOTS, stop_at=PEER_TASKS))
        place.add(
            test="drain", run=run, ours=round(ours[-1], 1), peer=round(theirs[-1], 1) if theirs else None
        )
    place.add(
        test="drain",
        what="no-op tasks a second, 100 slots",
        bound="at least 4,000",
        measured=spread(ours, 0),
    )
    ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
    place.add(
        test="drain",
        what=f"the same, as a multiple of Stateous {peer.VERSION}",
        bound="at least 250",
        measured=f"{spread(ratios, 0)} ({spread(theirs)} tasks a second)"
        if ratios
        else "not measured: no peer here",
    )


def _drain(place: Place, side: Side, running: Bench, *, count: int, stop_at: int) -> float:
    """Return tasks a second, from the first routine's first line to the last completion in the database."""
    control = side.serve(running)
    side.preload(count)

    def used() -> dict[str, float]:
        return {"control": control.cpu_s(), "postgres": postgres_cpu_s(place.postgres), **agent.cpu_s_each()}

    agent = side.supervise(running, SLOTS, {"METER_TARGET": str(stop_at)})
    wait_until(f"{side.name} to begin", lambda: side.mark("FIRST"), 60)
    before = used()
    wait_until(f"{side.name} to end", lambda: side.mark("LAST"), 240)
    end = side.mark("LAST") or 0
    if stop_at == count:
        wait_until("the last completion", lambda: side.completed() == count, 60, 0.003)
        end = time.monotonic_ns()
    after = used()
    cpu = {name: round((cpu_s - before.get(name, 0)) * 1e6 / stop_at) for name, cpu_s in after.items()}
    place.add(test="drain", side=side.name, cpu_us_a_task=cpu)
    return stop_at / ((end - (side.mark("FIRST") or 0)) / 1e9)


def dispatch(place: Place, count: int) -> None:
    """From the 201 of the start at the client to the stamp of the routine's first line, on an idle system."""
    with bench(place.folder) as running:
        side = place.make(Ours, "ours-dispatch", our_bin())
        side.serve(running)
        side.supervise(running, 32, {"METER_EACH": "1"})
        time.sleep(SETTLE_S)
        started: dict[str, int] = {}
        gaps = random.Random(7)
        for number in range(count):
            time.sleep(gaps.uniform(0.05, 0.5))
            body = json.dumps({"token": f"d{number}"}).encode()
            urllib.request.urlopen(f"{side.url}/tokens", body, timeout=10).read()
            started[f"d{number}"] = time.monotonic_ns()
        wait_until("the last routine", lambda: len(side.marks()) == count, 10)
        waits = sorted((int(m[2]) - started[m[1]]) / 1e6 for m in side.marks() if m[0] == "RUN")
    p90 = waits[int(len(waits) * 0.9)]
    place.add(
        test="dispatch",
        what="ms from a start to the routine's first line",
        bound="at most 8 at the median",
        measured=f"{statistics.median(waits):.1f} (90 %: {p90:.1f}, {len(waits)} starts: {spread(waits)})",
    )


def idle(place: Place, seconds: int) -> None:
    """Memory (PSS) and CPU of agent and host together on `examples/sdlc`, with nothing to do."""
    with bench(place.folder) as running:
        side = place.make(Sdlc, "ours-idle", our_bin())
        side.serve(running)
        agent = side.supervise(running, 4, {})
        time.sleep(SETTLE_S)
        before = agent.cpu_s_each()
        time.sleep(seconds)
        cpu = {name: (used - before[name]) / seconds * 100 for name, used in agent.cpu_s_each().items()}
        pss = agent.pss_mb_each()
    each = ", ".join(f"{name} {mb:.1f}" for name, mb in pss.items())
    place.add(
        test="idle",
        what="MB of agent and host, idle (PSS)",
        bound="at most 90",
        measured=f"{sum(pss.values()):.1f} ({each})",
    )
    each = ", ".join(f"{name} {percent:.2f}" for name, percent in cpu.items())
    place.add(
        test="idle",
        what="% of a core of agent and host, idle",
        bound="at most 0.5",
        measured=f"{sum(cpu.values()):.2f} in {seconds} s ({each})",
    )


FILL = """
WITH k AS (
  INSERT INTO tokens (id, name, graph, workflow, state, status, visit, context, entered_at, entered_by, seq,
                      visits, events)
  SELECT nextval('token_ids'), 'fill-' || n, (SELECT graph FROM settings), 'noop', 'a', 'active', 1, '{}', now(),
         '__started__', 4, '{"a":1}', '{"__started__":1}' FROM generate_series($1::int, $2::int) AS n RETURNING id
)
INSERT INTO tasks (id, token_id, state, visit, ready_at)
SELECT nextval('task_ids'), id, 'a', 1, now() FROM k
"""


async def fill(dsn: str, first: int, last: int) -> None:
    """Queue tasks by SQL, and leave the server with nothing of that to do afterwards."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET jit = off")
    await connection.execute(FILL, first, last, timeout=600)
    await connection.execute("VACUUM (ANALYZE) tasks, tokens", timeout=600)
    await connection.execute("CHECKPOINT", timeout=600)
    await connection.close()


def claim(place: Place) -> None:
    """The time of one claim with 1,000 and with 1,000,000 queued tasks."""
    with bench(place.folder) as running:
        side = place.make(Ours, "ours-claim", our_bin())
        side.serve(running)
        asyncio.run(fill(side.dsn, 1, 1_000))
        _claims_ms(side, "warm", 50)
        small = statistics.median(_claims_ms(side, "small", 200))
        asyncio.run(fill(side.dsn, 1_001, 1_000_000))
        _claims_ms(side, "warm2", 50)
        large = statistics.median(_claims_ms(side, "large", 200))
    place.add(
        test="claim",
        what="a claim with 1,000,000 queued tasks, as a multiple of one with 1,000",
        bound="at most 1.5",
        measured=f"{large / small:.2f} ({large:.2f} ms, {small:.2f} ms)",
    )


def _claims_ms(side: Side, prefix: str, count: int) -> list[float]:
    times = []
    for number in range(count):
        body = {"supervisor": "bench", "instance": "i", "states": ["a"], "request": f"{prefix}-{number}"}
        request = urllib.request.Request(f"{side.url}/tasks/claim", json.dumps(body).encode(), method="POST")
        at = time.perf_counter()
        urllib.request.urlopen(request, timeout=30).read()
        times.append((time.perf_counter() - at) * 1000)
    return times
