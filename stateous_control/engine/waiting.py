"""Waits and signals as operations: what the book must hold, and which rule decides. It decides nothing."""

from __future__ import annotations

from msgspec import UNSET, Raw
from stateous_contract.messages import Park, Parked, Signalled

from stateous_control.engine.gathering import Operation
from stateous_control.rules import waits
from stateous_control.rules.awaited import Signal
from stateous_control.rules.durable import is_pausing
from stateous_control.rules.views import stamp
from stateous_control.store.books import OpenBook, Wanted
from stateous_control.store.supervised import OWN_VERSION, Supervised
from stateous_control.store.waiting import Awaited


def park(task_id: int, said: Park) -> Operation[Parked]:
    """Park for what ends a wait; one that is over already parks nothing."""
    assert said.step is not None
    assert said.occurrence is not None

    def apply(opened: OpenBook) -> Parked:
        task = opened.task(task_id)
        value = waits.park(opened.book, task, said)
        due_at = None if task.wait is None else task.wait.due_at
        return Parked(
            status="parked" if value is None else "ready",
            generation=task.generation,
            value=UNSET if value is None else value,
            until=UNSET if due_at is None else stamp(due_at),
            pause=value is not None and is_pausing(opened.book, task),
        )

    said_parts = said.wait.of or [said.wait]
    awaited = Awaited(
        waits={(task_id, said.step, said.occurrence)},
        names={(task_id, part.name) for part in said_parts if part.name is not None},
    )
    place = (task_id, OWN_VERSION, said.step, said.occurrence)
    children = {part.task for part in said_parts if part.task is not None}
    wanted = Wanted(tasks={task_id} | children, supervision=Supervised(checkpoints={place}, awaited=awaited))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def signal_task(
    task_id: int, name: str, payload: Raw | None, *, key: str | None, actor: str
) -> Operation[Signalled]:
    """Send a signal to a task."""

    def apply(opened: OpenBook) -> Signalled:
        task = opened.task(task_id)
        signal = waits.signal_task(opened.book, task, name, payload, key=key, actor=actor)
        return _sent(signal, task=task_id)

    awaited = Awaited(tasks={(task_id, key)})
    wanted = Wanted(tasks={task_id}, supervision=Supervised(awaited=awaited))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def signal_token(
    owner: str, token: str, name: str, payload: Raw | None, *, key: str | None, actor: str
) -> Operation[Signalled]:
    """Send a signal to whichever task of a token waits for it first."""

    def apply(opened: OpenBook) -> Signalled:
        found = opened.token(owner, token)
        signal = waits.signal_token(opened.book, found, name, payload, key=key, actor=actor)
        return _sent(signal, token=token)

    awaited = Awaited(tokens={(owner, token, key)})
    wanted = Wanted(names={(owner, token)}, supervision=Supervised(awaited=awaited))
    return Operation(wanted, apply, frozenset({(owner, token.lower())}), 1)


def _sent(signal: Signal, *, task: int | None = None, token: str | None = None) -> Signalled:
    return Signalled(
        name=signal.name,
        delivered=signal.taken_by is not None,
        task=task,
        token=token,
        duplicate=not signal.is_new,
    )
