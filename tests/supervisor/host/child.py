"""A tiny agent for the tests: starts a real host over a real socket pair and speaks frames to it.

Every wait has a limit, so that a host that says nothing fails a test instead of hanging it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
from msgspec import Raw

from stateous_supervisor.host.inline import InlineHost
from stateous_supervisor.link.frames import (
    LINK_PROTOCOL,
    Began,
    Cancel,
    Frame,
    Hello,
    Loaded,
    Logged,
    Outcome,
    Run,
    ToAgent,
)
from stateous_supervisor.link.stream import from_host, pack

F = TypeVar("F", bound=Frame)

WAIT_S = 15.0

CONTRACT = """
from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from stateous import Context, Occurrence, StateRef

__workflow__ = "sdlc"
__checksum__ = "sha256:00"


class Result(BaseModel):
    passed: int = Field(ge=0)
    score: float = 0.0


class Ticket(BaseModel):
    title: str


TicketContext = Context[Ticket]


class events:
    class coded(Occurrence[None]):
        name = "coded"

    class passed(Occurrence[Result]):
        name = "passed"

    class child:
        class done(Occurrence[None]):
            name = "done"


class states:
    coding = StateRef("coding", emits=(events.coded,))
    testing = StateRef("testing", emits=(events.passed,))
    other = StateRef("other", emits=(events.coded,))

    class child:
        first = StateRef("child/first", emits=(events.child.done,))
"""

HEAD = """
import asyncio, os, sys, threading, time
from stateous import on_state
from contract import Result, TicketContext, events, states
"""


# Routines whose body is in the grant: `coding` is `async def`, `other` is `def`, both return `coded`.
BODIES = """
import contract, textwrap

def compiled(kind, ctx):
    names = dict(globals())
    exec(f"{kind} body(ctx):\\n" + textwrap.indent(textwrap.dedent(ctx["body"]), "    "), names)
    return names["body"]

@on_state(states.coding)
async def coding(ctx):
    return await compiled("async def", ctx)(ctx)

@on_state(states.other)
def other(ctx):
    return compiled("def", ctx)(ctx)

@on_state(states.testing)
async def testing(ctx):
    return await compiled("async def", ctx)(ctx)
"""


def write_folder(folder: Path, files: dict[str, str], contract: str = CONTRACT) -> Path:
    """Write routine files, each below the usual imports, beside a contract."""
    folder.mkdir(exist_ok=True)
    (folder / "contract.py").write_text(contract)
    for name, text in files.items():
        (folder / name).write_text(HEAD + textwrap.dedent(text))
    return folder


def grant(task: int, state: str = "coding", **given: Any) -> Raw:
    """A grant of the wire, as its JSON text."""
    made = {"task": task, "token": f"T-{task}", "state": state, "visit": 1, "attempt": 1}
    made |= {"context": {"title": "a"}, "memory": {}, **given}
    return Raw(json.dumps(made).encode())


class Driver:
    """The agent's end of the link. `seen` holds every frame in the order in which it came."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seen: list[ToAgent] = []
        self.is_ended = False
        self._unpacker = from_host()

    def send(self, *frames: Frame) -> None:
        self.sock.sendall(pack(frames))

    def run(self, task: int, state: str = "coding", *, timeout_s: float | None = None, **given: Any) -> None:
        self.send(Run(grant=grant(task, state, **given), lease_s=120.0, timeout_s=timeout_s))

    def cancel(self, task: int, attempt: int = 1, cause: str = "cancelled") -> None:
        self.send(Cancel(task=task, attempt=attempt, cause=cause))

    def wait(self, kind: type[F], holds: Callable[[F], bool] = lambda _: True, wait_s: float = WAIT_S) -> F:
        """Return the first frame of `kind` for which `holds` is true, seen already or still to come."""
        until = time.monotonic() + wait_s
        looked_at = 0
        while True:
            for frame in self.seen[looked_at:]:
                if isinstance(frame, kind) and holds(frame):
                    return frame
            looked_at = len(self.seen)
            self._receive(until, f"no {kind.__name__}")

    def outcome(self, task: int, attempt: int = 1, wait_s: float = WAIT_S) -> Outcome:
        return self.wait(Outcome, lambda frame: (frame.task, frame.attempt) == (task, attempt), wait_s)

    def result(self, task: int, state: str = "coding", **given: Any) -> Outcome:
        """Run a routine and return its outcome."""
        self.run(task, state, **given)
        return self.outcome(task, given.get("attempt", 1))

    def body(self, body: str, task: int, state: str = "coding", **given: Any) -> Outcome:
        """Run a body of `BODIES` and return its outcome."""
        return self.result(task, state, context={"title": "a", "body": body}, **given)

    def began(self, task: int) -> Began:
        return self.wait(Began, lambda frame: frame.task == task)

    def line(self, text: str) -> Logged:
        return self.wait(Logged, lambda frame: text in frame.text)

    def loaded(self) -> Loaded:
        return self.wait(Loaded)

    def wait_end(self, wait_s: float = WAIT_S) -> None:
        """Read until the host closes the link."""
        until = time.monotonic() + wait_s
        while not self.is_ended:
            self._receive(until, "the link did not end", may_end=True)

    def of_kind(self, kind: type[F]) -> list[F]:
        return [frame for frame in self.seen if isinstance(frame, kind)]

    def _receive(self, until: float, what: str, *, may_end: bool = False) -> None:
        ready, _, _ = select.select([self.sock], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise AssertionError(
                f"{what} within the time; seen: {[f for f in self.seen if not is_pulse(f)][-20:]}"
            )
        received = self.sock.recv(1_048_576)
        if not received:
            self.is_ended = True
            if not may_end:
                raise AssertionError(f"{what} before the link ended; seen: {self.seen[-20:]}")
        self.seen += self._unpacker.feed(received)


def is_pulse(frame: Frame) -> bool:
    return type(frame).__name__ == "Pulse"


class Child(Driver):
    """A host in a child process."""

    def __init__(
        self,
        folder: Path,
        *,
        skip: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        python: str = sys.executable,
        cwd: Path | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        arguments = [python, "-P", "-m", "stateous_supervisor.host", "--link", str(theirs.fileno())]
        for name in skip:
            arguments += ["--skip", name]
        self.process = subprocess.Popen(
            [*arguments, str(folder)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        theirs.close()
        super().__init__(ours)
        self.send(Hello(protocol=LINK_PROTOCOL, sdk="test"))

    def stop(self) -> tuple[bytes, bytes]:
        """Close the link, which ends the host, and return what it wrote to its descriptors."""
        self.sock.close()
        try:
            return self.process.communicate(timeout=WAIT_S)
        finally:
            self.process.kill()
            self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None or self.process.stdout is None or not self.process.stdout.closed:
            self.stop()


def members(session: int) -> list[int]:
    """Return the processes of a session: a host and its warden, and what routines started. Zombies do not count."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


@contextmanager
def child(folder: Path, **given: Any) -> Iterator[Child]:
    """A host process on `folder` that has loaded it."""
    with Child(folder, **given) as started:
        started.loaded()
        yield started


@contextmanager
def inline(folder: Path, **given: Any) -> Iterator[Driver]:
    """A host in a thread on `folder` that has loaded it."""
    host = InlineHost(folder, **given)
    host.start()
    driver = Driver(host.sock)
    try:
        driver.loaded()
        yield driver
    finally:
        driver.sock.close()
        assert host.wait_ended(WAIT_S)
