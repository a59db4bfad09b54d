"""An agent whose key is refused, whose box sleeps, whose leases cannot be proven, whose control plane talks nonsense.

A-32, A-33, A-51, A-53, BH-035, BH-036, on the jumping clock.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import anyio
import pytest
from fakes import Fault as Misbehaviour
from supervisor.doubles import DONE, ScriptedHosts, World, completed, held, lasting, simulate, stay, until

from stateous_supervisor.agent.cadence import Reading
from stateous_supervisor.agent.overview import headline
from stateous_supervisor.link.frames import Cancel, RoutineFacts


class Door:
    """Lets requests through, or refuses the key; remembers when each came."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.status = 0
        self.body = b""
        self.asked: list[tuple[float, str]] = []
        self._app = world.app
        world.app = self.app  # type: ignore[method-assign]

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path.startswith("/tasks"):
            self.asked.append((anyio.current_time(), path))
            if self.status:
                await read_all(receive)
                headers = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": self.status, "headers": headers})
                await send({"type": "http.response.body", "body": self.body})
                return
        await self._app(scope, receive, send)

    def since(self, moment: float) -> list[tuple[float, str]]:
        return [(at, path) for at, path in self.asked if at >= moment]


async def read_all(receive: Any) -> None:
    while (await receive()).get("more_body"):
        pass


class Key:
    """What a key file holds."""

    def __init__(self, world: World) -> None:
        self.now = "first"
        client = world.client
        world.client = lambda **more: client(key=lambda: self.now, **more)  # type: ignore[method-assign]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_costs_one_request_in_ten_seconds_and_what_runs_goes_on_bh_036(status: int) -> None:
    async def main(world: World) -> None:
        world.start_tokens(5)
        door = Door(world)

        async with world.agent({"plain": stay}, tasks=8) as agent:
            await until(lambda: held(world) == 5)
            begun = anyio.current_time()
            door.status = status
            await anyio.sleep(600.0)

            asked = door.since(begun)
            later = [at for at, _ in asked[3:]]
            assert all(after - before >= 9.9 for before, after in pairwise(later))
            assert len(asked) <= 3 + 60
            assert {path for _, path in asked[3:]} == {"/tasks/heartbeat"}
            assert len(agent.roster.running) == 5
            assert agent.exit is None

    simulate(main)


def test_a_refused_key_is_said_in_log_status_and_the_one_line_a_51() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        door = Door(world)

        async with world.agent({"plain": stay}) as agent:
            await until(lambda: held(world) == 1)
            door.status = 401
            await anyio.sleep(190.0)
            seen = agent.supervisor.look()

            assert "the key is refused for" in headline(seen)
            assert not seen.is_claiming
            assert seen.refused_s is not None
            assert seen.refused_s > 60
            assert seen.away_s is None
            told = world.lines.of("key.refused")
            assert 2 <= len(told) <= 4
            assert "401" in told[0]["error"]
            assert world.lines.of("control_plane.unreachable") == []

            door.status = 0
            await until(lambda: world.lines.of("key.accepted"), 15.0)
            assert agent.supervisor.look().is_claiming
            assert "refused" not in headline(agent.supervisor.look())

    simulate(main)


def test_outcomes_wait_for_the_key_and_then_arrive_at_once_bh_036() -> None:
    """Within the lease nothing is lost: the tasks are still the agent's."""

    async def main(world: World) -> None:
        world.start_tokens(3)
        door = Door(world)

        async with world.agent({"plain": lasting(20.0)}, tasks=3):
            await until(lambda: held(world) == 3)
            door.status = 401
            await anyio.sleep(60.0)
            assert completed(world) == 0
            door.status = 0
            await until(lambda: completed(world) == 3, 11.0)

            assert [task.attempt for task in world.fake.tasks.values()] == [1, 1, 1]

    simulate(main)


