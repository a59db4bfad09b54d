"""What can hardly be told, raised or returned in every way to run a routine: in a thread, on the loop, in a process of
its own, and `--inline` (BH-024, BH-040, A-19, A-39)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from supervisor.host.child import BODIES, Driver, child, grant, inline, write_folder
from supervisor.isolation.cells import PROCESS

from stateous_supervisor.link.frames import Confinement, Outcome, Run


class Mode(NamedTuple):
    """A state whose routine is `def` or `async def`, where it runs, and whether its host is in this process."""

    state: str
    confinement: Confinement = Confinement()
    is_inline: bool = False


MODES = {
    "thread": Mode("other"),
    "async": Mode("coding"),
    "process": Mode("other", PROCESS),
    "async process": Mode("coding", PROCESS),
    "inline": Mode("other", is_inline=True),
    "async inline": Mode("coding", is_inline=True),
}
CYCLE = """
a, b, c = ValueError("cycle"), ValueError("b"), ValueError("c")
a.__cause__, b.__cause__, c.__cause__ = b, c, a
raise a
"""
CHAIN = """
error = ValueError("chain")
for number in range(5_000):
    cause, error = error, ValueError("chain")
    error.__cause__ = cause
raise error
"""
SPEAKS = """
class Speaks(Exception):
    def __str__(self):
        {}
    __repr__ = __str__
raise Speaks
"""
UNPICKLABLE = """
class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one)
raise TwoArguments(1, 2)
"""
# name -> the routine's body, and what the failure's text must have in it
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "itself": ("error = ValueError('itself')\nraise error from error", ("ValueError: itself",)),
    "cycle": (CYCLE, ("ValueError: cycle",)),
    "chain of 5,000": (CHAIN, ("ValueError: chain",)),
    "text that raises": (SPEAKS.format("raise RuntimeError('no text')"), ("Speaks", "RuntimeError")),
    "text of 50 MB": (
        SPEAKS.format("return 'x' * 50_000_000"),
        ("Speaks: xxx", "[cut: 50,000,000 characters"),
    ),
    "text that hangs": (SPEAKS.format("time.sleep(3600)"), ("Speaks", "not to be had within 2 s")),
    "text that is none": (SPEAKS.format("return 7"), ("Speaks", "TypeError")),
    "message of 50 MB": (
        "raise ValueError('x' * 50_000_000)",
        ("ValueError: xxx", "[cut: 50,000,000 characters"),
    ),
    "bytes of 9 MB": ("raise ValueError(b'\\xff' * 9_000_000)", ("ValueError: b'", "[cut: ")),
    "NUL": ("raise ValueError('a\\0b')", ("ValueError: a\\x00b",)),
    "lone surrogate": ("raise ValueError('\\ud800')", ("ValueError: \\ud800",)),
    "bytes": ("raise ValueError(b'\\xff')", ("ValueError: b'\\xff'",)),
    "local class": ("class Local(Exception): pass\nraise Local('here')", ("Local: here",)),
    "unpicklable": (UNPICKLABLE, ("TwoArguments: 1",)),
    "lock and generator": (
        "raise ValueError(threading.Lock(), (n for n in []))",
        ("ValueError: ", "_thread.lock", "generator"),
    ),
    "socket": (
        "import socket\nwith socket.socket() as held:\n    raise ValueError(held)",
        ("ValueError: <socket.socket",),
    ),
    "group of 1,000": (
        "raise ExceptionGroup('many', [ValueError(n) for n in range(1_000)])",
        ("ExceptionGroup: many (1000 sub-exceptions)", "ValueError: 0"),
    ),
    "StopIteration": ("raise StopIteration", ("StopIteration",)),
    "next of nothing": ("next(iter([]))", ("StopIteration",)),
    "StopAsyncIteration": ("raise StopAsyncIteration", ("StopAsyncIteration",)),
    "SystemExit": ("raise SystemExit(3)", ("SystemExit: 3",)),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", ("KeyboardInterrupt",)),
    "GeneratorExit": ("raise GeneratorExit", ("GeneratorExit",)),
    "coroutine": ("return asyncio.sleep(0)", ("a coroutine that nothing awaits",)),
    "generator": ("return (n for n in ())", ("a generator, so its code has not run",)),
    "async generator": (
        "async def never():\n    yield 1\nreturn never()",
        ("a generator, so its code has not run",),
    ),
    "result of 1.1 MB": (
        "ctx['big'] = 'x' * 1_100_000\nreturn events.coded()",
        ("1,10", "the context", "1,048,576"),
    ),
    "result of 5 MB": (
        "ctx['big'] = 'x' * 5_000_000\nreturn events.coded()",
        ("5,00", "the context", "1,048,576"),
    ),
    "result of 20 MB": (
        "ctx['big'] = 'x' * 20_000_000\nreturn events.coded()",
        ("20,00", "the context", "1,048,576"),
    ),
}
HUGE = "ctx['big'] = 'x' * 120_000_000\nreturn events.coded()"
# Those of one mode run side by side, so that what takes its 2 s costs them once.
TASKS = {name: number for number, name in enumerate(CASES, 1)}


def run(driver: Driver, mode: Mode, task: int, body: str) -> None:
    raw = grant(task, mode.state, context={"title": "a", "body": body})
    driver.send(Run(grant=raw, lease_s=60.0, timeout_s=None, confinement=mode.confinement))


# Threads and the loop have a journey of their own, with a real agent.
WITH_JOURNEY = ("thread", "async")
PARAMS = [pytest.param(name, marks=pytest.mark.prove if name in WITH_JOURNEY else ()) for name in MODES]


@pytest.fixture(scope="module", params=PARAMS)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Driver, Mode]]:
    """A host in which all cases were started, all at once, in one mode."""
    mode = MODES[request.param]
    folder = write_folder(tmp_path_factory.mktemp("mode"), {"bodies.py": BODIES})
    hosts: Any = inline if mode.is_inline else child
    with hosts(folder) as driver:
        for name, (body, _) in CASES.items():
            run(driver, mode, TASKS[name], body)
        yield driver, mode


def outcome(ran: tuple[Driver, Mode], task: int) -> Outcome:
    return ran[0].outcome(task, wait_s=30.0)


@pytest.mark.parametrize("name", CASES)
def test_what_can_hardly_be_told_is_a_failed_attempt_with_its_type_in_every_mode(
    ran: tuple[Driver, Mode], name: str
) -> None:
    ended = outcome(ran, TASKS[name])

    told = ended.error or ""
    assert (ended.outcome, ended.is_dropped) == ("failed", False)
    assert all(text in told for text in CASES[name][1]), told[:500]
    assert len(told.encode()) <= 8_192
    assert (ended.context, ended.event) == (None, None)


def test_nine_tenths_of_the_limit_go_out_in_every_mode_and_so_does_the_next_task(
    ran: tuple[Driver, Mode],
) -> None:
    run(*ran, 1_000, "ctx['big'] = 'x' * 943_000\nreturn events.coded()")

    ended = outcome(ran, 1_000)

    assert (ended.event, len(bytes(ended.context or b""))) == ("coded", 943_010)
    assert ended.duration_s < 10.0


@pytest.mark.prove
def test_a_result_of_120_mb_is_refused_in_every_mode(ran: tuple[Driver, Mode]) -> None:
    run(*ran, 2_000, HUGE)

    ended = ran[0].outcome(2_000, wait_s=60.0)

    assert "120,00" in (ended.error or "")
    assert "at most 1,048,576 are allowed" in (ended.error or "")
    assert ended.duration_s < 10.0
