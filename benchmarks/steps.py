"""What durable calls cost: steps a second, the way from an answer to the routine's next line, the thousandth step.

A routine writes its marks itself; peers that are installed (`durable_peers.py`) do the same work on the same server.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
import urllib.request

import durable_peers
from machine import bench, spread, wait_until
from measures import Place
from sides import Ours, database, our_bin

STEPS = 100
MANY = 32
RESUMES = 40
ROUTINE = """import sys, time
sys.path.insert(0, {here!r})
from meter import Meter
from stateous import on_state
from contract import events, states

meter = Meter()


@on_state(states.a)
async def a(ctx):
    if ctx.token.startswith("ask"):
        await ctx.ask("go", ttl="1h")
        meter.write(f"RUN {{ctx.token}} {{time.monotonic_ns()}}")
        return events.done()
    count = 1_000 if ctx.token.startswith("long") else 100
    marks = [time.monotonic_ns()]
    for number in range(count):
        await ctx.step(f"s{{number}}", lambda: 1)
        marks.append(time.monotonic_ns())
    meter.write(f"STEPS {{ctx.token}} " + " ".join(map(str, marks)))
    return events.done()
"""


class Durable(Ours):
    """Ours, with a routine of steps."""

    routine = ROUTINE

    def start(self, token: str) -> None:
        self._post("/tokens", {"token": token})

    def answer(self, question: dict) -> int:
        """Answer a question, and return when the answer was taken."""
        told = {"answer": "go", "expected_generation": question["generation"], "actor": "bench"}
        self._post(f"/questions/{question['question']}/answer", told)
        return time.monotonic_ns()

    def questions(self) -> list[dict]:
        with urllib.request.urlopen(f"{self.url}/questions", timeout=10) as answered:
            return json.load(answered)["entries"]

    def ran_at(self, token: str) -> int | None:
        return next((int(m[2]) for m in self.marks() if m[0] == "RUN" and m[1] == token), None)

    def _post(self, path: str, body: dict) -> None:
        urllib.request.urlopen(f"{self.url}{path}", json.dumps(body).encode(), timeout=30).read()

    def runs(self, prefix: str) -> list[list[int]]:
        """Return the marks of the routines of these tokens: before the first step, and after each."""
        return [
            [int(at) for at in m[2:]] for m in self.marks() if m[0] == "STEPS" and m[1].startswith(prefix)
        ]


def steps(place: Place, runs: int) -> None:
    """Steps a second of one routine and of many side by side, the thousandth step, and the way back from an answer."""
    alone: list[float] = []
    together: list[float] = []
    theirs: dict[str, list[tuple[float, float]]] = {name: [] for name in durable_peers.find()}
    with bench(place.folder) as running:
        side = place.make(Durable, "ours-steps", our_bin())
        side.serve(running)
        side.supervise(running, 2 * MANY, {})
        _run(side, "warm", 2)
        for number in range(runs):
            alone.append(rate(_run(side, f"alone{number}-", 1)))
            together.append(rate(_run(side, f"many{number}-", MANY)))
            place.add(test="steps", run=number, alone=round(alone[-1]), together=round(together[-1]))
            for name, rates in theirs.items():
                rates.append(_peer(place, name, number))
                place.add(
                    test="steps",
                    run=number,
                    peer=name,
                    alone=round(rates[-1][0]),
                    together=round(rates[-1][1]),
                )
        _tell(place, "steps a second in one routine", "more than DBOS", spread(alone, 0))
        what = f"steps a second, {MANY} routines side by side"
        _tell(place, what, "more than DBOS", spread(together, 0))
        for name, rates in theirs.items():
            one, many = zip(*rates, strict=True)
            measured = f"{spread(list(one), 0)} in one, {spread(list(many), 0)} over {MANY}"
            _tell(place, f"the same, {name}", "none set", measured)
        grown = [growth(marks) for marks in _run(side, "long", 3)]
        _tell(place, "step 1,000 as a multiple of step 1", "at most 1.1", spread(grown, 2))
        waits = _resumes(side, RESUMES)
    what = "ms from an answer to the routine's next line"
    _tell(place, what, "at most 20 at the median", f"{spread(waits)} of {RESUMES}")


def _peer(place: Place, name: str, run: int) -> tuple[float, float]:
    """Return the rates of a peer: one workflow, and many side by side."""
    counts = (1, MANY)
    bases = [database(place.dsn, f"{name}_{run}_{count}") for count in counts]
    one, many = (
        rate(durable_peers.run(name, base, count, STEPS)) for base, count in zip(bases, counts, strict=True)
    )
    return one, many


def _tell(place: Place, what: str, bound: str, measured: str) -> None:
    place.add(test="steps", what=what, bound=bound, measured=measured)


def _run(side: Durable, prefix: str, count: int) -> list[list[int]]:
    for number in range(count):
        side.start(f"{prefix}{number}")
    wait_until(f"the routines {prefix}…", lambda: len(side.runs(prefix)) == count, 240)
    return side.runs(prefix)


def rate(runs: list[list[int]]) -> float:
    """Return steps a second of routines that ran side by side."""
    first, last = min(marks[0] for marks in runs), max(marks[-1] for marks in runs)
    return sum(len(marks) - 1 for marks in runs) / ((last - first) / 1e9)


def growth(marks: list[int]) -> float:
    """Return the cost of the last hundred steps as a multiple of that of the second hundred, each at its median."""
    spans = [after - before for before, after in itertools.pairwise(marks)]
    return statistics.median(spans[-100:]) / statistics.median(spans[100:200])


def _resumes(side: Durable, count: int) -> list[float]:
    """Return the ms between the answer's 200 at the client and the routine's next line, one at a time."""
    waits = []
    gaps = random.Random(7)
    for number in range(count):
        side.start(f"ask{number}")
        wait_until("the question", side.questions, 30)
        time.sleep(gaps.uniform(0.1, 0.3))
        at = side.answer(side.questions()[0])
        wait_until("the next line", lambda token=f"ask{number}": side.ran_at(token), 30)
        waits.append(((side.ran_at(f"ask{number}") or 0) - at) / 1e6)
    return sorted(waits)
