"""What durable calls cost: steps a second, the thousandth step, the way from an answer or a signal to the routine's
next line, and the CPU of a step and of a wait.

A routine writes its marks itself; peers that are installed (`durable_peers.py`) do the same work on the same server.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
import urllib.request
from collections.abc import Callable

import durable_peers
from machine import Process, bench, postgres_cpu_s, spread, wait_until
from measures import Place
from sides import Ours, database, our_bin

STEPS = 100
MANY = 32
RESUMES = 40
NAPS = 20
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
    if ctx.token.startswith("sig"):
        await ctx.wait_for_signal("go")
        meter.write(f"RUN {{ctx.token}} {{time.monotonic_ns()}}")
        return events.done()
    if ctx.token.startswith("nap"):
        for number in range(20):
            await ctx.sleep_for(f"n{{number}}", 0.05)
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

    def answer(self, token: str) -> int:
        """Answer the question of a token's task, and return when the answer was taken."""
        [question] = [each for each in self._entries("/questions") if each["token"] == token]
        told = {"answer": "go", "expected_generation": question["generation"], "actor": "bench"}
        self._post(f"/questions/{question['question']}/answer", told)
        return time.monotonic_ns()

    def signal(self, token: str) -> int:
        """Send the signal that a token's task waits for, and return when it was taken."""
        self._post(f"/tokens/{token}/signals/go", {})
        return time.monotonic_ns()

    def is_parked(self, token: str) -> bool:
        tasks = self._entries("/tasks?current_state=parked")
        return any(task["token"] == token for task in tasks)

    def _entries(self, path: str) -> list[dict]:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answered:
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
        processes = [side.serve(running), side.supervise(running, 2 * MANY, {})]
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
        for word, wake in (("ask", side.answer), ("sig", side.signal)):
            what = f"ms from {'an answer' if word == 'ask' else 'a signal'} to the routine's next line"
            waits = _resumes(side, word, wake, RESUMES)
            _tell(place, what, "at most 20 at the median", f"{spread(waits)} of {RESUMES}")
        _tell_cpu(place, side, processes)


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


def _resumes(side: Durable, word: str, wake: Callable[[str], int], count: int) -> list[float]:
    """Return the ms between the wake's 200 at the client and the routine's next line, one at a time."""
    waits = []
    gaps = random.Random(7)
    for number in range(count):
        token = f"{word}{number}"
        side.start(token)
        wait_until("the park", lambda token=token: side.is_parked(token), 30)
        time.sleep(gaps.uniform(0.1, 0.3))
        at = wake(token)
        wait_until("the next line", lambda token=token: side.ran_at(token), 30)
        waits.append(((side.ran_at(token) or 0) - at) / 1e6)
    return sorted(waits)


def _tell_cpu(place: Place, side: Durable, processes: list[Process]) -> None:
    """Tell the ms of CPU that a step costs, in one routine and in many, and a wait: a park, its end and the replay."""
    cpu = {
        "a step in one routine": _cpu_ms(place, processes, lambda: _run(side, "cpu-one", 1), STEPS),
        f"a step in {MANY}": _cpu_ms(place, processes, lambda: _run(side, "cpu-many", MANY), MANY * STEPS),
        f"a wait in {MANY}": _cpu_ms(place, processes, lambda: _nap(side), MANY * NAPS),
    }
    for what, spent in cpu.items():
        each = ", ".join(f"{name} {ms:.2f}" for name, ms in spent.items())
        _tell(place, f"ms of CPU of {what}", "none set", f"{sum(spent.values()):.2f} ({each})")


def _nap(side: Durable) -> None:
    for number in range(MANY):
        side.start(f"nap{number}")
    wait_until("the sleepers", lambda: all(side.ran_at(f"nap{number}") for number in range(MANY)), 240)


def _cpu_ms(
    place: Place, processes: list[Process], work: Callable[[], object], count: int
) -> dict[str, float]:
    before = _cpu_s(place, processes)
    work()
    after = _cpu_s(place, processes)
    return {name: (after[name] - before[name]) * 1_000 / count for name in before}


def _cpu_s(place: Place, processes: list[Process]) -> dict[str, float]:
    control, agent = processes
    return {
        "control plane": control.cpu_s(),
        "PostgreSQL": postgres_cpu_s(place.postgres),
        **agent.cpu_s_each(),
    }
