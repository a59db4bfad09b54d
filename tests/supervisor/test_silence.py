"""A host that does not answer keeps nobody's timeout and no other work waiting, on a jumping clock (A-20, A-22, A-30)."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
import trio
from msgspec.structs import replace
from supervisor.doubles import (
    DONE,
    Agent,
    ScriptedHost,
    ScriptedHosts,
    World,
    completed,
    held,
    kinds,
    simulate,
    stay,
    text_of,
    until,
)
from trio.testing import MockClock

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.assignment import Assignment, Identity
from stateous_supervisor.agent.overview import headline
from stateous_supervisor.agent.silence import HUNG_MAX, HUNG_S, OVERDUE_S, USELESS_S, Fate, fate, overdue
from stateous_supervisor.link.frames import Confinement, Noted, Outcome, Pulse, RoutineFacts, Run

FINE = Pulse(loop_lag_s=0.0)
LATE = Pulse(loop_lag_s=HUNG_S, stack="a.py:1 (a)")
SENT_AT = 100.0
ASSIGNMENT = Assignment(
    task=1,
    attempt=2,
    state="coding",
    token="t",
    identity=Identity("box", "i"),
    claimed_at=SENT_AT - 1.0,
    trusted_until=SENT_AT + 60.0,
    host=1,
    sent_at=SENT_AT,
    timeout_s=5.0,
)
FACTS = RoutineFacts(state="coding", file="a.py", line=1, name="coding", is_async=False)


@pytest.mark.parametrize(
    ("silent_s", "over", "more", "expected"),
    [
        (USELESS_S, True, {}, Fate.END),
        (USELESS_S - 0.1, True, {}, Fate.WAIT),
        (USELESS_S, False, {}, Fate.WAIT),
        (HUNG_S, False, {}, Fate.REPLACE),
        (HUNG_S - 0.1, False, {}, Fate.WAIT),
        (HUNG_S, True, {}, Fate.END),
        (HUNG_S, False, {"can_replace": False}, Fate.WAIT),
        (HUNG_S, False, {"hung": HUNG_MAX - 1}, Fate.REPLACE),
        (HUNG_S, False, {"hung": HUNG_MAX}, Fate.WAIT),
        (HUNG_S, True, {"hung": HUNG_MAX, "can_replace": False}, Fate.END),
    ],
)
def test_what_becomes_of_a_silent_host(
    silent_s: float, over: bool, more: dict[str, Any], expected: Fate
) -> None:
    facts = {"can_end": over, "can_replace": True, "hung": 0, **more}
    assert fate(silent_s, **facts) is expected


def due(assignment: Assignment, facts: RoutineFacts, *, heard_at: float, **confinement: Any) -> float | None:
    """Return how long after it was sent an attempt is settled by the agent; None for not within an hour."""
    bounds = {"coding": Confinement(**confinement)}
    for tenths in range(36_000):
        now = SENT_AT + tenths / 10
        if overdue([assignment], [facts], bounds, heard_at=heard_at, now=now):
            return now - SENT_AT
    return None


@pytest.mark.parametrize(
    ("timeout_s", "facts", "confinement", "expected"),
    [
        (5.0, FACTS, {}, 5.0 + OVERDUE_S),
        (None, FACTS, {}, None),
        (None, replace(FACTS, timeout_s=7.0), {}, 7.0 + OVERDUE_S),
        (5.0, replace(FACTS, timeout_s=7.0), {}, 5.0 + OVERDUE_S),
        (5.0, replace(FACTS, isolation="process"), {"grace_s": 4.0}, 9.0 + OVERDUE_S),
        (5.0, FACTS, {"isolation": "process", "grace_s": 4.0}, 9.0 + OVERDUE_S),
        (5.0, replace(FACTS, isolation="process"), {"isolation": "thread"}, 5.0 + OVERDUE_S),
        (None, replace(FACTS, state="testing", timeout_s=7.0), {}, None),
    ],
    ids=[
        "configured",
        "none",
        "its own",
        "configured first",
        "isolated",
        "confined",
        "in a thread",
        "another",
    ],
)
def test_when_the_agent_keeps_a_timeout_a_20(
    timeout_s: float | None, facts: RoutineFacts, confinement: dict[str, Any], expected: float | None
) -> None:
    assignment = replace(ASSIGNMENT, timeout_s=timeout_s)
    assert due(assignment, facts, heard_at=SENT_AT, **confinement) == expected


def test_a_host_that_speaks_keeps_timeouts_itself_a_20() -> None:
    """What it said last may be that it stops the routine; it has its time for that."""
    assert due(ASSIGNMENT, FACTS, heard_at=SENT_AT + 60.0) == 60.0 + OVERDUE_S


def test_the_timeout_of_another_version_does_not_count() -> None:
    assignment = replace(ASSIGNMENT, timeout_s=None, version=2)
    assert due(assignment, replace(FACTS, timeout_s=7.0), heard_at=SENT_AT) is None
    assert due(assignment, replace(FACTS, timeout_s=7.0, versions=[1, 2]), heard_at=SENT_AT) is not None


# In an agent.


class Pulsing:
    """Hosts that pulse, except for those of the generations in `silent`, and say what they would have said later."""

    def __init__(self, *states: str) -> None:
        self.hosts = ScriptedHosts(dict.fromkeys(states, stay))
        self.hosts.facts["has_pulse"] = True
        self.silent: set[int] = set()
        self.late: set[int] = set()

    async def run(self) -> None:
        while True:
            for host in self.hosts.all:
                if host.generation not in self.silent:
                    host.say(LATE if host.generation in self.late else FINE)
            await anyio.sleep(0.5)

    async def begun(self, world: World, count: int) -> ScriptedHost:
        await until(lambda: held(world) == count)
        await anyio.sleep(1.0)
        return self.hosts.last


def grants(host: ScriptedHost) -> int:
    return sum(isinstance(frame, Run) for frame in host.heard)


def generations(agent: Agent) -> list[int]:
    return [host.generation for host in agent.supervisor.look().hosts]


def alone(agent: Agent) -> list[int]:
    return [host.generation for host in agent.supervisor.look().hosts if host.is_for_suspect]


def in_world(main: Any, *states: str) -> None:
    async def run(world: World) -> None:
        pulsing = Pulsing(*states)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pulsing.run)
            await main(world, pulsing)
            tasks.cancel_scope.cancel()

    simulate(run)


def test_a_timeout_is_kept_while_the_host_is_silent_and_what_it_says_later_is_dropped_a_20_a_31() -> None:
    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(1, path="sturdy")
        world.start_tokens(1, path="plain", prefix="long")

        async with world.agent(pulsing.hosts, timeouts={"sturdy": 5.0}):
            began_at = anyio.current_time()
            host = await pulsing.begun(world, 2)
            pulsing.silent.add(host.generation)
            await until(lambda: "task_failed" in kinds(world))
            assert 5.0 + OVERDUE_S <= anyio.current_time() - began_at < 5.0 + OVERDUE_S + 1.5
            text = text_of(world, "task_failed")
            assert "the routine ran longer than its timeout of 5 s, and its host does not answer" in text

            host.say(Noted(task=1, attempt=1, text="late"), Outcome(task=1, attempt=1, **DONE))
            pulsing.silent.clear()
            await anyio.sleep(0.2)
            assert completed(world) == 0
            assert "late" not in str(world.fake.tokens["t0"].history)
            assert "task_failed" not in kinds(world, "long0")
            assert len(pulsing.hosts.all) == 1

    in_world(main, "sturdy", "plain")


def test_another_host_takes_new_work_beside_one_that_is_silent_for_long_a_22() -> None:
    """It keeps what it has and, when it speaks again, finishes that and retires."""

    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(1)

        async with world.agent(pulsing.hosts) as agent:
            host = await pulsing.begun(world, 1)
            silent_at = anyio.current_time()
            pulsing.silent.add(host.generation)
            pulsing.hosts.routines["plain"] = lambda _: DONE
            await until(lambda: agent.supervisor.look().silent)
            world.start_tokens(3, prefix="late")
            await until(lambda: completed(world) == 3)

            assert HUNG_S - 1.0 < anyio.current_time() - silent_at < HUNG_S + 2.0
            assert [grants(each) for each in pulsing.hosts.all] == [1, 3]
            told = world.lines.of("host.hung")
            assert [(line["host"], line["what"], line["running"]) for line in told] == [(1, "host", 1)]
            assert "hosts silent for" in headline(agent.supervisor.look())
            assert generations(agent) == [1, 2]

            pulsing.silent.clear()
            host.say(Outcome(task=1, attempt=1, **DONE))
            await until(lambda: completed(world) == 4)
            await until(lambda: generations(agent) == [2])
            assert "task_failed" not in kinds(world)

    in_world(main, "plain")


def test_a_host_that_speaks_again_in_time_gets_what_waited_for_it_a_22() -> None:
    """What is granted while it is silent waits outside of it, and costs nobody a host."""

    async def main(world: World, pulsing: Pulsing) -> None:
        async with world.agent(pulsing.hosts) as agent:
            world.start_tokens(1)
            host = await pulsing.begun(world, 1)
            pulsing.silent.add(host.generation)
            await until(lambda: agent.supervisor.look().silent)
            world.start_tokens(2, prefix="late")
            await anyio.sleep(5.0)
            assert grants(host) == 1

            pulsing.hosts.routines["plain"] = lambda _: DONE
            pulsing.silent.clear()
            await until(lambda: completed(world) == 2)
            assert len(pulsing.hosts.all) == 1

    in_world(main, "plain")


def test_time_in_which_the_agent_stood_still_itself_is_no_silence_of_its_host_a_33() -> None:
    """A stopped box, or `--inline`: the host may have stood still as well, or what it said is not read yet."""

    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(1)

        async with world.agent(pulsing.hosts) as agent:
            host = await pulsing.begun(world, 1)
            pulsing.silent.add(host.generation)
            await anyio.sleep(1.0)
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, MockClock)
            clock.jump(HUNG_S + 10.0)
            await until(lambda: agent.supervisor.look().silent)
            assert agent.supervisor.look().hosts[0].silent_s < 5.0
            pulsing.silent.clear()
            await anyio.sleep(5.0)
            assert not world.lines.of("host.hung")

    in_world(main, "plain")


def test_a_host_whose_loop_hangs_for_long_is_passed_over_as_well_a_22() -> None:
    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(1)

        async with world.agent(pulsing.hosts) as agent:
            host = await pulsing.begun(world, 1)
            pulsing.late.add(host.generation)
            await anyio.sleep(1.0)
            pulsing.hosts.routines["plain"] = lambda _: DONE
            world.start_tokens(1, prefix="late")
            await until(lambda: completed(world) == 1, 5.0)

            assert [line["what"] for line in world.lines.of("host.hung")] == ["loop"]
            assert generations(agent) == [1, 2]

    in_world(main, "plain")


def test_a_silent_host_in_which_every_attempt_is_over_is_ended_by_force_a_30() -> None:
    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(1)

        async with world.agent(pulsing.hosts) as agent:
            host = await pulsing.begun(world, 1)
            await anyio.sleep(24.0)
            silent_at = anyio.current_time()
            pulsing.silent.add(host.generation)
            world.fake.tasks[1].status = "cancelled"  # the next heartbeat names it lost
            pulsing.hosts.routines["plain"] = lambda _: DONE
            await until(lambda: world.lines.of("lease.lost"), 10.0)
            world.start_tokens(1, prefix="late")
            await until(lambda: completed(world) == 1, 10.0)

            assert USELESS_S - 1.0 < anyio.current_time() - silent_at < USELESS_S + 2.0
            (ended,) = world.lines.of("host.ended")
            assert "did not answer for" in ended["reason"]
            assert agent.supervisor.look().tasks == []
            assert generations(agent) == [2]

    in_world(main, "plain")


def test_an_idle_host_that_is_silent_is_ended_and_one_that_runs_something_is_not_a_30() -> None:
    async def main(world: World, pulsing: Pulsing) -> None:
        async with world.agent(pulsing.hosts) as agent:
            await until(lambda: pulsing.hosts.all)
            await anyio.sleep(1.0)
            pulsing.silent.add(1)
            await until(lambda: generations(agent) == [2], USELESS_S + 1.0)

            world.start_tokens(1)
            await pulsing.begun(world, 1)
            pulsing.silent.add(2)
            await anyio.sleep(300.0)
            assert generations(agent) == [2, 3]
            assert len(world.lines.of("host.ended")) == 1
            assert held(world) == 1

    in_world(main, "plain")


def test_a_host_for_a_suspect_that_is_silent_ends_after_its_timeout_a_30() -> None:
    """Else eight of them would keep every other suspect waiting."""

    async def main(world: World, pulsing: Pulsing) -> None:
        world.start_tokens(2, path="sturdy")

        async with world.agent(pulsing.hosts, timeouts={"sturdy": 5.0}) as agent:
            host = await pulsing.begun(world, 2)
            host.die()
            await until(lambda: len(alone(agent)) == 2)
            await anyio.sleep(1.0)
            pulsing.silent.update(alone(agent))
            await until(lambda: all("task_failed" in kinds(world, token) for token in ("t0", "t1")), 10.0)
            await until(lambda: pulsing.silent.isdisjoint(generations(agent)), 10.0)

            reasons = [line["reason"] for line in world.lines.of("host.ended")]
            assert sum("did not answer for" in reason for reason in reasons) == 2

    in_world(main, "sturdy")


def test_hosts_that_hang_again_and_again_are_bounded_and_backed_off_a_23() -> None:
    async def main(world: World, pulsing: Pulsing) -> None:
        async with world.agent(pulsing.hosts, tasks=HUNG_MAX + 2) as agent:
            for number in range(HUNG_MAX + 1):
                world.start_tokens(1, prefix=f"hog{number}-")
                host = await pulsing.begun(world, number + 1)
                assert host.generation == number + 1
                pulsing.silent.add(host.generation)
                if number < HUNG_MAX:
                    await until(partial(has_started, pulsing, number + 2), 200.0)
            await anyio.sleep(200.0)

            assert len(pulsing.hosts.all) == HUNG_MAX + 1
            waits = [line["next_in_s"] for line in world.lines.of("host.hung")]
            assert len(waits) == HUNG_MAX
            assert waits[: cadence.DEATHS_AT_ONCE] == [0.0] * cadence.DEATHS_AT_ONCE

            pulsing.silent.discard(1)
            pulsing.hosts.all[0].say(Outcome(task=1, attempt=1, **DONE))
            await until(partial(has_started, pulsing, HUNG_MAX + 2), 200.0)
            assert len(generations(agent)) == HUNG_MAX + 1

    in_world(main, "plain")


def has_started(pulsing: Pulsing, count: int) -> bool:
    return len(pulsing.hosts.all) == count
