"""pgtask: as `dbos_steps.py`."""

import asyncio
import os
import sys
import time

from pgtask import Client, TaskRegistry, Worker

url, workflows, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tasks = TaskRegistry(queue_name="bench")
left = workflows
done = asyncio.Event()


async def one() -> int:
    return 1


@tasks.task("steps")
async def steps(task, given: dict) -> dict:
    global left  # noqa: PLW0603 the count of one script
    marks = [time.monotonic_ns()]
    for number in range(count):
        await task.step("s", one, occurrence=number)
        marks.append(time.monotonic_ns())
    print("STEPS", given["i"], *marks, flush=True)
    left -= 1
    if not left:
        done.set()
    return {}


async def main() -> None:
    client = await Client.connect(url)
    await client.migrate()
    for number in range(workflows):
        await client.enqueue(steps.request({"i": number}))
    worker = asyncio.create_task(Worker(url, tasks, concurrency=workflows).run())
    await done.wait()
    worker.cancel()


asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # its native part may break at the interpreter's end
