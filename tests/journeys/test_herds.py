"""A hundred real agents and a control plane that is away for five minutes: what it hears when it is back (BH-035).

Each agent is the program itself with its host, at an address of its own, by which the proxy in front knows it. Lease and
heartbeat are those that the control plane has by default, so nothing is scaled. The load before is the least that there
is: every agent holds one task and waits for another, so that three times as much is little as well.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM

import pytest
from control.databases import fresh
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1_800)]

AGENTS = 100
ENDING = range(0, AGENTS, 5)  # whose tasks end while nobody can be told
STARTING_MAX = 4
STEADY_S = 60.0
AWAY_S = 300.0
AFTER_S = 90.0
SPREAD_MIN_S = 10.0
P99_S = 5.0
PEAK = 3.0
WORKFLOW = """
stateous: 1
workflow: herd
context: Errand
states:
  hand: {emits: [made]}
  loop: {retries: 0, emits: [made]}
events: {made: {payload: Made}}
transitions:
  - {from: __start__, to: hand, when: "ctx['kind'] == 'hand'"}
  - {from: __start__, to: loop, otherwise: true}
  - {from: hand, on: made, to: __end__}
  - {from: loop, on: made, to: __end__}
schemas:
  Errand:
    type: object
    properties:
      kind: {type: string, default: loop}
      gate: {type: string, default: ""}
      fails: {type: integer, default: 0}
      size: {type: integer, default: 0}
      tries: {type: integer, default: 0}
  Made: {type: object, properties: {size: {type: integer}}, required: [size]}
"""
LOOP = """
import asyncio
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    while not is_open(ctx):
        await asyncio.sleep(0.5)
    wrote(ctx, "end")
    return events.made(Made(size=ctx["size"]))
"""


@dataclass
class Heard:
    """A request: when it came, whose it was, for what, and by how much its answer was later than it had to be."""

    at: float
    agent: str
    name: str
    late_s: float | None = None


@dataclass
class Door(FaultProxy):
    """A proxy that knows agents by the address that they ask, and keeps what passed."""

    passed: list[Heard] = field(default_factory=list)

    def between(self, begun_at: float, ended_at: float) -> list[Heard]:
        return sorted((h for h in list(self.passed) if begun_at <= h.at < ended_at), key=lambda h: h.at)

    def _upstream_answer(self, head: list[str], body: bytes) -> bytes:
        headers = dict(line.lower().split(": ", 1) for line in head[1:])
        heard = Heard(time.monotonic(), headers["host"], " ".join(head[0].split()[:2]))
        self.passed.append(heard)
        answer = super()._upstream_answer(head, body)
        wait_s = json.loads(body).get("wait", 0.0) if body else 0.0
        heard.late_s = max(0.0, time.monotonic() - heard.at - wait_s)
        return answer


def peak(heard: list[Heard]) -> int:
    """Return the most that came within any second."""
    times = [each.at for each in heard]
    return max(bisect_left(times, at + 1.0) - number for number, at in enumerate(times))


def herd_of(place: Path, door: Door, opened: ExitStack) -> list[AgentProgram]:
    """Start the agents, a few at a time, and wait until each has begun a task."""
    (place / "herd.yaml").write_text(WORKFLOW)
    folder = folders.make(place / "box", door.url, place / "herd.yaml", loop=LOOP, check="")
    with (folder / "stateous.yaml").open("a") as config:
        config.write("routines: {loop: {tasks: 1}}\n")
    herd: list[AgentProgram] = []
    for number in range(AGENTS):
        wait_for(lambda: len(folders.ledger(folder)) > len(herd) - STARTING_MAX, within_s=120, what="start")
        url = f"http://127.0.1.{number + 1}:{door.port}"
        options: list[str | Path] = ["--tasks", "2", "--state-dir", place / f"state-{number}"]
        herd.append(opened.enter_context(AgentProgram(folder, url, *options, name=f"box-{number}")))
    wait_for(lambda: len(folders.ledger(folder)) == AGENTS, within_s=120, what="task in each hand")
    return herd


def judge(steady: list[Heard], after: list[Heard], back_at: float) -> None:
    """Print the figures, and hold them to their bounds."""
    came: dict[str, float] = {}
    for each in after:
        came.setdefault(each.agent, each.at - back_at)
    late = sorted(each.late_s for each in after if each.late_s is not None)
    usual, most = len(steady) / STEADY_S, peak(after)
    by_name = Counter(each.name.split("/")[-1] for each in after if each.at < back_at + 45.0)
    print(
        f"steady: {usual:.1f} requests/s, at most {peak(steady)} in a second; "
        f"first requests {min(came.values()):.1f} to {max(came.values()):.1f} s after; "
        f"at most {most} requests in a second ({most / usual:.1f} times), {dict(by_name)} in 45 s; "
        f"answers p50 {late[len(late) // 2]:.3f} s, p99 {late[int(len(late) * 0.99)]:.3f} s, last {late[-1]:.3f} s"
    )
    assert len(came) == AGENTS
    assert max(came.values()) - min(came.values()) >= SPREAD_MIN_S
    assert late[int(len(late) * 0.99)] < P99_S
    assert most <= PEAK * usual


def test_a_hundred_agents_come_back_one_after_another(
    tmp_path: Path, postgres: str, migrated_template: str
) -> None:
    tokens = [f"held-{number}" for number in range(AGENTS)]
    gates = [tmp_path / f"gate-{number}" for number in range(AGENTS)]
    with ExitStack() as opened:
        (tmp_path / "herd.yaml").write_text(WORKFLOW)
        options = ["--database", opened.enter_context(fresh(postgres, migrated_template))]
        first = opened.enter_context(ControlPlaneProgram(tmp_path / "herd.yaml", *options))
        door = Door(first.url, address="0.0.0.0")
        opened.enter_context(door)
        with ControlPlaneClient(first.url) as person:
            for token, gate in zip(tokens, gates, strict=True):
                person.start(token, gate=str(gate))
        herd = herd_of(tmp_path, door, opened)

        time.sleep(STEADY_S / 2)
        begun_at = time.monotonic()
        time.sleep(STEADY_S)
        steady = door.between(begun_at, begun_at + STEADY_S)

        door.is_down = True
        first.kill()
        door.cut()
        time.sleep(AWAY_S / 2)
        for number in ENDING:
            gates[number].touch()
        time.sleep(AWAY_S / 2)
        at = first.url.removeprefix("http://")
        again = opened.enter_context(ControlPlaneProgram(tmp_path / "herd.yaml", *options, listen=at))
        back_at = time.monotonic()
        door.is_down = False
        time.sleep(AFTER_S)
        after = door.between(back_at, back_at + AFTER_S)

        with ControlPlaneClient(again.url) as person:
            for number in ENDING:
                assert person.token(tokens[number])["status"] == "completed"
            for gate in gates:
                gate.touch()
            for token in tokens:
                person.until(token, status="completed", within_s=120)
                assert person.kinds(token).count("task_claimed") == 1
        for agent in herd:
            assert agent.child.poll() is None
            assert "Traceback" not in agent.told
            agent.signal(SIGTERM)
        assert "Traceback" not in first.told + again.told
        assert [agent.ended(within_s=120) for agent in herd] == [0] * AGENTS

    for token in tokens:
        assert folders.phases(tmp_path / "box", token) == [(1, "begin"), (1, "end")]
    judge(steady, after, back_at)
