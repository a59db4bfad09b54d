"""When things are due: heartbeats, repeats, claims, and how long a lease can be trusted.

Pure. Every function takes the time and a `luck` between 0 and 1; none reads a clock or draws a number. Spans
are seconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 30.0
AWAY_MAX_S: Final = 300.0  # of what the answer to a greeting wakes
GREET_CAP_MIN_S: Final = 12.0
GREET_CAP_MAX_S: Final = 60.0
COMEBACK_MAX_S: Final = 45.0
COMEBACK_SHARE: Final = 0.25
BARRED_MAX_S: Final = 300.0
RETRY_AFTER_MAX_S: Final = 120.0
BEAT_RETRY_MIN_S: Final = 1.0
BEAT_DEADLINE_MAX_S: Final = 15.0
POLL_S: Final = 1.0
REASK_S: Final = 60.0
TRUST: Final = 0.9  # a lease is distrusted a tenth early
DENIED_MIN_S: Final = 10.0
FENCE_SHARE: Final = 0.25
SLEPT_MIN_S: Final = 2.0
DEATHS_AT_ONCE: Final = 5  # as many restarts as systemd lets a service have before it steps in


class Reading(NamedTuple):
    """Two clocks at one moment: one that counts while the box is suspended, and one that does not."""

    boot_s: float
    monotonic_s: float


def backoff_s(
    failures: int, luck: float, *, asked_s: float | None = None, max_s: float = BACKOFF_MAX_S
) -> float:
    """Return how long to wait after some failures: exponential, capped, with full jitter.

    Args:
        failures: how many in a row, counting this one.
        luck: 0 to 1.
        asked_s: what the other side asked for (`Retry-After`); respected, and capped.
        max_s: the cap.
    """
    ceiling = min(max_s, BACKOFF_FIRST_S * float(1 << min(failures, 16)))
    waited = luck * ceiling
    return max(waited, asked_wait_s(asked_s))


def greet_s(failures: int, away_s: float, luck: float, *, asked_s: float | None = None) -> float:
    """Return how long to wait after greetings that failed: longer the longer the outage lasts, and half of it always.

    Of many agents that lost a control plane together, few are to greet in any second (BH-035).

    Args:
        failures: how many in a row, counting this one.
        away_s: for how long greetings have failed.
        luck: 0 to 1.
        asked_s: what `Retry-After` asked for.
    """
    cap_s = min(max(GREET_CAP_MIN_S, COMEBACK_SHARE * away_s), GREET_CAP_MAX_S)
    return backoff_s(failures, 0.5 + luck / 2, asked_s=asked_s, max_s=cap_s)


def comeback_s(away_s: float, luck: float) -> float:
    """Return how long after the greeting that ended an outage claims and outcomes go out again.

    Agents that lost a control plane together are to come back over a time, and the longer it was away the more
    of it costs little (BH-035).

    Args:
        away_s: how long the outage was.
        luck: 0 to 1.
    """
    return luck * min(COMEBACK_MAX_S, COMEBACK_SHARE * away_s)


def next_host_s(deaths: int, lived_s: float, luck: float) -> float:
    """Return how long to wait before the host after one that died starts (A-23).

    The first few start at once, so that one task that kills its host, with its retries, holds up nobody; then starts
    are spread, and the life of the host that died counts as a part of the wait.

    Args:
        deaths: how many in a row, counting this one.
        lived_s: how long the host lived that died.
        luck: 0 to 1.
    """
    if deaths <= DEATHS_AT_ONCE:
        return 0.0
    return max(0.0, backoff_s(deaths - DEATHS_AT_ONCE, luck) - lived_s)


def trusted_until(sent_at: float, lease_s: float) -> float:
    """Return until when a lease is trusted, counted from when the request that got it was sent (ADR 4)."""
    return sent_at + TRUST * lease_s


def first_beat_at(claimed_at: float, heartbeat_s: float) -> float:
    """Return when the first beat after a claim is due, where no beat is due earlier (A-27)."""
    return claimed_at + heartbeat_s


def next_beat_at(sent_at: float, heartbeat_s: float) -> float:
    """Return when the beat after one that was answered is due."""
    return sent_at + heartbeat_s


def repeated_beat_at(
    at: float,
    trusted: float,
    heartbeat_s: float,
    luck: float,
    *,
    sent_at: float,
    asked_s: float | None = None,
) -> float:
    """Return when a beat that failed is tried again (A-29).

    Inside what is left of the lease, at a random time, 1 s apart at least; when nothing is left, at a random time
    too, so that an outage costs the control plane no flood. Never later than one heartbeat interval after the one
    that failed was sent, however long it took to fail (A-27). What the other side asked for is respected as far as
    the interval and half of what is left of the lease allow (BH-035).

    Args:
        at: when it failed.
        trusted: until when the first of the leases is trusted.
        heartbeat_s: the interval.
        luck: 0 to 1.
        sent_at: when it was sent.
        asked_s: what `Retry-After` asked for.
    """
    left = trusted - at
    span = heartbeat_s * (0.8 + 0.2 * luck) if left <= BEAT_RETRY_MIN_S else luck * min(left / 2, heartbeat_s)
    bound = sent_at + heartbeat_s - at
    asked = min(asked_s or 0.0, heartbeat_s if left <= BEAT_RETRY_MIN_S else left / 2)
    return at + max(BEAT_RETRY_MIN_S, min(max(span, asked), bound))


def denied_beat_at(at: float, heartbeat_s: float, *, sent_at: float) -> float:
    """Return when the beat after one that was refused for our key is due (A-51), 1 s from now at least.

    Counted from when that one was sent: the other requests of the same beat may have taken their time (A-27).
    """
    return max(at + BEAT_RETRY_MIN_S, sent_at + max(DENIED_MIN_S, heartbeat_s / 3))


def denied_s(failures: int, luck: float) -> float:
    """Return how long anything else waits after some refusals of our key: 10 s at least, and soon minutes (A-51)."""
    ceiling = min(BARRED_MAX_S, DENIED_MIN_S * float(1 << min(failures, 16)))
    return max(DENIED_MIN_S, ceiling * (0.5 + 0.5 * luck))


def asked_wait_s(asked_s: float | None) -> float:
    """Return how much of what `Retry-After` asked for is waited, whatever happens meanwhile (BH-035)."""
    return min(max(asked_s or 0.0, 0.0), RETRY_AFTER_MAX_S)


def fence_lead_s(grace_s: float, lease_s: float) -> float:
    """Return how long before a lease is distrusted a fenced routine is stopped, and how long that may take (A-32).

    At most a quarter of the lease: the beats before it must have had their chances.
    """
    return min(grace_s, FENCE_SHARE * lease_s)


def slept_s(before: Reading, now: Reading) -> float:
    """Return for how long the box was suspended between two readings; 0 for what is too short to matter (A-33)."""
    slept = (now.boot_s - before.boot_s) - (now.monotonic_s - before.monotonic_s)
    return slept if slept >= SLEPT_MIN_S else 0.0


def beat_deadline_s(heartbeat_s: float) -> float:
    """Return how long one try of a beat may take in all."""
    return min(BEAT_DEADLINE_MAX_S, max(1.0, heartbeat_s / 2))


def claim_wait_s(offered_s: float, lease_s: float) -> float:
    """Return how long a claim waits: never most of its lease, which is counted from when it was sent."""
    return min(offered_s, lease_s / 4)


def poll_s(luck: float) -> float:
    """Return the pause of an idle agent on a control plane that cannot wait, a little spread."""
    return POLL_S * (0.9 + 0.2 * luck)