def test_a_key_that_changed_is_tried_at_once_a_51() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        door, key = Door(world), Key(world)

        async with world.agent({"plain": stay}):
            await until(lambda: held(world) == 1)
            door.status = 401
            await until(lambda: world.lines.of("key.refused"), 40.0)
            await anyio.sleep(1.5)
            key.now = "second"
            changed = anyio.current_time()
            await until(lambda: door.since(changed), 5.0)

            assert anyio.current_time() - changed <= 1.1
            assert door.since(changed)[0][1] == "/tasks/heartbeat"

    simulate(main)


def test_with_nothing_held_claims_back_off_to_minutes_and_a_new_key_ends_that_a_51() -> None:
    async def main(world: World) -> None:
        door, key = Door(world), Key(world)

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: door.asked)
            door.status = 401
            begun = anyio.current_time()
            await anyio.sleep(3600.0)

            times = [at for at, _ in door.since(begun)]
            gaps = [after - before for before, after in pairwise(times)]
            assert all(gap >= 9.9 for gap in gaps)
            assert all(150.0 <= gap <= 330.0 for gap in gaps[5:])
            world.start_tokens(1)
            door.status = 0
            key.now = "second"
            await until(lambda: completed(world) == 1, 3.0)

    simulate(main)


def test_a_state_that_the_key_may_not_serve_stops_no_other_a_15() -> None:
    """BH-036: 403 for one state is a refusal of that state, not of the key."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        door = Door(world)
        refusal = json.dumps({"error": "not that one", "code": "state_not_allowed"}).encode()
        ask = door._app

        async def some(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/tasks/claim":
                message = await receive()
                if "sturdy" in json.loads(message["body"])["states"]:
                    await read_all(receive)
                    headers = [(b"content-type", b"application/json")]
                    await send({"type": "http.response.start", "status": 403, "headers": headers})
                    await send({"type": "http.response.body", "body": refusal})
                    return

                told, heard = [message], receive

                async def again() -> Any:
                    return told.pop() if told else await heard()

                receive = again
            await ask(scope, receive, send)

        door._app = some
        async with world.agent({"plain": lambda _: DONE, "sturdy": stay}):
            await until(lambda: completed(world) == 1, 60.0)

            assert world.lines.of("claim.refused")[0]["states"] == ["sturdy"]
            assert world.lines.of("key.refused") == []

    simulate(main)


def test_a_stop_with_a_refused_key_ends_and_keeps_the_outcomes_a_51() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        door = Door(world)

        async with world.agent({"plain": lasting(5.0)}) as agent:
            await until(lambda: held(world) == 1)
            door.status = 401
            await anyio.sleep(60.0)
            agent.stop.ask("test")
            with anyio.fail_after(60.0):
                await agent.over.wait()

            assert agent.exit == 0
            assert world.lines.of("supervisor.stopped")[0]["kept"] == 1

    simulate(main)


# Retry-After.


@pytest.mark.parametrize(
    ("status", "value", "at_least_s", "at_most_s"),
    [
        (429, "7", 7, 40),
        (503, "7", 7, 40),
        (429, "999999999", 120, 160),
        (503, "0", 0, 40),
        (429, "-1", 0, 40),
        (503, "soon", 0, 40),
        (429, None, 0, 40),
    ],
)
@pytest.mark.parametrize("call", ["POST /tasks/claim", "POST /tasks/messages"])
def test_retry_after_is_respected_and_capped_bh_035(
    call: str, status: int, value: str | None, at_least_s: float, at_most_s: float
) -> None:
    async def main(world: World) -> None:
        path = call.partition(" ")[2]
        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: world.heard("/tasks/claim"))
            world.fake.faults.append(Misbehaviour(call, times=1, status=status, retry_after=value))
            seen = len(world.heard(path))
            world.start_tokens(1)
            await until(lambda: len(world.heard(path)) > seen + ("claim" in path), 200.0)
            refused_at = world.heard(path)[seen].at
            await until(lambda: completed(world) == 1, 400.0)
            times = [heard.at for heard in world.heard(path) if heard.at > refused_at]

            assert [task.attempt for task in world.fake.tasks.values()] == [1]
            if times:
                assert at_least_s <= times[0] - refused_at <= at_most_s

    simulate(main)


@pytest.mark.parametrize(("value", "at_least_s"), [("7", 7.0), ("999999999", 1.0), (None, 0.0)])
def test_a_heartbeat_is_not_earlier_than_asked_and_keeps_the_lease_bh_035(
    value: str | None, at_least_s: float
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        async with world.agent({"plain": stay}):
            await until(lambda: held(world) == 1)
            world.fake.faults.append(
                Misbehaviour("POST /tasks/heartbeat", times=3, status=429, retry_after=value)
            )
            await anyio.sleep(300.0)

            times = [heard.at for heard in world.heard("/tasks/heartbeat")][:4]
            assert all(after - before >= at_least_s for before, after in pairwise(times))
            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main)


# Fences.


def cancels(agent: Any) -> list[Cancel]:
    return [message for message in agent.hosts.last.heard if isinstance(message, Cancel)]


def test_a_fenced_routine_is_stopped_before_its_lease_can_end_a_32() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        stopped: list[float] = []

        async def routine(_: Any) -> Any:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.append(anyio.current_time())

        async with world.agent({"plain": routine}, fenced={"plain"}) as agent:
            await until(lambda: held(world) == 1)
            await until(lambda: world.heard("/tasks/heartbeat"))
            renewed_at = anyio.current_time()
            world.is_cut = True
            await until(lambda: stopped, 120.0)

            assert stopped[0] - renewed_at < 0.9 * 120.0
            assert stopped[0] - renewed_at > 60.0
            assert [cancel.cause for cancel in cancels(agent)] == ["fenced"]
            assert len(world.lines.of("lease.fenced")) == 1
            world.is_cut = False
            await until(lambda: "task_released" in [e["kind"] for e in world.fake.tokens["t0"].history], 60.0)
            await until(lambda: held(world) == 1, 60.0)
            assert next(iter(world.fake.tasks.values())).attempt == 2

    simulate(main)


def test_a_fenced_routine_whose_lease_is_renewed_in_time_goes_on_a_32() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        async with world.agent({"plain": stay}, fenced={"plain"}) as agent:
            await until(lambda: held(world) == 1)
            for _ in range(5):
                world.is_cut = True
                await anyio.sleep(55.0)
                world.is_cut = False
                await anyio.sleep(40.0)

            assert cancels(agent) == []
            assert len(agent.roster.running) == 1

    simulate(main)


@pytest.mark.parametrize("is_fenced", [False, True], ids=["no fence", "a fence that nothing can carry out"])
def test_without_a_fence_the_routine_goes_on_and_the_log_says_so_a_32(is_fenced: bool) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        thread = RoutineFacts(state="plain", file="a.py", line=1, name="plain", is_async=False)

        hosts = ScriptedHosts({"plain": stay})
        hosts.facts = {"routines": [thread]}
        async with world.agent(hosts, fenced={"plain"} if is_fenced else ()) as agent:
            await until(lambda: held(world) == 1)
            world.is_cut = True
            await anyio.sleep(200.0)

            assert cancels(agent) == []
            assert len(agent.roster.running) == 1
            assert len(world.lines.of("lease.doubted")) == 1
            told = [line["states"] for line in world.lines.of("fence.powerless")]
            assert told == ([["plain"]] if is_fenced else [])
            world.is_cut = False

    simulate(main)


# Clocks.


class Boot:
    """A clock that counts sleep, and one that does not."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def __call__(self) -> Reading:
        now = anyio.current_time()
        return Reading(boot_s=1_000.0 + now + self.slept_s, monotonic_s=now)


