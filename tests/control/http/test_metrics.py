"""The text of ``/metrics`` from numbers that the engine has: what is counted, and what is as it is now."""

from __future__ import annotations

from stateous_control.http.metrics import exposition


def test_a_parked_task_without_a_reason_shows_as_a_gauge() -> None:
    """S1-25: it falls again once somebody has mended it."""
    text = exposition({"tasks_unexplained": 2}, None).decode()
    assert "# TYPE stateous_control_tasks_unexplained gauge" in text
    assert "stateous_control_tasks_unexplained 2.0" in text


def test_what_has_happened_is_counted() -> None:
    text = exposition({"tasks_expired": 3, "questions_told": 1, "questions_untold": 0}, None).decode()
    assert "stateous_control_tasks_expired_total 3.0" in text
    assert "stateous_control_questions_told_total 1.0" in text
