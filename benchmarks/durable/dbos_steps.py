"""DBOS: trivial steps in workflows side by side. Called with a database, how many workflows, and how many steps."""

import sys
import threading
import time

from dbos import DBOS

url, workflows, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "WARNING"})


@DBOS.step(name="one")
async def one() -> int:
    return 1


@DBOS.workflow(name="steps")
async def steps(number: int) -> list[int]:
    marks = [time.monotonic_ns()]
    for _ in range(count):
        await one()
        marks.append(time.monotonic_ns())
    print("STEPS", number, *marks, flush=True)
    return []


DBOS.launch()
DBOS.start_workflow(steps, -1).get_result()
threads = [
    threading.Thread(target=lambda n=n: DBOS.start_workflow(steps, n).get_result()) for n in range(workflows)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
DBOS.destroy()
