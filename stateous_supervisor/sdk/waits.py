"""The courses of waits and children: what each says, and how what came of it is read. Pure.

A wait parks once. Its times are the control plane's and count from the first park, whatever becomes of attempts
(DX-11); what ended it is the checkpoint of its point, so a replay comes by without a word (S2-09, S2-31 … S2-34).
Signals, results and children have names of their own beside those of steps: ``signal:go``, ``result:17``,
``spawn:reports.publish``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from stateous_contract.limits import RETRIES_MAX, ROUTINE_PATTERN, STEP_CHARS_MAX, WAIT_PARTS_MAX
from stateous_contract.messages import Parked as Reached
from stateous_contract.messages import Spawned

from stateous_supervisor.sdk.durable import (
    Course,
    hold_to_passed,
    name_checked,
    occurrence_checked,
    park,
    send,
    stored_of,
)
from stateous_supervisor.sdk.endings import Parked
from stateous_supervisor.sdk.marks import duration_s
from stateous_supervisor.sdk.replay import Point, Replay
from stateous_supervisor.sdk.values import json_size_checked, json_text, read
from stateous_supervisor.sdk.waiting import (
    Awaited,
    Child,
    Ended,
    Finished,
    Received,
    Result,
    Signal,
    Sleep,
    Slept,
    TimedOut,
)

Said = Mapping[str, Any]
Time = float | str | None
E = TypeVar("E", Received, Finished)

_reached: Final = msgspec.json.Decoder(Reached)
_spawned: Final = msgspec.json.Decoder(Spawned)
_ROUTINE: Final = re.compile(ROUTINE_PATTERN, re.ASCII)


def sleep(replay: Replay, name: str, until: Sleep, occurrence: int | None) -> Course[None]:
    """Sleep until the time has come (S2-09, S2-10)."""
    point = replay.step(name_checked(name, "sleep", STEP_CHARS_MAX), occurrence_checked(occurrence))
    yield from _wait(replay, point, _said(until), f"sleeping:{point}")


def signal(replay: Replay, name: str, timeout: Time, occurrence: int | None) -> Course[Received | TimedOut]:
    """Wait for a signal; one that was sent before is taken at once (DX-09)."""
    said = _said(Signal(name))
    point = replay.step(f"signal:{name}", occurrence_checked(occurrence))
    reason = f"awaiting_signal:{name}#{point.occurrence}"
    return _read(Received, (yield from _wait(replay, point, said | _timeout(timeout), reason)))


def result(replay: Replay, child: Child | int, timeout: Time) -> Course[Finished | TimedOut]:
    """Wait for the end of a child; a timeout cancels it and what it started (S2-40)."""
    said = _said(Result(child))
    point = replay.step(f"result:{said['task']}", None)
    reason = f"awaiting_result:{said['task']}"
    return _read(Finished, (yield from _wait(replay, point, said | _timeout(timeout), reason)))


def first(
    replay: Replay, name: str, waits: Sequence[Awaited], timeout: Time, occurrence: int | None
) -> Course[Ended]:
    """Wait for whichever of several things comes first; of the others nothing is taken or ended."""
    if not 1 <= len(waits) <= WAIT_PARTS_MAX:
        raise ValueError(f"first takes 1 to {WAIT_PARTS_MAX} waits, not {len(waits)}")
    said = {"kind": "any", "of": [_said(each) for each in waits], **_timeout(timeout)}
    point = replay.step(name_checked(name, "wait", STEP_CHARS_MAX), occurrence_checked(occurrence))
    return _ended((yield from _wait(replay, point, said, f"awaiting_any:{point}")))


def spawn(
    replay: Replay, given: tuple[str, int, Any], name: str | None, retries: int, occurrence: int | None
) -> Course[Child]:
    """Start a child, once: a replay is given the same one (S2-34). `given` is its routine, version and input."""
    routine, version, value = given
    _check_spawn(routine, retries)
    step = name_checked(f"spawn:{name or routine}", "child's name", STEP_CHARS_MAX)
    what = f"the input of {routine!r}"
    body = {
        "routine": routine,
        "version": occurrence_checked(version),
        "input": Raw(json_size_checked(json_text(value, what), what)),
        "retries": retries,
    }
    point = replay.step(step, occurrence_checked(occurrence))
    try:
        stored = yield from stored_of(replay, point)
        if stored is None:
            yield from hold_to_passed(replay, str(point), is_of_child=True)
            place = {"step": point.name, "occurrence": point.occurrence}
            stored = (yield from send("spawn", {**place, **body})).body
            replay.keep(point, stored)
        replay.visit(point)
    finally:
        replay.leave(point)
    return Child(_spawned.decode(stored).task, routine)


def _check_spawn(routine: Any, retries: Any) -> None:
    if not isinstance(routine, str) or _ROUTINE.fullmatch(routine) is None:
        raise ValueError(
            f"spawn takes a routine that is marked with @routine, or its name, not {routine!r:.150}"
        )
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise ValueError(f"retries is {retries!r:.150}; it must be a whole number from 0 to {RETRIES_MAX}")


def _wait(replay: Replay, point: Point, said: Said, reason: str) -> Course[dict[str, Any]]:
    """Park until a wait is over, or come by it; return what stands for it."""
    try:
        stored = yield from stored_of(replay, point)
        if stored is None:
            yield from hold_to_passed(replay, str(point), is_of_child=_is_of_child(said))
            place = {"step": point.name, "occurrence": point.occurrence}
            reply = yield from park(replay, "park", {**place, "wait": said})
            if reply.is_parked:
                raise Parked(reason)
            value = _reached.decode(reply.body).value
            stored = bytes(value) if isinstance(value, Raw) else b"null"
            replay.keep(point, stored)
        replay.visit(point)
    finally:
        replay.leave(point)
    return _told(point, read(stored))


def _is_of_child(said: Said) -> bool:
    return any(each["kind"] == "result" for each in said.get("of", [said]))


def _told(point: Point, stored: Any) -> dict[str, Any]:
    """Return what came of a wait. Raises RuntimeError: the point stands for something else."""
    if isinstance(stored, dict) and "outcome" in stored:
        return stored
    raise RuntimeError(
        f"{str(point)!r} was passed as a step and is a wait by now; a changed routine needs another version"
    )


def _ended(told: dict[str, Any]) -> Ended:
    """Return what came first as a value."""
    kind, index = told["outcome"], told.get("index", 0)
    if kind == "timeout":
        return TimedOut()
    if kind == "slept":
        return Slept(index)
    if kind == "signal":
        return Received(told["name"], told.get("payload"), index)
    return Finished(
        told["task"], told["state"], told.get("result"), told.get("reason"), told.get("error"), index
    )


def _read(kind: type[E], told: dict[str, Any]) -> E | TimedOut:
    ended = _ended(told)
    if isinstance(ended, kind | TimedOut):
        return ended
    raise RuntimeError(f"the wait ended with {told['outcome']!r}, which it was not for")


def _said(wait: Any) -> dict[str, Any]:
    """Return a wait as it is sent."""
    if isinstance(wait, Sleep):
        return {"kind": "sleep", **_until(wait.until)}
    if isinstance(wait, Signal):
        name = name_checked(wait.name, "signal's name", STEP_CHARS_MAX - len("signal:"))
        if "/" in name:
            raise ValueError(f"a signal's name has no '/', and this one is {name!r}")
        return {"kind": "signal", "name": name}
    if isinstance(wait, Result):
        task = wait.child.task if isinstance(wait.child, Child) else wait.child
        if isinstance(task, bool) or not isinstance(task, int) or task < 1:
            raise TypeError(f"a result is that of a Child, as spawn returns it, not {task!r:.150}")
        return {"kind": "result", "task": task}
    raise TypeError(f"first takes Sleep, Signal and Result, not {wait!r:.150}")


def _until(until: float | str | datetime) -> dict[str, Any]:
    if not isinstance(until, datetime):
        return {"for_s": duration_s(until, "the time of a sleep")}
    if until.tzinfo is None:
        raise ValueError(
            f"{until.isoformat()} names no moment: it has no offset from UTC; use datetime.now(UTC), for one"
        )
    return {"until": until.isoformat()}


def _timeout(timeout: Time) -> dict[str, Any]:
    return {} if timeout is None else {"timeout_s": duration_s(timeout, "timeout")}
