"""What stands in a report."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from stateous_contract.limits import BODY_BYTES_MAX, ERROR_BYTES_MAX

from stateous_supervisor.agent import reports
from stateous_supervisor.link.frames import Outcome


@given(text=st.text(st.characters(codec=None), max_size=200), bytes_max=st.integers(16, 400))
def test_a_cut_text_fits_and_is_valid_utf_8(text: str, bytes_max: int) -> None:
    assert len(reports.cut(text, bytes_max).encode()) <= bytes_max


def test_a_text_that_was_cut_says_so_a_19() -> None:
    assert reports.cut("é" * ERROR_BYTES_MAX).endswith(reports.CUT_MARK)


def test_a_text_that_fits_is_left_alone() -> None:
    assert reports.cut("ValueError: é") == "ValueError: é"


def test_a_lone_surrogate_in_an_error_can_still_be_sent_bh_024() -> None:
    outcome = Outcome(task=1, attempt=1, outcome="failed", error="bad \ud800 text")

    message, body = reports.write(reports.of(outcome), BODY_BYTES_MAX)

    assert msgspec.json.decode(body)["error"] == message.error == "bad ? text"


def test_a_failure_of_fifty_megabytes_becomes_eight_kilobytes_bh_040() -> None:
    outcome = Outcome(task=1, attempt=1, outcome="failed", error="x" * 50_000_000)

    _, body = reports.write(reports.of(outcome), BODY_BYTES_MAX)

    assert len(body) < 10_000


def test_an_outcome_beyond_the_limit_becomes_a_failure_with_size_and_limit_a_39() -> None:
    big = Raw(b'{"a":"' + b"x" * BODY_BYTES_MAX + b'"}')
    outcome = Outcome(task=7, attempt=2, outcome="event", event="done", payload=big)

    message, body = reports.write(reports.of(outcome), BODY_BYTES_MAX)

    assert (message.task, message.attempt, message.outcome) == (7, 2, "failed")
    assert str(BODY_BYTES_MAX) in str(message.error)
    assert str(len(big))[:4] in str(message.error)
    assert len(body) < 1_000


def test_a_users_numbers_are_not_rewritten() -> None:
    outcome = Outcome(task=1, attempt=1, outcome="event", event="done", payload=Raw(b'{"a":1.0,"b":1e400}'))

    _, body = reports.write(reports.of(outcome), BODY_BYTES_MAX)

    assert b'"payload":{"a":1.0,"b":1e400}' in body


def test_the_baseline_gets_the_same_outcome_under_its_own_keys() -> None:
    outcome = Outcome(task=1, attempt=3, outcome="event", event="done", context=Raw(b'{"k":1}'))

    report = reports.alone(reports.of(outcome), "box", None)

    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "kind": "event",
        "event": "done",
        "context": {"k": 1},
        "attempt": 3,
        "supervisor": "box",
    }
