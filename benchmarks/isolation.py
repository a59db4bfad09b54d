"""What `isolation: process` costs over a thread, in one warm host: the time from the grant to its outcome.

`python benchmarks/isolation.py [COUNT]` prints one JSON line. The host is real; the agent is this program.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Raw

from stateous_supervisor.link.frames import LINK_PROTOCOL, Confinement, Frame, Hello, Loaded, Outcome, Run
from stateous_supervisor.link.stream import from_host, pack

ROUTINE = """
from stateous_supervisor import StateRef, on_state

@on_state(StateRef("noop", emits=()))
def noop(ctx):
    return None
"""


class Agent:
    """The agent's end of the link."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._unpacker = from_host()

    def send(self, message: Frame) -> None:
        self._sock.sendall(pack([message]))

    def wait(self, kind: type[Frame]) -> Frame:
        while True:
            found = [m for m in self._unpacker.feed(self._sock.recv(262_144)) if isinstance(m, kind)]
            if found:
                return found[0]


@contextmanager
def host(folder: Path) -> Iterator[Agent]:
    ours, theirs = socket.socketpair()
    command = [
        sys.executable,
        "-P",
        "-m",
        "stateous_supervisor.host",
        "--link",
        str(theirs.fileno()),
        str(folder),
    ]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=dict(os.environ))
    theirs.close()
    agent = Agent(ours)
    try:
        agent.send(Hello(protocol=LINK_PROTOCOL, sdk="benchmark"))
        agent.wait(Loaded)
        yield agent
    finally:
        ours.close()
        process.wait(10)


def times_ms(agent: Agent, isolation: str, count: int, first: int) -> list[float]:
    took = []
    for task in range(first, first + count):
        grant = {
            "task": task,
            "token": "t",
            "state": "noop",
            "visit": 1,
            "attempt": 1,
            "context": {},
            "memory": {},
        }
        run = Run(
            grant=Raw(json.dumps(grant).encode()), lease_s=60.0, confinement=Confinement(isolation=isolation)
        )
        began_at = time.perf_counter()
        agent.send(run)
        agent.wait(Outcome)
        took.append((time.perf_counter() - began_at) * 1_000)
    return took


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "noop.py").write_text(ROUTINE)
        with host(folder) as agent:
            first = times_ms(agent, "process", 1, 1)[0]
            thread = times_ms(agent, "thread", count, 1_000)
            process = times_ms(agent, "process", count, 1_000_000)
    middle = {"thread": statistics.median(thread), "process": statistics.median(process)}
    figures = {
        "first_isolated_ms": round(first, 1),
        **{f"{kind}_median_ms": round(value, 2) for kind, value in middle.items()},
        "process_p95_ms": round(sorted(process)[int(len(process) * 0.95)], 2),
        "cost_median_ms": round(middle["process"] - middle["thread"], 2),
        "count": count,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
