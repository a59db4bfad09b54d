"""Rows as clients see them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from control.rules.kitchen import Kitchen
from stateous_contract.messages import encode

from stateous_control.rules.views import stamp, task_status, token_view


@pytest.mark.parametrize(
    ("microsecond", "text"),
    [
        (583362, "2026-01-01T14:48:51.583362Z"),
        (500000, "2026-01-01T14:48:51.500000Z"),
        (0, "2026-01-01T14:48:51Z"),
    ],
)
def test_a_time_is_utc_with_microseconds_unless_they_are_zero(microsecond: int, text: str) -> None:
    assert stamp(datetime(2026, 1, 1, 14, 48, 51, microsecond, tzinfo=UTC)) == text


def test_a_token_is_written_with_the_keys_of_the_wire_in_order() -> None:
    token = Kitchen().start("T-1", path="plain", label="grün", n=1)

    assert encode(token_view(token)).decode() == (
        '{"token":"T-1","state":"plain","status":"active","visit":1,'
        '"context":{"path":"plain","scores":[],"label":"grün","n":1},"entered_at":"2026-01-01T00:00:00Z"}'
    )


def test_a_child_names_its_parent() -> None:
    token = Kitchen().start(path="plain")
    token.parent = "T-1"

    assert encode(token_view(token)).endswith(b'"parent":"T-1"}')


def test_a_task_has_the_baselines_word() -> None:
    """S3-46."""
    kitchen = Kitchen()
    tasks = [
        kitchen.started("plain"),
        kitchen.claimed("plain"),
        kitchen.waiting("plain"),
        kitchen.claimed("fragile"),
    ]
    kitchen.report(tasks[3], "failed", error="x")
    tasks.append(kitchen.claimed("plain"))
    kitchen.report(tasks[4], event="noted")

    assert [task_status(task).value for task in tasks] == ["queued", "claimed", "waiting", "failed", "done"]