def test_after_a_suspend_the_agent_beats_at_once_on_new_connections_a_33() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        boot = Boot()

        async with world.agent({"plain": stay}) as agent:
            supervisor = agent.supervisor
            supervisor._vigil._clocks = boot
            await until(lambda: held(world) == 1)
            await anyio.sleep(5.5)
            claims = len(world.heard("/tasks/claim"))
            boot.slept_s = 60.0
            slept_at = anyio.current_time()
            await until(lambda: world.heard("/tasks/heartbeat"), 5.0)

            assert anyio.current_time() - slept_at <= 1.1
            assert world.lines.of("box.suspended")[0]["slept_s"] == 60.0
            await anyio.sleep(0.1)
            assert (
                len(world.heard("/tasks/claim")) == claims + 1
            )  # the one that waited is sent again, by its own id
            assert supervisor.look().tasks[0].lease_left_s > 100.0

    simulate(main)


def test_a_sleep_longer_than_the_lease_is_doubt_at_once_and_a_fence_stops_a_33() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        boot = Boot()

        async with world.agent({"plain": stay}, fenced={"plain"}) as agent:
            agent.supervisor._vigil._clocks = boot
            await until(lambda: held(world) == 1)
            await anyio.sleep(3.0)
            world.is_cut = True
            boot.slept_s = 130.0
            await until(lambda: world.lines.of("lease.fenced"), 5.0)

            assert [cancel.cause for cancel in cancels(agent)] == ["fenced"]
            world.is_cut = False

    simulate(main)


