"""The life tables, every cell: what is drawn here a second time is what the agreement says, in words."""

from __future__ import annotations

import itertools

import pytest
from stateous_contract.states import (
    FINAL_TASK_STATES,
    LIVE_TASK_STATES,
    RESUMING_PREFIX,
    TASK_LIFE,
    Lost,
    Move,
    TaskState,
    TaskStatus,
    TokenStatus,
    after,
    status_of,
)

PICTURE = """
             claim   report_event report_waiting fail_retry fail_final release event_emitted token_left expire ask     park_paused  wait_over  resume   wait park_diverged
pending      running -            -              -          -          -       -             cancelled  expired -       -            -          -       -    -
running      -       completed    parked         pending    failed     pending completed     cancelled  expired parked  parked       -          -       parked parked
parked       running completed    -              pending    failed     -       completed     cancelled  expired -       -            parked     parked  -    -
completed    -       -            -              -          -          -       -             -          -       -       -            -          -       -    -
failed       -       -            -              -          -          -       -             -          -       -       -            -          -       -    -
expired      -       -            -              -          -          -       -             -          -       -       -            -          -       -    -
cancelled    -       -            -              -          -          -       -             -          -       -       -            -          -       -    -
"""
HEAD, *LINES = [line.split() for line in PICTURE.strip().splitlines()]
CELLS = {(line[0], move): goal for line in LINES for move, goal in zip(HEAD, line[1:], strict=True)}


@pytest.mark.parametrize(("state", "move"), list(itertools.product(TaskState, Move)))
def test_a_move_leads_where_it_is_drawn(state: TaskState, move: Move) -> None:
    """S1-11, S3-47 … S3-58."""
    goal = CELLS[state.value, move.value]

    assert after(state, move) == (None if goal == "-" else TaskState(goal))


def test_the_picture_has_every_state_and_every_move() -> None:
    assert set(CELLS) == {(state.value, move.value) for state in TaskState for move in Move}


def test_no_move_leaves_a_final_state() -> None:
    """S3-58."""
    assert not [state for state, _ in TASK_LIFE if state in FINAL_TASK_STATES]
    assert {state for state in TaskState if state.is_final} == FINAL_TASK_STATES


def test_every_state_is_live_or_final() -> None:
    assert set(TaskState) == LIVE_TASK_STATES | FINAL_TASK_STATES
    assert not LIVE_TASK_STATES & FINAL_TASK_STATES


def test_every_state_can_be_reached_and_every_move_is_used() -> None:
    assert set(TASK_LIFE.values()) == set(TaskState)
    assert {move for _, move in TASK_LIFE} == set(Move)


@pytest.mark.parametrize(
    ("state", "reason", "status"),
    [
        (TaskState.PENDING, None, "queued"),
        (TaskState.RUNNING, None, "claimed"),
        (TaskState.PARKED, "awaiting_event:review", "waiting"),
        (TaskState.PARKED, "nondeterminism:render", "waiting"),
        (TaskState.PARKED, None, "waiting"),
        (TaskState.PARKED, RESUMING_PREFIX + "sleeping:nap#1", "queued"),
        (TaskState.COMPLETED, None, "done"),
        (TaskState.FAILED, "failed:exception", "failed"),
        (TaskState.EXPIRED, "expired:parked", "failed"),
        (TaskState.CANCELLED, "cancelled:user", "cancelled"),
    ],
)
def test_clients_see_the_baselines_words(state: TaskState, reason: str | None, status: str) -> None:
    """S3-46."""
    assert status_of(state, reason) == TaskStatus(status)


def test_a_token_ends_in_three_ways() -> None:
    assert {status.value for status in TokenStatus if status.is_final} == {"completed", "failed", "cancelled"}


def test_every_cause_of_loss_has_a_word() -> None:
    """S3-24."""
    words = {"cancelled", "expired", "token_left", "lease_ended", "attempt_over", "not_found"}
    assert {lost.value for lost in Lost} == words


def test_the_states_of_a_task_are_a_closed_set() -> None:
    """S1-01: cancelled is our addition."""
    words = {"pending", "running", "parked", "completed", "failed", "expired", "cancelled"}
    assert {state.value for state in TaskState} == words


def test_only_a_claim_makes_a_task_run() -> None:
    """S1-04."""
    assert {move for (_, move), goal in TASK_LIFE.items() if goal is TaskState.RUNNING} == {Move.CLAIM}


def test_only_its_worker_parks_a_running_task() -> None:
    """S1-05, S1-11: at a question, at a pause that was asked for, at a wait, to wait for an event, or where it diverged."""
    parking = {
        move
        for (state, move), goal in TASK_LIFE.items()
        if (state, goal) == (TaskState.RUNNING, TaskState.PARKED)
    }
    assert parking == {Move.ASK, Move.PARK_PAUSED, Move.PARK_DIVERGED, Move.WAIT, Move.REPORT_WAITING}
