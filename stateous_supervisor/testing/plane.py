"""A control plane for one task, whose clock jumps: what it was given comes when it is due, and nothing is waited for.

What ends a wait is decided as the real one does (S2-09, S2-32, S2-40, DX-09): times count from the first park, the end
that came first counts, and a signal that nobody waits for is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Raw
from stateous_contract.messages import GivenAnswer, PassedStep, Spawned, encode

from stateous_supervisor.host.failures import describe
from stateous_supervisor.host.rehearsal import asked
from stateous_supervisor.sdk.durable import Reply
from stateous_supervisor.sdk.marks import duration_s
from stateous_supervisor.sdk.replay import Point
from stateous_supervisor.sdk.values import json_text, read
from stateous_supervisor.testing.once import Place, Question

PARKED: Final = Reply(200, b'{"status":"parked","generation":1}', is_parked=True)
READY: Final = Reply(200, b'{"status":"ready","generation":1}')
# The task itself is 1.
_FIRST_CHILD: Final = 2

Given = Mapping[Place, Any]


@dataclass(frozen=True)
class After:
    """What comes later: `value`, a time after it was asked for, started or, for a signal, after the run began.

    `time` is in seconds, or text such as ``"2h"``.
    """

    time: float | str
    value: Any = None


@dataclass
class _Signal:
    at: datetime
    name: str
    payload: Any
    is_taken: bool = False


@dataclass
class _Child:
    """`at` is when it ends, and `told` how; None: never."""

    at: datetime | None
    told: dict[str, Any]


@dataclass(frozen=True)
class _End:
    """What ends a wait. `index` is -1 for the timeout."""

    at: datetime
    index: int
    told: dict[str, Any]
    signal: _Signal | None = None


class Plane:
    """What stands of the task, and what is to come.

    Args:
        now: when the run begins.
        answers: of people, by question.
        signals: payloads, by name.
        children: results by the child's name; an exception is a failure.
    """

    def __init__(self, now: datetime, *, answers: Given, signals: Given, children: Given) -> None:
        self.now = now
        self.points: dict[Point, bytes] = {}
        self.answers: dict[Point, bytes] = {}
        self.questions: list[Question] = []
        self._answers = answers
        self._ends = children
        self._signals = [
            _Signal(self._due(value), _name(place), _value(value)) for place, value in signals.items()
        ]
        self._children: list[_Child] = []
        self._parked_at: dict[Point, datetime] = {}
        self._open: tuple[Point, dict[str, Any] | Question] | None = None

    def passed(self) -> list[PassedStep]:
        """Return the checkpoints as a grant has them."""
        return [
            PassedStep(step=point.name, occurrence=point.occurrence, seq=seq, value=Raw(value))
            for seq, (point, value) in enumerate(self.points.items(), 1)
        ]

    def answered(self) -> list[GivenAnswer]:
        """Return the answers as a grant has them."""
        return [
            GivenAnswer(key=point.name, occurrence=point.occurrence, answer=Raw(value))
            for point, value in self.answers.items()
        ]

    # What a routine asks.

    def keep(self, point: Point, value: Any) -> Reply:
        """Store a step's value; the first one stands (S2-30)."""
        return Reply(200, self.points.setdefault(point, json_text(value, f"the value of {point}").encode()))

    def ask(self, question: Question) -> Reply:
        """Ask people. Raises ValueError: what they are to answer is none of the choices."""
        self.questions.append(question)
        self._open = (Point(question.key, question.occurrence), question)
        answer = _value(_given(self._answers, self._open[0], None))
        if answer is not None and question.choices is not None and answer not in question.choices:
            raise ValueError(
                f"the answer {answer!r} to {question.key!r} is none of its choices: {question.choices!r}"
            )
        return Reply(201, asked(len(self.questions), None), is_parked=True)

    def spawn(self, point: Point) -> Reply:
        """Start a child. It ends as the test has it, or never."""
        given = _given(self._ends, Point(point.name.removeprefix("spawn:"), point.occurrence), _NEVER)
        child = _Child(None if given is _NEVER else self._due(given), _told_of(_value(given)))
        self._children.append(child)
        task = _FIRST_CHILD + len(self._children) - 1
        return self.keep(point, read(encode(Spawned(task=task))))

    def park(self, point: Point, wait: dict[str, Any]) -> Reply:
        """Park, or say what ended the wait already."""
        self._parked_at.setdefault(point, self.now)
        end = self._first_end(point, wait)
        if end is None or end.at > self.now:
            self._open = (point, wait)
            return PARKED
        return Reply(200, encode({**read(READY.body), "value": Raw(self._pass(point, wait, end))}))

    # What comes.

    def wake(self) -> bool:
        """Jump to the end of what the task waits for, if it waits; say whether there is one (S2-09)."""
        if self._open is None:
            return True
        point, wait = self._open
        end = self._answer(point, wait) if isinstance(wait, Question) else self._first_end(point, wait)
        if end is None:
            return False
        self._open = None
        self.now = max(self.now, end.at)
        if isinstance(wait, Question):
            self.answers[point] = json_text(end.told["answer"], f"the answer to {point.name!r}").encode()
        else:
            self._pass(point, wait, end)
        return True

    def _answer(self, point: Point, question: Question) -> _End | None:
        given = _given(self._answers, point, _NEVER)
        due = None if given is _NEVER else self._due(given)
        if due is None or due > self.now + timedelta(seconds=question.ttl_s):
            return None
        return _End(due, 0, {"answer": _value(given)})

    def _first_end(self, point: Point, wait: dict[str, Any]) -> _End | None:
        ends = self._ends_of(self._parked_at[point], wait)
        return min(ends, key=lambda end: (end.at, end.index), default=None)

    def _ends_of(self, since: datetime, wait: dict[str, Any]) -> Iterator[_End]:
        if "timeout_s" in wait:
            yield _End(since + timedelta(seconds=wait["timeout_s"]), -1, {"outcome": "timeout"})
        for index, part in enumerate(wait.get("of", [wait])):
            end = self._end_of(since, index, part)
            if end is not None:
                yield end

    def _end_of(self, since: datetime, index: int, part: dict[str, Any]) -> _End | None:
        if part["kind"] == "sleep":
            until = part.get("until")
            at = datetime.fromisoformat(until) if until else since + timedelta(seconds=part["for_s"])
            return _End(at, index, {"outcome": "slept"})
        if part["kind"] == "result":
            child = self._child(part["task"])
            told = child.told | {"outcome": "result", "task": part["task"]}
            return None if child.at is None else _End(child.at, index, told)
        waiting = (each for each in self._signals if each.name == part["name"] and not each.is_taken)
        signal = min(waiting, key=lambda each: each.at, default=None)
        if signal is None:
            return None
        told = {"outcome": "signal", "name": signal.name, "payload": signal.payload}
        return _End(signal.at, index, told, signal)

    def _pass(self, point: Point, wait: dict[str, Any], end: _End) -> bytes:
        if end.signal is not None:
            end.signal.is_taken = True
        if end.index < 0 and wait["kind"] == "result":
            gone = {"state": "cancelled", "reason": "cancelled:result_wait_timeout", "error": None}
            self._children[wait["task"] - _FIRST_CHILD] = _Child(self.now, gone)
        is_one_of_many = end.index >= 0 and len(wait.get("of", ())) > 1
        return self.keep(point, end.told | ({"index": end.index} if is_one_of_many else {})).body

    def _child(self, task: int) -> _Child:
        place = task - _FIRST_CHILD
        if not 0 <= place < len(self._children):
            raise ValueError(f"task {task} is no child of this task")
        return self._children[place]

    def _due(self, given: Any) -> datetime:
        late_s = duration_s(given.time, "the time of After") if isinstance(given, After) else 0.0
        return self.now + timedelta(seconds=late_s)


_NEVER: Final = After(1)


def _given(given: Given, point: Point, otherwise: Any) -> Any:
    """Return what is given for a point: by name and occurrence, or by name alone for the first."""
    if (point.name, point.occurrence) in given:
        return given[point.name, point.occurrence]
    return given.get(point.name, otherwise) if point.occurrence == 1 else otherwise


def _name(place: Place) -> str:
    return place if isinstance(place, str) else place[0]


def _value(given: Any) -> Any:
    return given.value if isinstance(given, After) else given


def _told_of(ended: Any) -> dict[str, Any]:
    if not isinstance(ended, BaseException):
        return {"state": "completed", "result": ended}
    return {"state": "failed", "reason": "failed:exception", "error": describe(ended).text}
