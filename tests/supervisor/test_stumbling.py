"""A message that makes every request that it is in fail, among those of other tasks (A-37)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes import Fault
from supervisor.doubles import DONE, World, completed, simulate, until


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 502}, {"closes": True}, {"delay_s": 60.0}], ids=str
)
def test_a_message_that_fails_every_request_it_is_in_holds_up_no_other_task_a_37(
    fault: dict[str, Any],
) -> None:
    """Whatever comes after it was found goes out at once, also while a request with it is out."""

    async def main(world: World) -> None:
        world.start_tokens(40)
        poison = [b'"task":7,']
        real = world.fake.__call__

        async def stumbling(scope: Any, receive: Any, send: Any) -> None:
            request = await receive()
            if scope["path"] == "/tasks/messages" and any(text in request["body"] for text in poison):
                world.fake.faults.insert(0, Fault("POST /tasks/messages", **fault))

            first = [request]

            async def again() -> Any:
                return first.pop() if first else await receive()

            await real(scope, again, send)

        world.fake.__class__ = type(
            "Stumbling", (type(world.fake),), {"__call__": lambda _, *a: stumbling(*a)}
        )
        async with world.agent({"plain": lambda _: DONE}, tasks=40):
            await until(lambda: completed(world) == 39, 120.0)
            world.start_tokens(4, prefix="late")
            began = anyio.current_time()
            await until(lambda: completed(world) == 43, 60.0)
            took_s = anyio.current_time() - began

            poison.clear()
            await until(lambda: completed(world) == 44, 120.0)

        assert took_s < 2.0
        assert all(task.attempt == 1 for task in world.fake.tasks.values())

    simulate(main)
