"""Workers and people for the engine's tests of supervision: requests as they come through the door."""

from __future__ import annotations

import json
from typing import Any

from control.engine.planes import ask as claim_of
from control.engine.planes import sql
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Ask, Asked, Checkpoint, Grant, Park, Parked, Report, Signalled, Wait

from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.people import QuestionView, TaskView

DECISIONS = {"run": "r1", "node": "build#1", "visited": ["build#1"], "bindings": {"url": "build#1"}}
HOLDER: dict[str, Any] = {"supervisor": "box", "instance": "i1"}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


async def start_and_claim(one: ControlPlane, name: str = "T", **more: Any) -> Grant:
    await one.start_token(name, None)
    return await claim(one, **more)


async def claim(one: ControlPlane, *states: str, **more: Any) -> Grant:
    (grant,) = await one.claim(claim_of(*(states or ("coding",)), **more))
    return grant


async def ask(one: ControlPlane, task: int, key: str = "go", *, attempt: int = 1, **more: Any) -> Asked:
    said: dict[str, Any] = {
        "key": key,
        "occurrence": 1,
        "data": raw({"diff": "…", "n": 2**70}),
        "ttl_s": 3600.0,
        "locked_decisions": raw(DECISIONS),
    }
    return await one.supervision.ask(task, Ask(**HOLDER, attempt=attempt, **said | more))


async def park(one: ControlPlane, task: int, *, attempt: int = 1, **more: Any) -> Parked:
    said: dict[str, Any] = {"wait": Wait(kind="pause"), "locked_decisions": raw(DECISIONS)}
    return await one.supervision.park(task, Park(**HOLDER, attempt=attempt, **said | more))


async def sleep(one: ControlPlane, task: int, for_s: float, *, attempt: int = 1, step: str = "nap") -> Parked:
    return await park(
        one, task, attempt=attempt, wait=Wait(kind="sleep", for_s=for_s), step=step, occurrence=1
    )


async def await_signal(
    one: ControlPlane, task: int, name: str = "go", *, attempt: int = 1, step: str = "here", **more: Any
) -> Parked:
    wait = Wait(kind="signal", name=name, **more)
    return await park(one, task, attempt=attempt, wait=wait, step=step, occurrence=1)


async def send(one: ControlPlane, task: int, name: str = "go", payload: Any = None, **more: Any) -> Signalled:
    said = {"key": None, "actor": "ann"} | more
    return await one.supervision.signal(task, name, None if payload is None else raw(payload), **said)


async def store(one: ControlPlane, task: int, step: str, value: Any, *, attempt: int = 1, **more: Any) -> Any:
    said: dict[str, Any] = {"occurrence": 1} | more
    kept = await one.supervision.store(
        task, Checkpoint(**HOLDER, attempt=attempt, step=step, value=raw(value), **said)
    )
    return json.loads(bytes(kept.value))


async def answer(
    one: ControlPlane, question: int, value: Any = True, *, generation: int | None = None, actor: str = "ann"
) -> QuestionView:
    if generation is None:
        generation = (await one.supervision.question(question)).generation
    return await one.supervision.answer(question, raw(value), generation, actor)


async def steer(
    one: ControlPlane, verb: str, task: int, generation: int | None = None, **more: Any
) -> TaskView:
    if generation is None:
        generation = (await one.supervision.task(task)).generation
    if verb == "cancel":
        return await one.supervision.cancel(task, generation)
    if verb == "retry":
        said = {"token": None, "is_copying": True, "actor": "ann"} | more
        return await one.supervision.retry(task, generation, **said)
    change = one.supervision.pause if verb == "pause" else one.supervision.resume
    return await change(task, generation, "ann")


async def finish(one: ControlPlane, task: int, attempt: int, event: str = "stopped") -> None:
    await one.report(task, Report(kind="event", event=event, attempt=attempt, **HOLDER))


async def log_of(one: ControlPlane, task: int) -> list[str]:
    return [entry.kind for entry in (await one.supervision.log(task, limit=1000, before=None)).entries]


async def code_of(call: Any) -> Code | None:
    """Return the code that a call is refused with, None for none."""
    try:
        await call
    except Refused as refused:
        return refused.code
    return None


async def check_whole(url: str) -> None:
    """What holds of a database in which nothing is half done, whatever happened (S1-17, S1-24, S1-106, S1-107)."""
    assert (
        await sql(url, "SELECT id FROM tasks WHERE current_state = 'parked' AND watchdog_stop_reason IS NULL")
        == []
    )
    gaps = """SELECT t.id FROM tasks t LEFT JOIN task_log g ON g.task_id = t.id GROUP BY t.id
      HAVING t.log_seq <> count(g.*) OR (count(g.*) > 0 AND (min(g.sequence_num) <> 1 OR max(g.sequence_num) <> t.log_seq))"""
    assert await sql(url, gaps) == [], "a log has a gap"
    lost = """SELECT q.id FROM questions q JOIN tasks t ON t.id = q.task_id WHERE (q.status = 'pending')
      <> (t.current_state = 'parked' AND t.watchdog_stop_reason = 'awaiting_user_answer:' || q.key)
      AND q.status = 'pending'"""
    assert await sql(url, lost) == [], "a question is open and its task does not wait for it"
    stuck = """SELECT t.id FROM tasks t WHERE t.watchdog_stop_reason LIKE 'awaiting_user_answer:%'
      AND t.current_state = 'parked' AND NOT EXISTS (
        SELECT 1 FROM questions q WHERE q.task_id = t.id AND q.status = 'pending')"""
    assert await sql(url, stuck) == [], "a task waits for no question"
    unready = "SELECT id FROM tasks WHERE watchdog_stop_reason LIKE 'resuming:%' AND current_state = 'parked' AND coalesce(ready_at, held_ready_at) IS NULL"
    assert await sql(url, unready) == [], "a task is resuming and will never be handed out"
    asleep = """SELECT t.id FROM tasks t LEFT JOIN waits w ON w.task_id = t.id AND w.is_open
      WHERE (w.task_id IS NOT NULL) <> (t.current_state = 'parked' AND t.watchdog_stop_reason ~ '^(sleeping|awaiting_(signal|any|result)):')"""
    assert await sql(url, asleep) == [], "a task waits, and no row says for what"
    leases = (
        "SELECT l.task_id FROM leases l JOIN tasks t ON t.id = l.task_id WHERE t.current_state <> 'running'"
    )
    assert await sql(url, leases) == [], "a lease outlived its attempt"
