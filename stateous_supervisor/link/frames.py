"""What the agent and its routine host say to each other over their socket pair.

A frame is a u32 length (big endian) and JSON: an array of messages, so that one turn of a loop is one frame.
Unknown kinds are ignored, so either side may be newer. The first message both ways is `Hello`.
"""

from __future__ import annotations

import signal

import msgspec
from msgspec import Raw
from stateous_contract.messages import Grant, OptionalRaw, Schedule

LINK_PROTOCOL = 1
# A real-time signal, which nobody uses by accident: a host that gets it writes down what every thread is doing.
DUMP_SIGNAL: int = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 3
FRAME_BYTES_MAX = 8 * 1_048_576 + 65_536
# A process that can do its work no more ends with this code, and writes a line that begins so to its stderr.
FAULT_CODE = 70
FAULT_MARK = "it cannot go on: "


class Frame(msgspec.Struct, omit_defaults=True, kw_only=True, tag_field="kind"):
    """One message of the link."""


def work_of(grant: Grant) -> str:
    """Return what a grant is for: its state, or ``@`` and the name of a routine without a graph."""
    return grant.state if grant.routine is None else f"@{grant.routine}"


def timed_out(timeout_s: float) -> str:
    """Return why an attempt failed that ran for longer than `timeout_s`, whoever finds it out."""
    return f"the routine ran longer than its timeout of {timeout_s:g} s"


class Hello(Frame, tag="hello"):
    """First, both ways. `python` and `pid` are the sender's."""

    protocol: int
    sdk: str
    python: str = ""
    pid: int = 0


# Host to agent.


class Loading(Frame, tag="loading"):
    """The host is about to import `file` (so that the agent knows what hung or killed it)."""

    file: str


class RoutineFacts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A routine that was found: where it stands and how it wants to run.

    `state` is what it is served as, as `work_of` has it; a folder has one routine for each of its `versions`.
    """

    state: str
    file: str
    line: int
    name: str
    is_async: bool
    isolation: str | None = None
    versions: list[int] = msgspec.field(default_factory=lambda: [1])
    timeout_s: float | None = None
    is_strict: bool = False


class BrokenFile(msgspec.Struct, kw_only=True):
    """A file that could not be loaded, with one sentence."""

    file: str
    line: int | None
    error: str


class Loaded(Frame, tag="loaded"):
    """Loading is over. `faults` are faults of the folder as a whole: the agent refuses to start with them."""

    routines: list[RoutineFacts]
    broken: list[BrokenFile] = []
    faults: list[str] = []


class Began(Frame, tag="began"):
    """The routine's first line is about to run. `at` is the host's CLOCK_MONOTONIC."""

    task: int
    attempt: int
    at: float


class Noted(Frame, tag="note"):
    """The routine said one line of progress."""

    task: int
    attempt: int
    text: str


class Remembered(Frame, tag="memory"):
    """The routine set (or, with null, deleted) one key of its memory."""

    task: int
    attempt: int
    key: str
    value: Raw


class Outcome(Frame, tag="outcome"):
    """The attempt is over. `outcome` is event, waiting, returned (with `result`), failed, or parked.

    What is parked the control plane knows already.
    `traceback` goes to the log, never to the wire.
    `is_dropped` says that the routine was cancelled or lost: nothing is to be reported.
    `is_abandoned` says that the routine goes on all the same.
    `cpu_s` and `peak_bytes` are what it cost, with all that it started, where it had a process of its own.
    `unmet` are steps that earlier attempts passed and this one did not come by: the code is not what it was.
    """

    task: int
    attempt: int
    outcome: str
    event: str | None = None
    payload: OptionalRaw = None
    context: OptionalRaw = None
    schedules: list[Schedule] | None = None
    result: OptionalRaw = None
    error: str | None = None
    traceback: str | None = None
    is_dropped: bool = False
    is_abandoned: bool = False
    is_retryable: bool = True
    duration_s: float = 0.0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    unmet: list[str] = []


class Call(Frame, tag="call"):
    """A routine asks the control plane something and waits for the `Answer` with the same id.

    `id` is unique within its attempt. `call` is a row of `agent/calls.py`, `body` the JSON object that goes with it.
    """

    id: int
    task: int
    attempt: int
    call: str
    body: Raw


class Pulse(Frame, tag="pulse"):
    """The host is alive, twice a second. `loop_lag_s` is how late its loop is; `stack` is where it hangs, when it does.

    `task` and `attempt` are those of the routine that holds the loop. `running` counts attempts that go on,
    `abandoned` routines that go on although their attempt is over.
    """

    loop_lag_s: float
    running: int = 0
    abandoned: int = 0
    stack: str | None = None
    task: int | None = None
    attempt: int | None = None


class Unfit(Frame, tag="unfit"):
    """Routines took from the host what each of them needs: what runs may go on, new work belongs elsewhere."""

    reason: str


class Logged(Frame, tag="log"):
    """A line that a routine printed or logged."""

    level: str
    text: str
    task: int | None = None
    attempt: int | None = None


# Agent to host.


class Confinement(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """Where a routine runs and within what bounds, as `stateous.yaml` says for its state.

    `isolation` is thread or process; None leaves it to the routine's own mark. `grace_s` lies between SIGTERM and
    SIGKILL. Memory and grace count in a process of its own only.
    """

    isolation: str | None = None
    memory_bytes: int | None = None
    grace_s: float = 5.0


class Run(Frame, tag="run"):
    """Run the routine of `grant` (a grant of the wire, as its JSON text)."""

    grant: Raw
    lease_s: float
    timeout_s: float | None = None
    confinement: Confinement = Confinement()


class Cancel(Frame, tag="cancel"):
    """The attempt is lost or to be stopped: cancel `async def`, drop the result of `def`."""

    task: int
    attempt: int
    cause: str


class Answer(Frame, tag="answer"):
    """The control plane's answer to a `Call`; from status 400 on `body` has `code` and `error`.

    `is_parked`: the task is parked, and with it this attempt is over, whether or not anybody waits for the answer.
    `is_pausing`: a person asked for a pause.
    """

    id: int
    task: int
    attempt: int
    status: int
    body: Raw
    is_parked: bool = False
    is_pausing: bool = False


class HeldUntil(Frame, tag="held"):
    """The lease was renewed: the attempt is held for `lease_s` from now."""

    tasks: list[int]
    lease_s: float


class PauseTask(Frame, tag="pause"):
    """A person asked for a pause; it is seen at the next durable point."""

    task: int
    attempt: int


class Drain(Frame, tag="drain"):
    """No new work will come; end when the last routine ended."""


class Quit(Frame, tag="quit"):
    """Cancel what runs and end."""


ToAgent = Hello | Loading | Loaded | Began | Noted | Remembered | Outcome | Call | Pulse | Unfit | Logged
ToHost = Hello | Run | Cancel | Answer | HeldUntil | PauseTask | Drain | Quit
