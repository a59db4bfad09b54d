"""An agent whose key is refused, or who is asked to come back later (A-15, A-51, BH-035, BH-036), on the jumping clock."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise, product
from typing import Any

import anyio
import pytest
from fakes import Fault as Misbehaviour
from stateous_contract.limits import HEARTBEAT_S, LEASE_S
from supervisor.doubles import (
    BASELINE,
    DONE,
    EXTENDED,
    World,
    completed,
    held,
    lasting,
    read_all,
    simulate,
    stay,
    until,
)

from stateous_supervisor.agent import cadence
from stateous_supervisor.agent.overview import headline

FORBIDDEN = json.dumps({"error": "not with this key", "code": "forbidden"}).encode()


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
            door.status, door.body = status, FORBIDDEN
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


@pytest.mark.parametrize("features", [("wait", "batch", "release"), ()], ids=["extended", "baseline"])
def test_a_proxy_that_forbids_one_message_stops_nothing_else_a_37(features: tuple[str, ...]) -> None:
    """A 403 without a code is somebody's word on what was sent, not on the key: only that attempt waits."""

    async def main(world: World) -> None:
        world.start_tokens(4)
        is_strict = True
        ask = world.app

        async def proxy(scope: Any, receive: Any, send: Any) -> None:
            body, is_more = b"", scope["path"].startswith("/tasks/")
            while is_more:
                message = await receive()
                body, is_more = body + message["body"], message.get("more_body", False)
            if is_strict and b"DROP TABLE" in body:
                await send(
                    {
                        "type": "http.response.start",
                        "status": 403,
                        "headers": [(b"content-type", b"text/html")],
                    }
                )
                await send({"type": "http.response.body", "body": b"<h1>Blocked</h1>"})
                return
            told = [{"type": "http.request", "body": body}]

            async def again() -> Any:
                return told.pop() if told else await receive()

            await ask(scope, again if scope["path"].startswith("/tasks/") else receive, send)

        world.app = proxy  # type: ignore[method-assign]

        async def talk(grant: Any) -> Any:
            await anyio.sleep(5.0)
            is_odd = grant.token == "t0"
            return {"outcome": "failed", "error": "DROP TABLE students"} if is_odd else DONE

        async with world.agent({"plain": talk}, tasks=2):
            await until(lambda: completed(world) == 3, 200.0)
            await anyio.sleep(400.0)
            assert held(world) == 1
            assert world.lines.of("key.refused") == []
            is_strict = False
            await until(lambda: held(world) == 0, 60.0)

            assert all(task.attempt == 1 for task in world.fake.tasks.values())
            assert world.lines.of("lease.lost") == []

    simulate(main, features=features)


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

THEIRS = "Tue, 01 Jan 2030 00:00:00 GMT"  # their clock is years ahead of ours
ASKED_S = {
    "7": 7.0,
    "Tue, 01 Jan 2030 00:00:07 GMT": 7.0,
    "0": 0.0,
    "-1": 0.0,
    "999999999": cadence.RETRY_AFTER_MAX_S,
    "soon": 0.0,
    None: 0.0,
}
ANSWERS = pytest.mark.parametrize(("status", "value"), list(product([429, 503], ASKED_S)))


@ANSWERS
@pytest.mark.parametrize(
    ("call", "features"),
    [
        ("POST /tasks/claim", EXTENDED),
        ("POST /tasks/messages", EXTENDED),
        (r"POST /tasks/\d+/report", BASELINE),
    ],
    ids=["claim", "messages", "report"],
)
def test_retry_after_is_respected_and_capped_and_no_outcome_is_lost_bh_035(
    call: str, features: tuple[str, ...], status: int, value: str | None
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        refusal = Misbehaviour(call, status=status, retry_after=value, date=THEIRS)
        world.fake.faults.append(refusal)
        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1, 200.0)

            names = [(heard.at, f"{heard.method} {heard.path}") for heard in world.fake.heard]
            refused, again = [at for at, name in names if re.match(call, name)][:2]
            assert ASKED_S[value] <= again - refused <= max(ASKED_S[value], 2 * cadence.BACKOFF_FIRST_S) + 0.1
            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main, features=features)


class Hasty(random.Random):
    """The luck of who would ask again as soon as it may."""

    def random(self) -> float:
        return 0.0


@ANSWERS
def test_a_heartbeat_is_not_earlier_than_asked_and_keeps_the_lease_bh_035(
    status: int, value: str | None
) -> None:
    """Who asks for more than the lease can bear gets half of what is left of it, each time."""
    least_s = min(ASKED_S[value], cadence.TRUST * LEASE_S / 10)

    async def main(world: World) -> None:
        world.start_tokens(1)
        async with world.agent({"plain": stay}) as agent:
            agent.supervisor._heartbeats._luck = Hasty()
            await until(lambda: held(world) == 1)
            world.fake.faults.append(
                Misbehaviour("POST /tasks/heartbeat", times=3, status=status, retry_after=value, date=THEIRS)
            )
            await anyio.sleep(130.0)

            times = [heard.at for heard in world.heard("/tasks/heartbeat")]
            assert all(after - before >= max(1.0, least_s) for before, after in pairwise(times[:4]))
            assert max(after - before for before, after in pairwise(times)) <= HEARTBEAT_S + 0.1
            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main)
