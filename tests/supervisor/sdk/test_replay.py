"""The book of one run: points are found by name and occurrence, and what is told of the run is bounded."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from stateous_contract.limits import DECISIONS_BYTES_MAX
from stateous_contract.messages import GivenAnswer, Grant, PassedStep
from supervisor.sdk.ports import grant

from stateous_supervisor.sdk.replay import Point, Replay


def granted(*steps: tuple[str, int, Any], answers: dict[str, Any] | None = None, more: bool = False) -> Grant:
    passed = [
        PassedStep(step=name, occurrence=number, seq=seq, value=Raw(json.dumps(value).encode()))
        for seq, (name, number, value) in enumerate(steps, 3)
    ]
    given = [
        GivenAnswer(key=key, occurrence=1, answer=Raw(json.dumps(value).encode()))
        for key, value in (answers or {}).items()
    ]
    return msgspec.structs.replace(grant(), checkpoints=passed, answers=given, checkpoints_more=more)


def decided(replay: Replay) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(bytes(replay.decisions()))
    return told


def test_a_name_comes_by_again_as_its_next_occurrence_s2_20() -> None:
    replay = Replay(granted())
    points = [replay.step("a", None)]
    replay.leave(points[0])
    points += [replay.step("b", None), replay.step("a", None), replay.question("a", None)]

    assert list(map(str, points)) == ["a#1", "b#1", "a#2", "a#1"]


def test_an_occurrence_of_ones_own_may_come_by_twice_s2_19() -> None:
    replay = Replay(granted(("a", 2, "second")))
    for _ in range(2):
        point = replay.step("a", 2)
        replay.leave(point)
        assert replay.value_of(point) == b'"second"'
    assert replay.step("a", None) == Point("a", 3)


def test_swapped_steps_find_their_values_s2_16_s2_17() -> None:
    replay = Replay(granted(("a", 1, 1), ("b", 1, 2)))

    assert [replay.value_of(replay.step(name, None)) for name in ("b", "a", "renamed")] == [b"2", b"1", None]


@pytest.mark.parametrize("occurrence", [None, 1])
def test_a_step_that_begins_while_it_is_under_way_is_refused_dx_20(occurrence: int | None) -> None:
    replay = Replay(granted())
    replay.step("fetch", None)

    with pytest.raises(RuntimeError, match="'fetch' begins while it is under way"):
        replay.step("fetch", occurrence)

    assert replay.step("fetch", 7) == Point("fetch", 7)


def test_checkpoints_that_were_not_come_by_are_told_s2_13() -> None:
    replay = Replay(granted(("a", 1, 1), ("gone", 1, 2)))
    replay.visit(replay.step("a", None))

    assert replay.unmet() == ["gone#1"]


def test_nothing_parks_while_a_step_runs_s1_70() -> None:
    replay = Replay(granted())
    heard: list[str] = []
    replay.begin(Point("a", 1))
    replay.begin(Point("b", 1))
    replay.when_quiet(lambda: heard.append("quiet"))
    replay.end(Point("a", 1))
    assert heard == []

    replay.end(Point("b", 1))
    replay.when_quiet(lambda: heard.append("at once"))

    assert heard == ["quiet", "at once"]


def test_decisions_say_where_the_run_is_s1_50() -> None:
    replay = Replay(granted())
    assert decided(replay) == {"run": "7.1", "node": None, "visited": [], "bindings": {}}

    for name in ("a", "b", "a"):
        point = replay.step(name, None)
        replay.visit(point)
        replay.leave(point)
    replay.visit(replay.question("ok", None), is_step=False)

    assert decided(replay) == {
        "run": "7.1",
        "node": "ok#1",
        "visited": ["a#1", "b#1", "a#2", "ok#1"],
        "bindings": {"b": "b#1", "a": "a#2"},
    }


@pytest.mark.parametrize(
    "name", ["n", "a name of some length, as people choose them " * 2, "名" * 128, '"' * 128]
)
def test_decisions_never_outgrow_their_limit(name: str) -> None:
    replay = Replay(granted())
    points = [Point(f"{name[:120]}{number}", 1) for number in range(20_000)]
    for point in points:
        replay.visit(point)

    text = bytes(replay.decisions())
    told = json.loads(text)

    assert len(text) <= DECISIONS_BYTES_MAX
    assert told["visited"][-1] == told["node"] == str(points[-1])
    assert len(told["visited"]) > 40
    assert len(told["bindings"]) > 20
    older = points[: told["older"]["count"]]
    assert len(older) + len(told["visited"]) == len(points)
    assert told["older"]["sha256"] == sha256("\n".join(map(str, older)).encode()).hexdigest()


def test_the_rest_is_read_after_what_the_grant_brought() -> None:
    replay = Replay(granted(("a", 1, 1), ("b", 1, 2), more=True))
    assert replay.rest_after == 4

    replay.take([PassedStep(step="c", occurrence=1, seq=9, value=Raw(b"3"))], is_last=True)

    assert replay.rest_after is None
    assert replay.value_of(Point("c", 1)) == b"3"


def test_only_what_a_retry_took_over_is_no_reason_against_a_child_that_begins_anew_c14() -> None:
    """Taken over are those numbered up to 0; of a task's own points each must be come by before a child, too (S2-13)."""
    passed = [
        PassedStep(step=name, occurrence=1, seq=seq, value=Raw(b"1"))
        for name, seq in (("old", -1), ("older", 0), ("own", 1))
    ]
    replay = Replay(msgspec.structs.replace(grant(), checkpoints=passed), is_strict=True)

    assert replay.first_unmet() == Point("old", 1)
    assert replay.first_unmet(is_of_child=True) == Point("own", 1)
    replay.visit(Point("own", 1))
    assert replay.first_unmet(is_of_child=True) is None
    assert replay.first_unmet() == Point("old", 1)
