"""Names of queues: under which name claims find the tasks of a state or of a routine, version by version.

One text in the column that holds the state (ADR 32): ``coding`` and ``coding#2`` for the versions of a state's routine,
``@reports.publish#1`` for a routine without a graph. What stands before the ``#`` is the kind of work: keys and caps
name it, whatever its version.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "#"
ROUTINE: Final = "@"


def queue_of_state(state: str, version: int) -> str:
    """Return the queue of one version of a state; version 1 has the state's own name, as the baseline knows it."""
    return state if version == 1 else f"{state}{MARK}{version}"


def queue_of(routine: str, version: int) -> str:
    """Return the queue of one version of a routine; no state has such a name."""
    return f"{ROUTINE}{routine}{MARK}{version}"


def kind_of(queue: str) -> str:
    """Return what a queue is for, without the version: a state, or ``@`` and a routine."""
    return queue.partition(MARK)[0]


def version_of(queue: str) -> int:
    """Return the version of a queue."""
    return int(queue.rpartition(MARK)[2]) if MARK in queue else 1


def is_routine(queue: str) -> bool:
    """Say whether a queue is that of a routine without a graph."""
    return queue.startswith(ROUTINE)


def routine_of(queue: str) -> tuple[str, int]:
    """Return the routine and version that a queue's name stands for."""
    routine, _, version = queue[1:].rpartition(MARK)
    return routine, int(version)
