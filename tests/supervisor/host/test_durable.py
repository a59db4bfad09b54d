"""Durable calls in a real host: who is answered, what ends an attempt, and what becomes of what runs beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from supervisor.host.child import Child

from stateous_supervisor.link.frames import Answer, Call, Noted, Outcome, PauseTask

ASKED = {"question": 5, "status": "pending", "parked": True, "generation": 3, "expires_at": ""}
STATES = pytest.mark.parametrize("state", ["coding", "other"], ids=["async", "def"])


def start(host: Child, task: int, state: str, body: str) -> None:
    """Run a body, written as `def` would have it, in a routine of either kind."""
    if state == "coding":
        for call in ("ctx.ask(", "ctx.step(", "ctx.checkpoint("):
            body = body.replace(call, f"await {call}")
    host.run(task, state, context={"title": "a", "body": body})


def called(host: Child, task: int, kind: str) -> Call:
    return host.wait(Call, lambda call: (call.task, call.call) == (task, kind))


def answer(host: Child, call: Call, body: Any, *, status: int = 200, **more: bool) -> None:
    raw = Raw(json.dumps(body).encode())
    host.send(Answer(id=call.id, task=call.task, attempt=call.attempt, status=status, body=raw, **more))


def noted(host: Child, task: int) -> list[str]:
    return [frame.text for frame in host.of_kind(Noted) if frame.task == task]


@STATES
def test_a_call_comes_back_with_what_was_answered(host: Child, task: int, state: str) -> None:
    start(host, task, state, "ctx['got'] = ctx.step('a', lambda: 1)\nreturn events.coded()")
    call = called(host, task, "checkpoint")
    assert json.loads(bytes(call.body)) == {"step": "a", "occurrence": 1, "version": 1, "value": 1}
    answer(host, call, "what stands")

    assert json.loads(bytes(host.outcome(task).context or b"")) == {"got": "what stands"}


@STATES
def test_a_park_ends_the_attempt_and_unwinds_the_routine_s1_44_s1_47(
    host: Child, task: int, state: str
) -> None:
    start(host, task, state, "try:\n    ctx.ask('go')\nfinally:\n    print(f'unwound {ctx.task}')")
    answer(host, called(host, task, "ask"), ASKED, status=201, is_parked=True)

    outcome = host.outcome(task)
    assert (outcome.outcome, outcome.is_dropped, outcome.error) == ("parked", True, None)
    host.line(f"unwound {task}")


@STATES
def test_a_park_that_nobody_waits_for_any_more_ends_the_attempt_too(
    host: Child, task: int, state: str
) -> None:
    """A swallowed park: what the routine does and returns afterwards counts for nothing (DX-06)."""
    body = """
try:
    ctx.ask('go')
except BaseException as error:
    ctx.note('too late')
    try:
        ctx.step('after', lambda: print('began'))
    except BaseException as again:
        print(f'refused {type(again).__name__} in {ctx.task}')
return events.coded()
"""
    start(host, task, state, body)
    answer(host, called(host, task, "ask"), ASKED, status=201, is_parked=True)

    assert host.outcome(task).outcome == "parked"
    host.line(f"refused Parked in {task}")
    assert noted(host, task) == []
    assert [frame for frame in host.of_kind(Call) if frame.task == task and frame.call == "checkpoint"] == []


def test_a_routine_that_stays_after_its_park_is_cancelled_dx_06(host: Child, task: int) -> None:
    body = """
try:
    await ctx.ask('go')
except BaseException:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print(f'cancelled {ctx.task}')
return events.coded()
"""
    host.run(task, "coding", context={"title": "a", "body": body})
    answer(host, called(host, task, "ask"), ASKED, status=201, is_parked=True)

    assert host.outcome(task).outcome == "parked"
    host.line(f"cancelled {task}")


def test_calls_beside_a_park_are_let_go_s1_44(host: Child, task: int) -> None:
    body = """
async def beside():
    try:
        await ctx.ask('other')
    finally:
        print(f'beside unwound {ctx.task}')
