"""Whatever a routine does to its process, the host goes on, or says that it is not fit, or ends; it never just hangs.

A-23, A-24, A-47. What an agent makes of that is in `test_hosts` and in the journeys.
"""

from __future__ import annotations

import itertools
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, Child, child, write_folder
from supervisor.host.harms import HARMS
from supervisor.isolation.cells import PROCESS, Box

from stateous_supervisor.link.frames import FAULT_CODE, Confinement, Outcome, Pulse, Unfit
from stateous_supervisor.link.stream import LinkBroken

# The kinds of routines: state and isolation.
KINDS = {
    "thread": ("other", Confinement()),
    "async": ("coding", Confinement()),
    "process": ("other", PROCESS),
}
BESIDE = {
    "thread": "time.sleep(0.5)\nreturn events.coded()",
    "async": "await asyncio.sleep(0.5)\nreturn events.coded()",
}
NEXT = "import fractions, xml.dom.minidom\nopen('/dev/null').close()\nreturn events.coded()"
QUICK = {("len is gone", "thread"), ("8 descriptors", "thread"), ("the loop is broken", "async")}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.prove, id="-".join(case))
    for case in itertools.product(HARMS, KINDS)
]


def told(host: Child, task: int) -> Outcome | None:
    """Return the outcome of a task, or None where the host ends before it says one."""
    try:
        return host.outcome(task)
    except LinkBroken:
        host.sock.shutdown(socket.SHUT_RDWR)  # as the agent does
    except (AssertionError, OSError):  # It is a hang, if the process does not end.
        pass
    host.process.wait(10.0)
    return None


def has_said_that_it_cannot_go_on(host: Child) -> bool:
    """Give it the time of three pulses to see what became of it."""
    pulses = len(host.of_kind(Pulse)) + 3
    with suppress(LinkBroken, ConnectionError, AssertionError):
        host.wait(Pulse, lambda _: len(host.of_kind(Pulse)) >= pulses or bool(host.of_kind(Unfit)))
    return bool(host.of_kind(Unfit)) or host.process.poll() is not None


@pytest.mark.parametrize(("harm", "kind"), CASES)
def test_a_host_does_its_work_or_says_that_it_cannot(tmp_path: Path, harm: str, kind: str) -> None:
    """A-23, A-24: beside two neighbours, and then one of each kind in the same host."""
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as host:
        box = Box(host)
        for task, other in enumerate(BESIDE, start=1):
            box.run(task, BESIDE[other], KINDS[other][0], confinement=Confinement())
            host.began(task)
        state, confinement = KINDS[kind]
        box.run(3, HARMS[harm], state, confinement=confinement)
        outcomes = [told(host, task) for task in (3, 1, 2)]
        if kind == "process":
            assert [None if each is None else each.event for each in outcomes[1:]] == ["coded", "coded"]
            assert outcomes[0] is not None
            assert outcomes[0].event == "coded" or outcomes[0].error
        is_lost = has_said_that_it_cannot_go_on(host)
        assert not (is_lost and kind == "process"), host.of_kind(Unfit)
        if is_lost:
            return
        for task, (next_state, next_confinement) in enumerate(KINDS.values(), start=11):
            box.run(task, NEXT, next_state, confinement=next_confinement)
            outcome = told(host, task)
            if next_confinement != PROCESS:
                assert outcome is not None
                assert outcome.event == "coded"
            elif outcome is None:  # What only the start of an isolated routine needs, the next one finds out.
                assert host.process.returncode == FAULT_CODE
            else:
                assert outcome.event == "coded" or host.of_kind(Unfit), outcome.error


def test_a_host_that_is_broken_ends_with_a_known_code_and_a_reason(tmp_path: Path) -> None:
    """A-23: whichever of its threads finds it out first."""
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as host:
        Box(host).run(1, HARMS["len is gone"], confinement=Confinement())
        assert host.process.wait(15.0) == FAULT_CODE
        _, said = host.stop()
    assert b"\nit cannot go on: a routine replaced len in builtins (" in said


@pytest.mark.parametrize(
    ("harm", "reason"),
    {
        "8 descriptors": "no descriptors can be opened: OSError: [Errno 24] Too many open files",
        "imports fail": "nothing can be imported: RuntimeError: boom",
        "modules are forgotten": "a routine took asyncio, json",
    }.items(),
)
def test_a_host_says_that_it_is_not_fit_before_the_outcome_that_frees_a_slot(
    tmp_path: Path, harm: str, reason: str
) -> None:
    """A-23: or the next task would be given to it."""
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as host:
        Box(host).run(1, HARMS[harm], confinement=Confinement())
        outcome = host.outcome(1)
        unfit = host.of_kind(Unfit)[0]
        assert unfit.reason.startswith(reason)
        assert host.seen.index(unfit) < host.seen.index(outcome)


def test_what_a_library_replaces_for_good_and_works_is_no_fault(tmp_path: Path) -> None:
    """Instruments of all kinds do that; a host that is replaced for it would be replaced for ever."""
    body = """
    import builtins, functools, json
    def traced(function):
        @functools.wraps(function)
        def call(*args, **kwargs): return function(*args, **kwargs)
        return call
    builtins.print, builtins.open, builtins.__import__ = map(traced, (print, open, __import__))
    threading.Thread.start, time.monotonic = traced(threading.Thread.start), traced(time.monotonic)
    json.dumps, os.write = traced(json.dumps), traced(os.write)
    return events.coded()
    """
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as host:
        box = Box(host)
        assert box.outcome(1, body, confinement=Confinement()).event == "coded"
        assert not has_said_that_it_cannot_go_on(host)
        assert box.outcome(2, NEXT, confinement=Confinement()).event == "coded"
