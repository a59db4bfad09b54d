"""absurd: as `dbos_steps.py`."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from absurd_sdk import AsyncAbsurd

url, workflows, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
app = AsyncAbsurd(url, queue_name="bench")
left = workflows
done = asyncio.Event()


async def one() -> int:
    return 1


@app.register_task("steps")
async def steps(given: dict, ctx) -> dict:
    global left  # noqa: PLW0603 the count of one script
    marks = [time.monotonic_ns()]
    for number in range(count):
        await ctx.step(f"s{number}", one)
        marks.append(time.monotonic_ns())
    print("STEPS", given["i"], *marks, flush=True)
    left -= 1
    if not left:
        done.set()
    return {}


async def main() -> None:
    subprocess.run([Path(sys.executable).parent / "absurdctl", "init", "-d", url], check=True)
    await app.create_queue("bench")
    for number in range(workflows):
        await app.spawn("steps", {"i": number})
    worker = asyncio.create_task(app.start_worker(concurrency=workflows))
    await done.wait()
    worker.cancel()


asyncio.run(main())
