"""What the whole history of a life must satisfy when it is over: the invariants, and that nothing was lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fake_lives import Token
from stateous_contract.codes import Refused

from .history import History, Key
from .host import EVENTS
from .model import TERMINAL, Model

ENDINGS = {"completed", "failed", "cancelled"}


def push(plane: Model, token: Token) -> None:
    """Fire from outside what the token's state waits for."""
    for event, payload in EVENTS.get(token.state, []):
        try:
            plane._fire(token.name, event, {"payload": payload}, {})
        except Refused:
            continue
        return


def unstick(plane: Model) -> None:
    """Do what people do in the end: resume what is paused, fire what is waited for."""
    plane.tick()
    for token in plane.tokens.values():
        if token.status == "paused":
            plane._steer(token.name, "resume", {})
    waiting = [task.token for task in plane.tasks.values() if task.status == "waiting"]
    for token in waiting:
        if token.status == "active":
            push(plane, token)
    plane.changed()


def judge(plane: Model, history: History, boxes: Iterable[Any]) -> None:
    """Note every rule that the finished life breaks."""
    for token in plane.tokens.values():
        _judge_token(token, history)
    for key, accepted in history.accepted.items():
        _judge_attempt(key, accepted, history)
    for key, confirmed in history.confirmed:
        if confirmed not in history.accepted[key]:
            history.blame(
                "INV-4", f"{confirmed} was confirmed and is not accepted: {history.accepted[key]}", key
            )
    for key, kept in history.on_disk.items():
        _judge_kept(plane, key, kept, history)
    for box in boxes:
        _judge_box(box, history, may_keep=0 if plane.features else 1)


def _judge_token(token: Token, history: History) -> None:
    kinds = [entry["kind"] for entry in token.history]
    if [entry["seq"] for entry in token.history] != list(range(1, len(kinds) + 1)):
        history.blame("INV-6", f"the history of {token.name} has gaps")
    endings = [number for number, kind in enumerate(kinds) if kind in ENDINGS]
    if len(endings) > 1 or (endings and "entered" in kinds[endings[0] :]):
        history.blame("INV-2", f"{token.name} went on after its end: {kinds}")
    done = [entry["data"]["task"] for entry in token.history if entry["kind"] == "task_done"]
    if len(done) != len(set(done)):
        history.blame("INV-3", f"{token.name} moved twice for a task: {done}")


def _judge_attempt(key: Key, accepted: list[tuple[str, str | None]], history: History) -> None:
    if len(accepted) > 1:
        history.blame("INV-1", f"several outcomes were accepted: {accepted}", key)
    kept = history.on_disk[key]
    if accepted[0] not in kept:
        return  # sent directly while the disk was full; looked at when it was sent
    for earlier in kept[: kept.index(accepted[0])]:
        if (key, earlier) not in history.refused:
            history.blame("A-35", f"{accepted[0]} was accepted, but {earlier} was on disk before it", key)
    if history.returned.get(key) == accepted[0] and key not in history.granted_wrongly:
        made, told = history.made[key], list(dict.fromkeys(history.told[key]))
        if made != told:
            history.blame("A-36", f"said {made}; the control plane has {told}", key)


def _judge_kept(plane: Model, key: Key, kept: list[tuple[str, str | None]], history: History) -> None:
    is_there = any(said in history.accepted[key] for said in kept)
    if not is_there and not plane.is_over(key):
        history.blame("A-35", f"{kept} was on disk, was not delivered, and the attempt goes on", key)


def _judge_box(box: Any, history: History, *, may_keep: int) -> None:
    """Nothing is left. On the baseline nothing can be withdrawn: the id in use stays, for the next process to repeat."""
    disk = box.disk
    ids = sorted(disk.claims)
    left = [*disk.messages.values(), *disk.grants, *(ids if len(ids) > may_keep else ())]
    if left:
        history.blame("drain", f"{box.name} still keeps {left}")


__all__ = ["TERMINAL", "judge", "push", "unstick"]
