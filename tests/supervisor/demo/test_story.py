"""A history told for people: where the token goes, what went wrong, and how it ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stateous_supervisor.demo.story import Story, tell

Entry = tuple[str, dict[str, Any]]
STARTED: list[Entry] = [
    ("started", {"context": {}}),
    ("event_accepted", {"event": "__started__", "payload": None, "state": "__start__"}),
    ("entered", {"state": "coding", "visit": 1}),
    ("task_queued", {"task": 1, "state": "coding"}),
]
CLAIMED: list[Entry] = [("task_claimed", {"task": 1, "supervisor": "box", "attempt": 1})]
CODED: list[Entry] = [
    (
        "event_accepted",
        {"event": "coded", "payload": {"file": "a.py", "lines": 0, "empty": []}, "state": "coding"},
    ),
    ("task_done", {"task": 1}),
    ("entered", {"state": "testing", "visit": 1}),
]
BACK: list[Entry] = [
    ("event_accepted", {"event": "failed", "payload": {"failures": ["x", "y"]}, "state": "testing"}),
    ("entered", {"state": "coding", "visit": 2}),
]
ENDED: list[Entry] = [
    ("event_accepted", {"event": "passed", "payload": None, "state": "coding"}),
    ("completed", {}),
]


def story_of(*entries: Entry) -> Story:
    return tell(
        [
            {"seq": number, "at": f"2026-01-01T00:00:{number:02}Z", "kind": kind, "data": data}
            for number, (kind, data) in enumerate(entries, 1)
        ]
    )


def texts(story: Story) -> list[str]:
    return [line.text for line in story.lines]


def test_a_move_is_one_line_with_its_event_and_what_the_payload_says() -> None:
    assert texts(story_of(*STARTED, *CLAIMED, *CODED)) == [
        "starts in coding",
        "coding is run by box, attempt 1",
        "coding → testing  on coded (file a.py, lines 0)",
    ]


def test_a_way_back_stands_out() -> None:
    line = story_of(*STARTED, *CODED, *BACK).lines[-1]

    assert (line.text, line.tone) == ("testing → coding  on failed (failures x, y)", "back")


def test_the_same_way_on_a_second_time_does_not_stand_out() -> None:
    assert story_of(*STARTED, *CODED, *BACK, *CODED).lines[-1].tone == "plain"


def test_a_crash_and_its_retry_are_told() -> None:
    story = story_of(
        *STARTED,
        ("task_failed", {"task": 1, "error": "RuntimeError: crashed"}),
        ("task_retrying", {"task": 1, "attempt": 2}),
    )

    assert texts(story)[1:] == ["the attempt failed: RuntimeError: crashed", "it is tried again as attempt 2"]


def test_an_end_is_known_by_route_and_outcome() -> None:
    story = story_of(*STARTED, *CODED, *BACK, *ENDED)

    assert (story.route, story.outcome) == (("coding", "testing", "coding"), "completed")
    assert texts(story)[-2:] == ["coding → the end  on passed", "completed"]


def test_a_token_under_way_has_no_outcome() -> None:
    assert story_of(*STARTED).outcome is None


def test_entries_that_nobody_knows_are_passed_over() -> None:
    assert texts(story_of(*STARTED, ("something_new", {"x": 1}))) == ["starts in coding"]


@given(st.integers(0, 12))
def test_what_was_told_once_stays_as_it_was_told(cut: int) -> None:
    """A move is written in one transaction, so a history is never cut between an event and the state it led to."""
    groups = [STARTED, CLAIMED, CODED, BACK, ENDED]
    some = [entry for group in groups[: cut % 6] for entry in group]
    every = [entry for group in groups for entry in group]

    assert texts(story_of(*every))[: len(story_of(*some).lines)] == texts(story_of(*some))