await asyncio.gather(ctx.ask('go'), beside())
"""
    host.run(task, "coding", context={"title": "a", "body": body})
    one = host.wait(Call, lambda c: c.task == task and b'"go"' in bytes(c.body))
    host.wait(Call, lambda c: c.task == task and b'"other"' in bytes(c.body))
    answer(host, one, ASKED, status=201, is_parked=True)

    assert host.outcome(task).outcome == "parked"
    host.line(f"beside unwound {task}")


@STATES
def test_a_lost_attempt_waits_for_no_answer(host: Child, task: int, state: str) -> None:
    start(host, task, state, "try:\n    ctx.ask('go')\nfinally:\n    print(f'let go {ctx.task}')")
    called(host, task, "ask")
    host.cancel(task)

    assert host.outcome(task).is_dropped
    host.line(f"let go {task}")


def test_a_lost_routine_finishes_its_step_and_begins_no_other_s2_46_s2_48_s2_49(
    host: Child, task: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    gate = tmp_path_factory.mktemp("gate") / "open"
    body = f"""
async def slow():
    try:
        print(f'step begins {{ctx.task}}')
        while not os.path.exists({str(gate)!r}):
            await asyncio.sleep(0.01)
        return 1
    finally:
        ended = "ended" if os.path.exists({str(gate)!r}) else "was cut"
        print(f'step {{ended}} {{ctx.task}}')
await ctx.step('slow', slow)
await ctx.step('next', lambda: print('never'))
"""
    host.run(task, "coding", context={"title": "a", "body": body})
    host.line(f"step begins {task}")
    host.cancel(task)
    gate.touch()

    assert host.outcome(task).is_dropped
    host.line(f"step ended {task}")
    assert [frame for frame in host.of_kind(Call) if frame.task == task] == []


@STATES
def test_a_pause_is_told_to_the_routine_before_its_next_step_s1_71(
    host: Child, task: int, state: str
) -> None:
    start(host, task, state, "ctx.step('a', lambda: 1)\nctx.step('b', lambda: 2)\nreturn events.coded()")
    first = called(host, task, "checkpoint")
    host.send(PauseTask(task=task, attempt=1))
    answer(host, first, 1)
    pause = called(host, task, "pause")
    assert json.loads(bytes(pause.body))["locked_decisions"]["visited"] == ["a#1"]
    answer(host, pause, {"status": "parked", "generation": 4}, is_parked=True)

    assert host.outcome(task).outcome == "parked"


@STATES
def test_a_missing_feature_fails_the_attempt_for_good_a_64(host: Child, task: int, state: str) -> None:
    start(host, task, state, "ctx.ask('go')")
    sentence = "ctx.ask needs the feature 'questions', which this control plane does not offer"
    answer(host, called(host, task, "ask"), {"code": "feature_missing", "error": sentence}, status=501)

    outcome = host.outcome(task)
    assert (outcome.outcome, outcome.error, outcome.is_retryable) == (
        "failed",
        f"FeatureMissing: {sentence}",
        False,
    )


@STATES
def test_steps_that_are_not_come_by_are_told_with_the_outcome_s2_13(
    host: Child, task: int, state: str
) -> None:
    passed = [{"step": name, "occurrence": 1, "seq": seq, "value": 1} for seq, name in enumerate("ab", 3)]
    body = f"{'await ' if state == 'coding' else ''}ctx.step('a', lambda: 2)\nreturn events.coded()"
    host.run(task, state, context={"title": "a", "body": body}, checkpoints=passed)

    outcome: Outcome = host.outcome(task)
    assert (outcome.outcome, outcome.unmet) == ("event", ["b#1"])


TRIED = """
tries = []
def make():
    tries.append(1)
    if len(tries) < 3:
        raise OSError("not yet")
    return len(tries)
ctx["got"] = ctx.step("a", make, retries=2, backoff=0.01)
return events.coded()
"""


@STATES
def test_a_step_is_tried_again_in_its_attempt_and_stored_once(host: Child, task: int, state: str) -> None:
    start(host, task, state, TRIED)
    call = called(host, task, "checkpoint")
    answer(host, call, json.loads(bytes(call.body))["value"])

    assert json.loads(bytes(host.outcome(task).context or b"")) == {"got": 3}


@STATES
def test_a_lost_attempt_leaves_the_rest_between_two_tries_s2_49(host: Child, task: int, state: str) -> None:
    """The rest is a minute, and the routine has left long before a test would give up."""
    body = "def make():\n    ctx.note('tried')\n    raise OSError\n"
    start(
        host,
        task,
        state,
        f"{body}try:\n    ctx.step('a', make, retries=1, backoff=60)\nfinally:\n    print(f'left {{ctx.task}}')",
    )
    host.wait(Noted, lambda frame: (frame.task, frame.text) == (task, "tried"))
    host.cancel(task, cause="attempt_over")

    assert host.outcome(task).is_dropped
    host.line(f"left {task}")
    assert noted(host, task) == ["tried"]
