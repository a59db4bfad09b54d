"""A routine that holds the interpreter's lock in the host itself is still found, from outside (BH-022, A-22)."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from pathlib import Path

import anyio
import pytest
from supervisor.doubles import until
from supervisor.host.child import BODIES, grant, write_folder

from stateous_supervisor.agent.host_process import ProcessHost, ProcessHosts
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.stalls import Stalls
from stateous_supervisor.link.frames import Pulse, Run

HOG = """
import re

def catastrophic():
    return re.match(r"(a+)+$", "a" * {length} + "b")

@on_state(states.testing)
{kind} hog(ctx):
    catastrophic()
    return events.passed(Result(passed=1))
"""


def length_for(seconds: float) -> int:
    """How long the text must be for the expression to take about that long here."""
    took = []
    for _ in range(9):
        began_at = time.perf_counter()
        re.match(r"(a+)+$", "a" * 20 + "b")
        took.append(time.perf_counter() - began_at)
    return 20 + math.ceil(math.log2(seconds / min(took)))


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_line_that_holds_the_interpreter_is_named_within_two_seconds(tmp_path: Path, kind: str) -> None:
    bodies = BODIES.split("@on_state(states.testing)")[0]
    folder = write_folder(
        tmp_path, {"bodies.py": bodies, "hog.py": HOG.format(kind=kind, length=length_for(6.0))}
    )
    told: list[tuple[str, dict[str, object]]] = []
    printed: list[str] = []
    hosts = ProcessHosts(
        sys.executable, folder, printed=lambda _, line: printed.append(line), environment=dict(os.environ)
    )

    async def main() -> None:
        with anyio.fail_after(40):
            async with hosts.open(1) as host:
                await hog(host)

    async def hog(host: ProcessHost) -> None:
        log = Log(lambda _: None)
        log.tell = lambda event, /, **keys: told.append((event, keys))  # type: ignore[method-assign]
        stalls = Stalls(
            host,
            log,
            running=lambda _: [(1, 1)],
            names=lambda key: {"task": key[0]},
            changed=lambda: None,
            silent=lambda _: None,
        )
        began = anyio.Event()

        async def read() -> None:
            while True:
                for message in await host.receive():
                    if isinstance(message, Pulse):
                        stalls.take(message, anyio.current_time())
                        began.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stalls.watch, lambda: True)
            tasks.start_soon(read)
            await began.wait()
            host.send([Run(grant=grant(1, "testing"), lease_s=60.0)])
            began_at = anyio.current_time()
            await until(lambda: told, 10)
            assert anyio.current_time() - began_at < 3.0
            tasks.cancel_scope.cancel()

    anyio.run(main)
    blocked = told[0][1]
    lines = (folder / "hog.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "re.match" in text)
    assert blocked["place"] == f"hog.py:{line} (catastrophic)"
    assert (blocked["what"], blocked["task"]) == ("host", 1)
    assert not [text for text in printed if "Current thread" in text or "hog.py" in text]
