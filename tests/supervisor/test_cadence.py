"""When things are due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateous_supervisor.agent import cadence

LUCK = st.floats(0, 1, exclude_max=True)


@given(failures=st.integers(1, 10_000), luck=LUCK)
def test_a_backoff_is_never_longer_than_its_cap(failures: int, luck: float) -> None:
    assert 0 <= cadence.backoff_s(failures, luck) <= cadence.BACKOFF_MAX_S


@pytest.mark.parametrize(("failures", "longest_s"), [(1, 2), (2, 4), (3, 8), (5, 30), (60, 30)])
def test_a_backoff_doubles_up_to_its_cap(failures: int, longest_s: float) -> None:
    assert cadence.backoff_s(failures, 1.0) == longest_s


def test_a_backoff_has_full_jitter() -> None:
    assert cadence.backoff_s(4, 0.0) == 0.0


def test_retry_after_is_respected_a_37() -> None:
    assert cadence.backoff_s(1, 0.0, asked_s=45.0) == 45.0


def test_retry_after_is_capped_a_37() -> None:
    assert cadence.backoff_s(1, 0.0, asked_s=86_400.0) == cadence.RETRY_AFTER_MAX_S


@pytest.mark.parametrize(
    ("failures", "away_s", "luck", "wait_s"),
    [
        (1, 0.0, 0.0, 1.0),
        (1, 0.0, 1.0, 2.0),
        (9, 30.0, 1.0, 12.0),
        (9, 120.0, 0.0, 15.0),
        (30, 9e5, 1.0, 60.0),
    ],
)
def test_a_greeting_waits_for_a_share_of_the_outage_bh_035(
    failures: int, away_s: float, luck: float, wait_s: float
) -> None:
    assert cadence.greet_s(failures, away_s, luck) == wait_s
    assert cadence.greet_s(failures, away_s, luck, asked_s=90.0) == 90.0


@pytest.mark.parametrize(
    ("away_s", "luck", "wait_s"), [(4.0, 1.0, 1.0), (300.0, 0.0, 0.0), (300.0, 1.0, 45.0)]
)
def test_a_comeback_is_spread_over_a_share_of_the_outage_bh_035(
    away_s: float, luck: float, wait_s: float
) -> None:
    assert cadence.comeback_s(away_s, luck) == wait_s


@pytest.mark.parametrize(
    ("deaths", "lived_s", "luck", "wait_s"),
    [
        (1, 0.0, 1.0, 0.0),
        (5, 0.0, 1.0, 0.0),
        (6, 0.0, 1.0, 2.0),
        (8, 0.0, 0.5, 4.0),
        (8, 3.0, 0.5, 1.0),
        (8, 50.0, 1.0, 0.0),
        (30, 0.0, 1.0, cadence.BACKOFF_MAX_S),
    ],
)
def test_hosts_that_keep_dying_are_started_at_once_five_times_and_then_spread_a_23(
    deaths: int, lived_s: float, luck: float, wait_s: float
) -> None:
    assert cadence.next_host_s(deaths, lived_s, luck) == wait_s


def test_a_lease_is_trusted_from_the_send_and_a_tenth_less() -> None:
    assert cadence.trusted_until(100.0, 120.0) == 208.0


@given(at=st.floats(0, 1e6), left=st.floats(-1000, 200), luck=LUCK)
def test_a_failed_beat_is_tried_again_a_second_later_at_the_earliest_a_29(
    at: float, left: float, luck: float
) -> None:
    due_at = cadence.repeated_beat_at(at, at + left, 30.0, luck, sent_at=at - 15.0)
    assert due_at - at >= cadence.BEAT_RETRY_MIN_S - 1e-6


@given(at=st.floats(0, 1e6), left=st.floats(4, 200), luck=LUCK)
def test_a_failed_beat_is_tried_again_inside_the_lease_a_29(at: float, left: float, luck: float) -> None:
    assert cadence.repeated_beat_at(at, at + left, 30.0, luck, sent_at=at) <= at + left


@pytest.mark.parametrize(("left", "due_at"), [(100.0, [1.0, 7.5, 15.0, 30.0]), (20.0, [1.0, 2.5, 5.0, 10.0])])
def test_agents_whose_beats_failed_together_do_not_repeat_them_together_a_29(
    left: float, due_at: list[float]
) -> None:
    found = [cadence.repeated_beat_at(0.0, left, 30.0, luck, sent_at=0.0) for luck in (0.0, 0.25, 0.5, 1.0)]

    assert found == due_at


@given(at=st.floats(0, 1e6), left=st.floats(-1000, 200), luck=LUCK, took=st.floats(0, 15.0))
def test_a_beat_is_tried_at_least_every_interval_however_long_the_last_one_took_a_27(
    at: float, left: float, luck: float, took: float
) -> None:
    due_at = cadence.repeated_beat_at(at, at + left, 30.0, luck, sent_at=at - took)
    assert due_at - (at - took) <= 30.0 + 1e-6


@pytest.mark.parametrize(
    ("heartbeat_s", "took_s", "due_at"),
    [(30.0, 0.0, 110.0), (60.0, 0.0, 120.0), (15.0, 7.5, 110.0), (30.0, 15.0, 116.0)],
)
def test_a_refused_beat_is_sent_again_within_the_interval_however_long_others_took_a_51(
    heartbeat_s: float, took_s: float, due_at: float
) -> None:
    assert cadence.denied_beat_at(100.0 + took_s, heartbeat_s, sent_at=100.0) == due_at


def test_the_first_beat_is_due_one_interval_after_the_claim_a_27() -> None:
    assert cadence.first_beat_at(10.0, 30.0) == 40.0


def test_beats_are_counted_from_when_they_are_sent() -> None:
    assert cadence.next_beat_at(40.0, 30.0) == 70.0


@pytest.mark.parametrize(("heartbeat_s", "deadline_s"), [(30.0, 15.0), (10.0, 5.0), (0.1, 1.0)])
def test_a_beat_has_a_deadline_that_leaves_time_for_another(heartbeat_s: float, deadline_s: float) -> None:
    assert cadence.beat_deadline_s(heartbeat_s) == deadline_s


@pytest.mark.parametrize(
    ("offered_s", "lease_s", "wait_s"), [(25.0, 120.0, 25.0), (25.0, 2.0, 0.5), (0.0, 120.0, 0.0)]
)
def test_a_claim_never_waits_for_most_of_its_lease(offered_s: float, lease_s: float, wait_s: float) -> None:
    assert cadence.claim_wait_s(offered_s, lease_s) == wait_s


@given(luck=LUCK)
def test_polls_are_a_second_apart_a_13(luck: float) -> None:
    assert 0.9 <= cadence.poll_s(luck) <= 1.1
