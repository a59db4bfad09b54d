"""Strict routines in a real host, of either kind and in a process of their own (S2-13, C12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw
from supervisor.host.child import Child, child, write_folder

from stateous_supervisor.link.frames import Answer, Call, Outcome, Run

FOLDER = """
import textwrap
from stateous_supervisor import routine

def compiled(kind, given):
    names = dict(globals())
    exec(f"{kind} body(ctx):\\n" + textwrap.indent(given, "    "), names)
    return names["body"]

def plain(ctx, given):
    return compiled("def", given)(ctx)

async def loop(ctx, given):
    return await compiled("async def", given.replace("ctx.step(", "await ctx.step("))(ctx)

def another(function):
    async def loop(ctx, given):
        return await function(ctx, given)
    def plain(ctx, given):
        return function(ctx, given)
    return loop if asyncio.iscoroutinefunction(function) else plain

plain_apart = routine("plain-apart", strict=True, isolation="process")(another(plain))
loop_apart = routine("loop-apart", strict=True, isolation="process")(another(loop))
plain = routine("plain", strict=True)(plain)
loop = routine("loop", strict=True)(loop)
"""
KINDS = pytest.mark.parametrize("kind", ["plain", "loop", "plain-apart", "loop-apart"])


@pytest.fixture(scope="module")
def strict_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with child(write_folder(tmp_path_factory.mktemp("strict") / "routines", {"strict.py": FOLDER})) as host:
        yield host


def run(host: Child, kind: str, body: str, task: int) -> None:
    """Run a body, written as `def` would have it, with the steps a and b passed already."""
    passed = [{"step": name, "occurrence": 1, "seq": seq, "value": 1} for seq, name in enumerate("ab", 3)]
    grant = {"task": task, "routine": kind, "attempt": 1, "input": body, "memory": {}, "checkpoints": passed}
    host.send(Run(grant=Raw(json.dumps(grant).encode()), lease_s=120.0, timeout_s=None))


def parked_by(host: Child, task: int) -> dict[str, Any]:
    """Answer the call that parks, and return what it says, once the attempt has ended by it."""
    call = host.wait(Call, lambda call: call.task == task)
    assert call.call == "diverged"
    body = Raw(b'{"status": "parked", "generation": 4}')
    host.send(Answer(id=call.id, task=task, attempt=1, status=200, body=body, is_parked=True))
    assert host.outcome(task).outcome == "parked"
    said: dict[str, Any] = json.loads(bytes(call.body))
    return said


@KINDS
def test_a_strict_routine_parks_before_it_does_anything_new_s2_13(
    strict_host: Child, kind: str, task: int
) -> None:
    run(strict_host, kind, "ctx.step('a', lambda: 2)\nctx.step('c', lambda: 3)\nreturn 4", task)
    said = parked_by(strict_host, task)

    assert (said["step"], said["occurrence"], said["wait"]["found"]) == ("b", 1, "c#1")
    assert len([call for call in strict_host.of_kind(Call) if call.task == task]) == 1


@KINDS
def test_a_strict_routine_that_returns_too_early_parks_s2_13(
    strict_host: Child, kind: str, task: int
) -> None:
    run(strict_host, kind, "ctx.step('a', lambda: 2)\nreturn 4", task)
    said = parked_by(strict_host, task)

    assert (said["step"], said["wait"]["found"]) == ("b", None)


@KINDS
def test_a_strict_routine_that_comes_by_all_that_stands_ends(
    strict_host: Child, kind: str, task: int
) -> None:
    run(strict_host, kind, "return [ctx.step('b', lambda: 2), ctx.step('a', lambda: 2)]", task)

    outcome: Outcome = strict_host.outcome(task)
    assert (outcome.outcome, bytes(outcome.result or b"")) == ("returned", b"[1,1]")


@KINDS
def test_what_fails_is_not_judged_it_runs_again(strict_host: Child, kind: str, task: int) -> None:
    run(strict_host, kind, "raise OSError('away')", task)

    assert strict_host.outcome(task).error == "OSError: away"
