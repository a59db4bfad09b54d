"""A report that comes again because its answer was lost, and what counts as the same report."""

from __future__ import annotations

from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal, unchanged
from msgspec import Raw
from stateous_contract.codes import Code
from stateous_contract.messages import Report, Schedule
from stateous_contract.states import TokenStatus

from stateous_control.rules.digests import digest_of

MINE: dict[str, Any] = {"supervisor": "s", "attempt": 1}
OUTCOMES: list[tuple[str, dict[str, Any]]] = [
    ("event", {"event": "flagged", "payload": {"level": 1}, "context": {"label": "x"}}),
    ("waiting", {"context": {"label": "x"}, "schedules": [{"event": "noted", "after": "1h"}]}),
    ("failed", {"error": "boom"}),
    ("released", {"reason": "drain"}),
]
KINDS = [kind for kind, _ in OUTCOMES]


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize(("kind", "parts"), OUTCOMES, ids=KINDS)
def test_the_same_report_again_is_taken_and_changes_nothing(
    kind: str, parts: dict[str, Any], is_paused: bool
) -> None:
    """S3-45: for every outcome, also one that is held."""
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.token_of(task)
    if is_paused:
        kitchen.pause(token)
    kitchen.report(task, kind, **parts, **MINE)
    before, count = everything(kitchen.book), len(kitchen.book.entries)

    again = kitchen.report(task, kind, **parts, **MINE)

    assert again is token
    assert unchanged(kitchen.book, before)
    assert len(kitchen.book.entries) == count


@pytest.mark.parametrize(
    "change", [{"error": "bang"}, {"supervisor": "t"}, {"retryable": False}, {"attempt": None}]
)
def test_a_report_that_differs_is_no_repeat(change: dict[str, Any]) -> None:
    """S3-45: other content, another supervisor, no attempt."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    kitchen.report(task, "failed", error="boom", **MINE)

    code = refusal(kitchen.report, task, "failed", **({"error": "boom", **MINE} | change))

    assert code is Code.TASK_NOT_HELD


def test_a_repeat_is_over_once_a_newer_attempt_runs() -> None:
    """S3-43, S3-44: also the repeat of that attempt's own report."""
    kitchen = Kitchen()
    task = kitchen.claimed("sturdy")
    kitchen.report(task, "failed", error="boom", **MINE)
    kitchen.claim_again(task)

    assert refusal(kitchen.report, task, "failed", error="boom", **MINE) is Code.ATTEMPT_OVER


def test_an_attempt_that_has_not_begun_is_no_repeat() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    kitchen.report(task, event="noted", **MINE)

    assert refusal(kitchen.report, task, event="noted", supervisor="s", attempt=2) is Code.TASK_NOT_HELD


def test_a_repeat_tells_the_token_as_it_is_now() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    token = kitchen.report(task, event="flagged", payload={"level": 1}, **MINE)
    kitchen.fire(token, "noted")

    assert kitchen.report(task, event="flagged", payload={"level": 1}, **MINE).status is TokenStatus.COMPLETED


def test_a_refused_report_is_no_outcome_to_repeat() -> None:
    kitchen = Kitchen()
    task = kitchen.claimed("plain")
    refusal(kitchen.report, task, event="answered", **MINE)

    assert refusal(kitchen.report, task, event="answered", **MINE) is Code.EVENT_NOT_ALLOWED


def said(**parts: Any) -> str:
    return digest_of(Report(**{"kind": "event", "event": "e", "supervisor": "s", **parts}))


@pytest.mark.parametrize(
    "other",
    [
        {"payload": Raw(b"null")},
        {"payload": Raw(b" { } ")},
        {"context": Raw(b"{}")},
        {"schedules": []},
        {"attempt": 7},
        {"instance": "i2"},
    ],
    ids="+".join,
)
def test_absent_null_and_empty_parts_are_the_same(other: dict[str, Any]) -> None:
    assert said(**other) == said()


def test_the_way_of_writing_makes_no_difference() -> None:
    one, other = Raw(b'{"a":1,"b":[1.5,"\xc3\xa9"]}'), Raw(b'{ "b" : [1.50, "\\u00e9"],\n "a": 1 }')

    assert said(payload=one, context=other) == said(payload=other, context=one)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "waiting"},
        {"event": "f"},
        {"supervisor": "t"},
        {"supervisor": None},
        {"error": "x"},
        {"reason": "x"},
        {"retryable": False},
        {"payload": Raw(b'{"a":2}')},
        {"payload": Raw(b'{"a":"1"}')},
        {"payload": Raw(b'{"a":1,"b":null}')},
        {"payload": Raw(b'{"a":[2,1]}')},
        {"payload": None, "context": Raw(b'{"a":1}')},
        {"schedules": [Schedule(event="e", after="1s")]},
    ],
    ids="+".join,
)
def test_other_content_has_another_digest(other: dict[str, Any]) -> None:
    base = {"payload": Raw(b'{"a":1}')}

    assert said(**(base | other)) != said(**base)


def test_large_integers_are_told_apart() -> None:
    assert said(payload=Raw(b'{"a":%d}' % 10**40)) != said(payload=Raw(b'{"a":%d}' % (10**40 + 1)))


@pytest.mark.parametrize("part", [{"event": "f"}, {"after": "2s"}, {"payload": Raw(b'{"a":1}')}])
def test_a_schedule_counts_in_every_part(part: dict[str, Any]) -> None:
    base: dict[str, Any] = {"event": "e", "after": "1s"}

    assert said(schedules=[Schedule(**(base | part))]) != said(schedules=[Schedule(**base)])
