"""What the control plane can do nothing with: found by sending fewer, set aside, listed; the rest is delivered (A-40)."""

from __future__ import annotations

from typing import Any

import anyio
from fakes import Fault
from stateous_contract.messages import ClaimRequest
from supervisor.doubles import DONE, World, completed, held, simulate, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.outbox import Batch, Envelope


def test_a_request_that_is_refused_whole_is_sent_in_smaller_ones_and_loses_nothing_a_40() -> None:
    async def main(world: World) -> None:
        world.start_tokens(4)
        refused = b'{"code":"invalid_request","error":"one of these is not understood"}'
        ends = anyio.Event()

        async def together(_: Any) -> dict[str, str]:
            await ends.wait()
            world.fake.faults.append(Fault("POST /tasks/messages", times=1, status=400, body=refused))
            del world.fake.faults[1:]
            return DONE

        async with world.agent({"plain": together}, tasks=4):
            await until(lambda: held(world) == 4)
            ends.set()
            await until(lambda: completed(world) == 4)

            sizes = [str(heard.body).count("report") for heard in world.heard("/tasks/messages")]
            assert sizes[0] > sizes[1]
            assert not world.lines.of("report.refused")
            assert [task.attempt for task in world.fake.tasks.values()] == [1] * 4

    simulate(main)


def test_a_message_that_cannot_be_sent_does_not_hold_up_the_rest_a_40() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        old = Identity("box", "old")
        await ControlPlane(world.client()).claim(
            ClaimRequest(supervisor="box", instance="old", states=["plain"], request="r", max=1)
        )
        (task,) = world.fake.tasks
        done = b'{"task":%d,"attempt":1,"kind":"report","outcome":"event","event":"noted"}' % task
        bad = b'{"task":99,"attempt":1,"kind":"note","text":7}'
        left = [
            Envelope(1, task, 1, "plain", "t0", old, "report", done),
            Envelope(2, 99, 1, "plain", "gone", old, "note", bad),
        ]
        world.outbox.commit(Batch(messages=left))
        world.outbox.found = world.outbox.found._replace(messages=left)
        world.outbox.next_id = 3

        async with world.agent({"plain": lambda _: DONE}) as agent:
            await until(lambda: completed(world) == 1 and world.lines.of("outbox.set_aside"))
            await anyio.sleep(1.0)

            (told,) = world.lines.of("outbox.set_aside")
            assert told["record"].startswith("note of task 99 attempt 1")
            assert agent.supervisor.look().set_aside == [f"{told['record']}: {told['error']}"]
            rows = world.outbox._database.execute("SELECT record, error, body FROM aside").fetchall()
            assert rows == [(told["record"], told["error"], bad)]
            assert world.outbox._database.execute("SELECT count(*) FROM messages").fetchone() == (0,)

    simulate(main)
