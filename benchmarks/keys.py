"""What keys cost: two control planes of one build on one PostgreSQL, one without keys and one with, asked in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection

from machine import Bench, Process, bench, spread
from measures import Place
from sides import Ours, our_bin

ROUNDS = 12
READS = 200
TASKS = 25


@dataclass
class Asked:
    """A control plane that runs, one connection to it, and what each round took: requests a second, CPU a request."""

    side: Ours
    process: Process
    headers: dict[str, str]
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._connection = HTTPConnection("127.0.0.1", self.side.port)

    def send(self, method: str, path: str, body: object = None) -> bytes:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, self.headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status < 300, (answer.status, content)
        return content

    def reads(self, _round: int) -> int:
        for _ in range(READS):
            self.send("GET", "/tokens/t0")
        return READS

    def tasks(self, number: int) -> int:
        for each in range(TASKS):
            self.send("POST", "/tokens", {"token": f"k{number}-{each}"})
            holder = {"supervisor": "bench", "instance": "i"}
            asked = {**holder, "states": ["a"], "request": f"r{number}-{each}"}
            grant = json.loads(self.send("POST", "/tasks/claim", asked))
            done = {**holder, "kind": "event", "event": "done", "attempt": grant["attempt"]}
            self.send("POST", f"/tasks/{grant['task']}/report", done)
        return TASKS * 3

    def measure(self, what: str, number: int) -> None:
        cpu_s, at = self.process.cpu_s(), time.perf_counter()
        count = self.reads(number) if what == "reads" else self.tasks(number)
        self.rates.setdefault(what, []).append(count / (time.perf_counter() - at))
        self.cpu_us.setdefault(what, []).append((self.process.cpu_s() - cpu_s) * 1e6 / count)


def keys(place: Place) -> None:
    """Requests a second over one connection, in turn, as a ratio of each pair; and CPU of the control plane."""
    with bench(place.folder) as running:
        without, keyed = _serve(place, running, "without"), _serve(place, running, "with")
        for each in (without, keyed):
            each.send("POST", "/tokens", {"token": "t0"})
            each.send("POST", "/tasks/claim", {"supervisor": "other", "states": ["a"]})
        for number in range(ROUNDS + 1):
            for what in ("reads", "tasks"):
                for each in (without, keyed) if number % 2 else (keyed, without):
                    each.measure(what, number)
    for what, words in (
        ("reads", "reads of a token"),
        ("tasks", "starts, claims and reports, one at a time"),
    ):
        pairs = zip(keyed.rates[what][1:], without.rates[what][1:], strict=True)
        cpu = [statistics.mean(each.cpu_us[what][1:]) for each in (without, keyed)]
        place.add(
            test="keys",
            what=f"{words} a second with keys, as a multiple of without",
            bound="none set",
            measured=f"{statistics.median([a / b for a, b in pairs]):.2f} "
            f"({spread(keyed.rates[what][1:], 0)}, {spread(without.rates[what][1:], 0)}; "
            f"µs of CPU each: {cpu[1]:.0f}, {cpu[0]:.0f})",
        )


def _serve(place: Place, running: Bench, name: str) -> Asked:
    side = place.make(Ours, f"ours-keys-{name}", our_bin())
    assert isinstance(side, Ours)
    process = side.serve(running)
    if name == "without":
        return Asked(side, process, {})
    made = subprocess.run(
        [side.bin / "stateous-control", "key", "create", "bench", "--role", "admin"],
        env={**os.environ, "STATEOUS_DATABASE_URL": side.dsn},
        capture_output=True,
        text=True,
        check=True,
    )
    key = made.stdout.split()[0]
    _wait_until_asked_for(side)
    return Asked(side, process, {"Authorization": f"Bearer {key}"})


def _wait_until_asked_for(side: Ours) -> None:
    """Keys that are made while a control plane runs are asked for within two seconds."""
    connection = HTTPConnection("127.0.0.1", side.port)
    for _ in range(200):
        connection.request("GET", "/tokens")
        answer = connection.getresponse()
        answer.read()
        if answer.status == 401:
            return
        time.sleep(0.05)
    raise AssertionError("no key is asked for")
