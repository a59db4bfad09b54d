"""Routines that raise what can hardly be told (BH-024, A-19): each is a failed attempt with a text, and the host goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import AgentProgram, ControlPlaneClient

from journeys import folders

# name -> what the failure's text must have in it
CASES = {
    "itself": "ValueError: itself",
    "cycle": "ValueError: cycle",
    "chain": "ValueError: chain",
    "str_raises": "StrRaises",
    "str_huge": "StrHuge",
    "str_sleeps": "StrSleeps",
    "nul": "ValueError",
    "surrogate": "ValueError",
    "bytes": "ValueError",
    "local_class": "Local: local",
    "two_arguments": "TwoArguments",
    "holds_lock": "ValueError",
    "group": "ExceptionGroup",
    "stop": "StopIteration",
    "next_of_nothing": "StopIteration",
    "exit": "SystemExit",
    "interrupt": "KeyboardInterrupt",
    "generator_exit": "GeneratorExit",
    "coroutine": "coroutine",
    "number": "42",
    "event_class": "made",
    "nan": "NaN",
}
RAISING = """
import threading
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


class StrRaises(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class StrHuge(Exception):
    def __str__(self):
        return "x" * 50_000_000


class StrSleeps(Exception):
    def __str__(self):
        time.sleep(3600)


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def itself():
    error = ValueError("itself")
    raise error from error


def cycle():
    a, b, c = ValueError("cycle"), ValueError("b"), ValueError("c")
    a.__cause__, b.__cause__, c.__cause__ = b, c, a
    raise a


def chain():
    error = ValueError("chain")
    for number in range(5_000):
        cause, error = error, ValueError("chain")
        error.__cause__ = cause
    raise error


def str_raises():
    raise StrRaises


def str_huge():
    raise StrHuge


def str_sleeps():
    raise StrSleeps


def nul():
    raise ValueError("a\\0b")


def surrogate():
    raise ValueError("\\ud800")


def bytes_():
    raise ValueError(b"\\xff" * 10)


def local_class():
    class Local(Exception):
        pass

    raise Local("local")


def two_arguments():
    raise TwoArguments(1, 2)


def holds_lock():
    raise ValueError(threading.Lock(), (n for n in []))


def group():
    raise ExceptionGroup("many", [ValueError(n) for n in range(1_000)])


def stop():
    raise StopIteration


def next_of_nothing():
    next(iter([]))


def exit_():
    raise SystemExit(3)


def interrupt():
    raise KeyboardInterrupt


def generator_exit():
    raise GeneratorExit


def coroutine():
    async def never():
        pass

    return never()


def number():
    return 42


def event_class():
    return events.made


def nan():
    return events.made(Made.model_construct(size=float("nan")))


def case(ctx):
    name = ctx.token.rpartition(".")[2]
    return globals()[name if name in globals() and name not in ("bytes", "exit") else name + "_"]()


@on_state(states.hand)
def hand(ctx):
    return case(ctx)


@on_state(states.loop)
async def loop(ctx):
    return case(ctx)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plane_url: str) -> Iterator[Path]:
    # Retries would only say the same again, so the folder's own file serves both states that may fail.
    made = folders.make(
        tmp_path_factory.mktemp("raising") / "box", plane_url, hand=RAISING, loop="# both are in hand.py\n"
    )
    with AgentProgram(made, plane_url, "--tasks", "50") as agent:
        yield made
        assert agent.child.poll() is None, agent.told


@pytest.fixture(scope="module")
def errors(folder: Path, plane_url: str) -> dict[str, str]:
    """The text of the first failure of each case, in both kinds of routine; an ordinary task runs among them."""
    names = [f"{kind}.{name}" for kind in ("hand", "loop") for name in CASES]
    with ControlPlaneClient(plane_url) as plane:
        for name in names:
            plane.start(name, kind=name.partition(".")[0])
        for name in names:
            plane.until(name, state="rescue", within_s=30)
        return {
            name: next(e["data"]["error"] for e in plane.history(name) if e["kind"] == "task_failed")
            for name in names
        }


@pytest.mark.parametrize("kind", ["hand", "loop"])
@pytest.mark.parametrize("name", CASES)
def test_whatever_is_raised_is_a_failure_that_says_so(errors: dict[str, str], kind: str, name: str) -> None:
    told = errors[f"{kind}.{name}"]

    assert CASES[name] in told
    assert len(told.encode()) <= 8_192
    assert "\0" not in told


def test_the_next_task_runs(folder: Path, errors: dict[str, str], plane: ControlPlaneClient) -> None:
    plane.start("ordinary.number")

    plane.until("ordinary.number", state="rescue")