def test_a_wall_clock_that_jumps_changes_nothing_a_33(monkeypatch: pytest.MonkeyPatch) -> None:
    """BH-011: the wall clock goes an hour ahead and an hour back while tasks are held."""
    wall = time.time

    def run(jumps: list[float]) -> list[float]:
        times: list[float] = []

        async def main(world: World) -> None:
            world.start_tokens(1)
            async with world.agent({"plain": stay}) as agent:
                agent.supervisor._vigil._clocks = lambda: None
                for jump in jumps:
                    monkeypatch.setattr(time, "time", lambda by=jump: wall() + by)
                    await anyio.sleep(95.0)
                times.extend(heard.at for heard in world.heard("/tasks/heartbeat"))
                assert [task.attempt for task in world.fake.tasks.values()] == [1]

        simulate(main)
        return times

    assert run([0.0, 3600.0, -3600.0, 0.0]) == run([0.0, 0.0, 0.0, 0.0])


# Answers that are not those of a control plane.

NONSENSE: dict[str, tuple[int, bytes, bytes]] = {
    "deep": (200, b"application/json", b"[" * 200_000),
    "deep object": (200, b"application/json", b'{"lost":' * 50_000),
    "no json": (200, b"application/json", b"{"),
    "other json": (200, b"application/json", b'"lost"'),
    "wrong types": (200, b"application/json", b'{"lost":{"1":2},"tasks":7,"results":"x"}'),
    "no text": (200, b"application/json", b"\xff\xfe\x00"),
    "html": (200, b"text/html", b"<html>"),
    "large": (200, b"application/json", b'{"lost":[' + b"1," * 8_000_000 + b"1]}"),
    "empty": (200, b"application/json", b""),
    "teapot": (418, b"text/plain", b"no"),
    "infinite": (200, b"application/json", b'{"lost":[1e999]}'),
}


# An answer that is too large is left half read, which trio remarks on when httpx forgets it.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", NONSENSE)
def test_no_answer_ends_a_loop_or_a_routine_a_53(kind: str) -> None:
    status, content, body = NONSENSE[kind]

    async def main(world: World) -> None:
        world.start_tokens(1)
        app = world.app
        is_mad = False

        async def mad(scope: Any, receive: Any, send: Any) -> None:
            if not is_mad:
                await app(scope, receive, send)
                return
            await read_all(receive)
            headers = [(b"content-type", content)]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        world.app = mad  # type: ignore[method-assign]
        async with world.agent({"plain": lasting(40.0)}, tasks=2) as agent:
            await until(lambda: held(world) == 1)
            is_mad = True
            await anyio.sleep(70.0)
            assert agent.exit is None
            is_mad = False
            world.start_tokens(1, prefix="u")
            await until(lambda: completed(world) == 2, 90.0)

            assert world.lines.of("loop.failed") == []
            assert [task.attempt for task in world.fake.tasks.values()] == [1, 1]

    simulate(main)
