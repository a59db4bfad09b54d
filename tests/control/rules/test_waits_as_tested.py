"""What ends a wait in `stateous_supervisor.testing` is what ends it by the rules of the control plane."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from control.rules.supervised import desk, held, outcome, signal, wait
from stateous_contract.messages import Wait

from stateous_control.rules import waits
from stateous_supervisor.sdk.replay import Point
from stateous_supervisor.testing import After
from stateous_supervisor.testing.plane import Plane

HALVES = 24
Sent = list[tuple[int, str]]


def by_the_rules(said: dict[str, Any], sent: Sent) -> Any:
    """What ends the wait while time goes on by half seconds, and signals come at theirs; None: nothing."""
    kitchen = desk()
    task = held(kitchen)
    parts = {"of": [Wait(**each) for each in said["of"]]} if "of" in said else {}
    for half in range(HALVES):
        for number, (_, name) in enumerate(sent):
            if sent[number][0] == half:
                signal(kitchen, task, name, number)
        over = waits.wake(kitchen.book, task) if half else wait(kitchen, task, **said | parts) is not None
        if over or (task.id, 1, "here", 1) in kitchen.book.checkpoints:
            return outcome(kitchen, task)
        kitchen.pass_time(0.5)
    return None


def by_the_kit(said: dict[str, Any], sent: Sent) -> Any:
    kitchen = desk()
    signals: dict[str | tuple[str, int], Any] = {
        (name, number + 1): After(half / 2, number) if half else number
        for number, (half, name) in enumerate(sent)
    }
    plane = Plane(kitchen.book.now, answers={}, signals=signals, children={})
    point = Point("here", 1)
    plane.park(point, json.loads(json.dumps(said)))
    if point not in plane.points and not plane.wake():
        return None
    return (
        json.loads(plane.points[point])
        if plane.now < kitchen.book.now + timedelta(seconds=HALVES / 2)
        else None
    )


@pytest.mark.parametrize("seed", range(60))
def test_both_say_the_same_of_a_wait_dx_09(seed: int) -> None:
    dice = random.Random(seed)
    # Times are whole seconds and signals come between them; two signals never come at once.
    parts: list[dict[str, Any]] = [
        {"kind": "sleep", "for_s": dice.randint(1, 9)} if dice.random() < 0.4
        else {"kind": "signal", "name": dice.choice("ab")}
        for _ in range(dice.randint(1, 4))
    ]  # fmt: skip
    said = parts[0] if dice.random() < 0.4 else {"kind": "any", "of": parts}
    if dice.random() < 0.5 and said["kind"] != "sleep":
        said = said | {"timeout_s": dice.randint(1, 9)}
    halves = [0, *dice.sample(range(1, 20, 2), 3)][dice.randint(0, 2) :]
    sent = [(half, dice.choice("ab")) for half in halves]

    assert by_the_kit(said, sent) == by_the_rules(said, sent), (said, sent)
