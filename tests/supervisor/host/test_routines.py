"""Routines without a graph, and versions, in a real host: how they are found, called, and what they end with."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from supervisor.host.child import Child, child, write_folder

from stateous_supervisor.link.frames import Noted, Outcome, Run

ROUTINES = """
from typing import TypedDict
from pydantic import BaseModel
from stateous_supervisor import AsyncContext, Context, routine


class Request(BaseModel):
    report: int


class Size(TypedDict):
    size: int


@routine("plain")
def plain(ctx, given):
    return [given, ctx.routine, ctx.token, ctx.task]


@routine("plain", version=2)
async def second(ctx: AsyncContext, given: Request) -> Request:
    return Request(report=given.report + 1)


@routine("typed", isolation="process")
def typed(ctx: Context, given: Size) -> Size:
    return given


@routine("bad")
def bad(ctx, given):
    if given == "context":
        ctx["a"] = 1
    if given == "timer":
        ctx.schedule(None, "1s")
    async def coroutine(): ...
    return {"object": object(), "nan": float("nan"), "big": "x" * 1_100_000}.get(given, coroutine())
"""
ONLY = "from stateous_supervisor import routine\n"


def grant(task: int, name: str, given: Any, version: int = 1) -> Raw:
    made = {"task": task, "attempt": 1, "memory": {}, "routine": name, "version": version, "input": given}
    return Raw(json.dumps(made).encode())


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = tmp_path_factory.mktemp("routines")
    (folder / "flows.py").write_text(ROUTINES)
    with child(folder) as started:
        yield started


def ended(host: Child, task: int, name: str, given: Any, version: int = 1) -> Outcome:
    host.send(Run(grant=grant(task, name, given, version), lease_s=120.0))
    return host.outcome(task)


def result(outcome: Outcome) -> Any:
    assert (outcome.outcome, outcome.error) == ("returned", None)
    assert outcome.result is not None
    return json.loads(bytes(outcome.result))


def test_a_routine_takes_its_input_and_ends_with_its_result_s2_11(host: Child) -> None:
    """S2-52: each version is a function of its own; a folder of routines alone needs no contract."""
    assert result(ended(host, 1, "plain", {"ü": 2**70})) == [{"ü": 2**70}, "plain", "", 1]
    assert result(ended(host, 2, "plain", {"report": 1}, version=2)) == {"report": 2}
    assert result(ended(host, 3, "typed", {"size": 1})) == {"size": 1}
    assert ended(host, 4, "plain", None, version=3).error == "there is no routine for 'plain' in version 3"
    facts = host.loaded()
    assert facts.faults == []
    assert sorted((each.state, *each.versions) for each in facts.routines) == [
        ("@bad", 1),
        ("@plain", 1),
        ("@plain", 2),
        ("@typed", 1),
    ]


def test_an_input_that_does_not_fit_fails_for_good_with_a_sentence(host: Child) -> None:
    outcome = ended(host, 11, "plain", {"report": "x"}, version=2)

    assert (outcome.outcome, outcome.is_retryable) == ("failed", False)
    assert "the input of 'plain' does not fit Request: report: Input should be a valid integer" in str(
        outcome.error
    )


BAD = {
    "object": "the result of 'bad' is not JSON",
    "nan": "the result of 'bad' is not JSON: it holds NaN",
    "big": "the result of 'bad' is 1,100,002 bytes of JSON",
    "coroutine": "the routine 'bad' returned a coroutine that nothing awaits",
    "context": "the routine 'bad' has no token, and so no context to write to",
    "timer": "the routine 'bad' has no token, and so no timers to write to",
}


@pytest.mark.parametrize(("given", "told"), BAD.items(), ids=BAD)
def test_what_cannot_be_a_result_is_a_failure_that_says_so(host: Child, given: str, told: str) -> None:
    outcome = ended(host, 20 + list(BAD).index(given), "bad", given)

    assert outcome.outcome == "failed"
    assert told in str(outcome.error)


def faults(folder: Path, text: str, **more: str) -> list[str]:
    folder = write_folder(folder, {})
    (folder / "flows.py").write_text(ONLY + textwrap.dedent(text))
    for name, other in more.items():
        (folder / f"{name}.py").write_text(ONLY + textwrap.dedent(other))
    with child(folder) as host:
        return host.loaded().faults


def test_two_routines_of_one_name_and_version_are_a_fault_with_both_places(tmp_path: Path) -> None:
    """A-06: as for states; other versions are no fault."""
    first = "@routine('a', version=2)\ndef one(ctx, given): ...\n@routine('a')\ndef two(ctx, given): ...\n"
    [fault] = faults(tmp_path, first, more="@routine('a', version=2)\ndef again(ctx, given): ...\n")

    assert fault == (
        "the name 'a' has two routines of version 2: flows.py:2 (one) and more.py:2 (again); "
        "it must have one of each version"
    )


def test_a_routine_that_takes_no_input_is_a_fault(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, "@routine('a')\ndef one(ctx): ...\n")

    assert "takes (ctx); a routine without a graph takes two arguments, the context and its input" in fault


def test_a_missing_contract_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from contract import states\n")
    with child(tmp_path) as host:
        [broken] = host.loaded().broken

    assert broken.error.endswith(
        "; 'stateous-supervisor contract FOLDER' writes contract.py from the control plane"
    )


def test_a_state_may_have_several_versions(tmp_path: Path) -> None:
    """S2-21, S2-52: the version of the grant decides; without one it is the first."""
    text = """
    @on_state(states.coding)
    def one(ctx): return ctx.note("1")
    @on_state(states.coding, version=2)
    def two(ctx): return ctx.note("2")
    """
    folder = write_folder(tmp_path, {"a.py": text})
    with child(folder) as host:
        names = [host.result(task, version=version) for task, version in [(1, 1), (2, 2), (3, None)]]
        notes = [(frame.task, frame.text) for frame in host.seen if isinstance(frame, Noted)]
        assert {each.outcome for each in names} == {"waiting"}
        assert sorted(notes) == [(1, "1"), (2, "2"), (3, "1")]
        assert host.result(4, version=3).error == "there is no routine for the state 'coding' in version 3"
