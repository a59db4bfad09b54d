"""How soon work goes on after something ended, and whether heartbeats keep their time: a real agent and control plane.

`PYTHONPATH=tests:contract python benchmarks/endings.py deaths|gaps [RUNS]` prints one JSON line a figure. Times come
from what routines write down and from the clock of a proxy between agent and control plane, never from what the agent
says of itself. Heartbeats are due each 2 s.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from faults import FaultProxy
from journeys import folders
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

HEARTBEAT_S = 2.0
TIMES = ["--lease", "30", "--heartbeat", f"{HEARTBEAT_S:g}", "--retry-delay", "0.1"]
RESTART_S = 1.0
HOLD_S = 60.0
LONG_S = 120.0

ROUTINES = """
import asyncio, re, time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote

@on_state(states.hand{isolation})
def hand(ctx):
    wrote(ctx, "begin", at=time.monotonic())
    if ctx["kind"] == "hog":
        re.match(r"(a+)+$", "a" * 60 + "b")
    while not is_open(ctx):
        time.sleep(0.02)
    return events.made(Made(size=0))

@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin", at=time.monotonic())
    if ctx["size"]:
        time.sleep(ctx["size"])
    while not is_open(ctx):
        await asyncio.sleep(1)
    return events.made(Made(size=0))
"""


def beats(proxy: FaultProxy) -> list[float]:
    """When each heartbeat came."""
    return [at for at, _, line, _ in list(proxy.heard) if line == "POST /tasks/heartbeat"]


@contextmanager
def stage(isolation: str = "") -> Iterator[tuple[Path, Path, str, ControlPlaneClient]]:
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        with (
            ControlPlaneProgram(folders.WORKFLOW, *TIMES, "--data", where / "data") as program,
            ControlPlaneClient(program.url) as plane,
        ):
            text = ROUTINES.format(isolation=isolation)
            folder = folders.make(where / "box", program.url, hand=text, loop='"""In hand."""')
            yield where, folder, program.url, plane


def begun(folder: Path, token: str, attempt: int = 1) -> dict[str, float]:
    def found() -> list[dict[str, float]]:
        lines = folders.ledger(folder)
        return [line for line in lines if (line["token"], line["attempt"]) == (token, attempt)]

    first: dict[str, float] = wait_for(found, within_s=LONG_S, what=f"attempt {attempt} of {token}")[0]
    return first


def say(figure: str, values: list[float], unit: str = "s") -> None:
    row = {"figure": figure, "median": round(statistics.median(values), 2), "unit": unit, "runs": len(values)}
    print(json.dumps(row | {"least": round(min(values), 2), "most": round(max(values), 2)}), flush=True)


def host_deaths(runs: int) -> None:
    took = []
    with stage() as (where, folder, url, plane), AgentProgram(folder, url):
        for run in range(runs):
            plane.start(f"t{run}", gate=str(where / "never"))
            host = int(begun(folder, f"t{run}")["pid"])
            at = time.monotonic()
            os.kill(host, signal.SIGKILL)
            took.append(begun(folder, f"t{run}", 2)["at"] - at)
            plane.cancel(f"t{run}")
    say("host death to the retry's first line", took)


def agent_deaths(runs: int) -> None:
    took = []
    with stage() as (where, folder, url, plane):
        for run in range(runs):
            plane.start(f"t{run}", gate=str(where / "never"))
            with AgentProgram(folder, url) as agent:
                begun(folder, f"t{run}")
                at = time.monotonic()
                agent.kill()
            time.sleep(RESTART_S)
            with AgentProgram(folder, url):
                took.append(begun(folder, f"t{run}", 2)["at"] - at)
                plane.cancel(f"t{run}")
    say(f"kill -9 of the agent, started again after {RESTART_S:g} s, to the retry's first line", took)


def stops(runs: int) -> None:
    took = []
    with (
        stage(', isolation="process"') as (where, folder, url, plane),
        FaultProxy(url) as proxy,
        AgentProgram(folder, proxy.url),
    ):
        for run in range(runs):
            plane.start(f"t{run}", gate=str(where / "never"))
            pid = int(begun(folder, f"t{run}")["pid"])
            plane.cancel(f"t{run}")
            at = time.monotonic()
            wait_for(
                lambda pid=pid: not Path(f"/proc/{pid}").exists(), within_s=20, what="end of the process"
            )
            took.append(time.monotonic() - max(beat for beat in beats(proxy) if beat >= at))
    say("an isolated `def` routine's process, from the heartbeat that brings its loss to its end", took)


def gaps(what: str, count: int, **context: object) -> None:
    with (
        stage() as (where, folder, url, plane),
        FaultProxy(url) as proxy,
        AgentProgram(folder, proxy.url, "--tasks", str(max(4, count))),
    ):
        for number in range(count):
            plane.start(f"t{number}", **{"gate": str(where / "gate"), **context})
        wait_for(lambda: len(folders.ledger(folder)) == count, within_s=LONG_S, what="all of them")
        began = len(beats(proxy))
        time.sleep(HOLD_S)
        came = beats(proxy)[began:]
        for number in range(count):
            plane.cancel(f"t{number}")
    spans = [(after - before) / HEARTBEAT_S for before, after in pairwise(came)]
    say(f"gap between heartbeats, {what}, as a multiple of H", spans, "H")


def main(part: str, runs: int) -> None:
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "cores": os.cpu_count()}), flush=True)
    if part == "deaths":
        host_deaths(runs)
        agent_deaths(runs)
        stops(runs)
    else:
        gaps("a host's loop blocked", 1, kind="loop", size=int(HOLD_S) + 30)
        gaps("a routine that holds the interpreter", 1, kind="hog")
        gaps("1,000 tasks held", 1_000, kind="loop")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)
