"""An agent whose leases cannot be proven, whose box sleeps, whose control plane talks nonsense (A-32, A-33, A-53, BH-011)."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
from supervisor.doubles import ScriptedHosts, World, completed, held, lasting, read_all, simulate, stay, until

from stateous_supervisor.agent.cadence import Reading
from stateous_supervisor.link.frames import Cancel, RoutineFacts

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
