"""What a task has passed already, and where its routine comes by now: the book of one run, made from a grant. Pure.

A routine starts from the top each time. A point is found by its name and occurrence, never by its position, so code
may be swapped, and steps may be added, while tasks are under way (S2-16 … S2-20).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from msgspec import Raw
from stateous_contract.limits import DECISIONS_BYTES_MAX
from stateous_contract.messages import Grant, PassedStep, encode

# Beside the newest points, and the names that are bound to them, stand run, node, count and hash.
_VISITED_BYTES_MAX: Final = DECISIONS_BYTES_MAX // 2
_BINDINGS_BYTES_MAX: Final = DECISIONS_BYTES_MAX // 2 - 2_048


class Point(NamedTuple):
    """One durable point: a name, and which time the code comes by it, from 1."""

    name: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.name}#{self.occurrence}"


class Replay:
    """The book of one run.

    `version` is that of the handler. `rest_after` is the number after which more checkpoints are to be had from the
    control plane; None when all are here. `is_strict`: the routine is held to what it passed.
    """

    def __init__(self, grant: Grant, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        self.task = grant.task
        self.token = grant.token or grant.routine
        self.version = grant.version or 1
        self.rest_after: int | None = None
        self._values: dict[Point, bytes] = {}
        self._answers = {Point(each.key, each.occurrence): bytes(each.answer) for each in grant.answers or ()}
        self._unmet: dict[Point, None] = {}
        self._inherited: set[Point] = set()
        self._met: set[Point] = set()
        self._visited: list[Point] = []
        self._bindings: dict[str, Point] = {}
        self._steps: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._under_way: set[Point] = set()
        self._working: set[Point] = set()
        self._waiting: list[Callable[[], None]] = []
        self.take(grant.checkpoints or (), is_last=not grant.checkpoints_more)

    def take(self, passed: Iterable[PassedStep], *, is_last: bool) -> None:
        """Take in checkpoints, in the order in which they were written."""
        for each in passed:
            point = Point(each.step, each.occurrence)
            self._values[point] = bytes(each.value)
            self.rest_after = each.seq
            if point not in self._met:
                self._unmet[point] = None
            if each.seq <= 0:
                self._inherited.add(point)
        if is_last:
            self.rest_after = None
        elif self.rest_after is None:
            self.rest_after = 0

    # Where the code comes by.

    def step(self, name: str, occurrence: int | None) -> Point:
        """Return the point of a step or checkpoint; without an occurrence it is the next one of that name.

        Until `leave` it is under way. Raises RuntimeError: one of that name is, and which is which would depend on who
        is faster (DX-20).
        """
        point = _next(self._steps, name, occurrence)
        before = Point(name, point.occurrence - 1)
        if point in self._under_way or (occurrence is None and before in self._under_way):
            raise RuntimeError(
                f"the step {name!r} begins while it is under way; steps that run side by side need names of their "
                "own, or an occurrence"
            )
        self._under_way.add(point)
        return point

    def leave(self, point: Point) -> None:
        """A step is over, however it ended."""
        self._under_way.discard(point)

    def question(self, key: str, occurrence: int | None) -> Point:
        """Return the point of a question; without an occurrence it is the next one of that key (DX-07)."""
        return _next(self._questions, key, occurrence)

    def value_of(self, point: Point) -> bytes | None:
        """Return the value that stands for a step, as JSON, or None."""
        return self._values.get(point)

    def answer_of(self, point: Point) -> bytes | None:
        """Return the answer that was given to a question, as JSON, or None."""
        return self._answers.get(point)

    def keep(self, point: Point, value: bytes) -> None:
        """A step was passed with the value that stands."""
        self._values[point] = value

    def keep_answer(self, point: Point, answer: bytes) -> None:
        """A question was answered."""
        self._answers[point] = answer

    def visit(self, point: Point, *, is_step: bool = True) -> None:
        """The code has passed a point."""
        if is_step:
            self._met.add(point)
            self._unmet.pop(point, None)
            self._bindings.pop(point.name, None)
            self._bindings[point.name] = point
        self._visited.append(point)

    # Functions of steps: nothing parks while one runs.

    def begin(self, point: Point) -> None:
        """A step's function begins."""
        self._working.add(point)

    def end(self, point: Point) -> None:
        """A step's function has ended, and its value is kept or never will be."""
        self._working.discard(point)
        if not self._working:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    @property
    def is_quiet(self) -> bool:
        """Whether no step's function runs."""
        return not self._working

    def when_quiet(self, call: Callable[[], None]) -> None:
        """Call when no step's function runs: now, or in the thread that ends the last one."""
        if self._working:
            self._waiting.append(call)
        else:
            call()

    # What is told of the run.

    def unmet(self) -> list[str]:
        """Return the steps that stand and that the code did not come by: it is not what it was (S2-13)."""
        return [str(point) for point in self._unmet]

    def first_unmet(self, *, is_of_child: bool = False) -> Point | None:
        """Return the oldest of them, or None.

        `is_of_child`: what is new begins a child or waits for one. What a retry took over does not speak against that:
        children that had not ended were left behind, and the steps after them were not (C14).
        """
        unmet = (each for each in self._unmet if not (is_of_child and each in self._inherited))
        return next(unmet, None)

    def key_of(self, point: Point) -> str:
        """Return a key of one step of one task, the same in every attempt, for services that take such keys."""
        return f"{self.token}.{self.task}.{self.version}.{point}"

    def decisions(self) -> Raw:
        """Return `locked_decisions`: where the run is, and by what it got there (S1-50). At most 64 KiB."""
        visited, older = _newest(list(map(str, self._visited)), _VISITED_BYTES_MAX)
        # Two texts stand for each binding, with a colon and four quotes: the padding stands for those.
        bound, _ = _newest(
            [f"{name}{point}    " for name, point in self._bindings.items()], _BINDINGS_BYTES_MAX
        )
        bindings = list(self._bindings.items())[len(self._bindings) - len(bound) :]
        told: dict[str, Any] = {
            "run": f"{self.task}.{self.version}",
            "node": str(self._visited[-1]) if self._visited else None,
            "visited": visited,
            "bindings": {name: str(point) for name, point in bindings},
        }
        if older:
            told["older"] = {"count": len(older), "sha256": sha256("\n".join(older).encode()).hexdigest()}
        return Raw(encode(told))


def _next(counts: Counter[str], name: str, occurrence: int | None) -> Point:
    if occurrence is None:
        occurrence = counts[name] + 1
    counts[name] = max(counts[name], occurrence)
    return Point(name, occurrence)


def _newest(names: list[str], bytes_max: int) -> tuple[list[str], list[str]]:
    """Return the newest names that fit as JSON texts, in their order, and those before them."""
    size = 0
    for place in range(len(names) - 1, -1, -1):
        size += len(encode(names[place])) + 1
        if size > bytes_max:
            return names[place + 1 :], names[: place + 1]
    return names, []
