"""The limit on failures: what it lets through, whom it holds up, how much it remembers."""

from __future__ import annotations

from stateous_control.http.limiting import ADDRESSES_MAX, BURST, FailureLimit


def test_a_burst_is_let_through_and_then_one_each_second() -> None:
    limit = FailureLimit()
    assert [limit.fail("10.0.0.1", 0.0) for _ in range(BURST)] == [None] * BURST
    assert limit.fail("10.0.0.1", 0.0) == 1
    assert limit.fail("10.0.0.1", 1.0) is None
    assert limit.fail("10.0.0.1", 1.1) == 1


def test_one_address_does_not_hold_up_another() -> None:
    limit = FailureLimit()
    for _ in range(BURST + 1):
        limit.fail("10.0.0.1", 0.0)
    assert limit.fail("10.0.0.2", 0.0) is None


def test_addresses_of_one_ipv6_network_are_one() -> None:
    limit = FailureLimit()
    for number in range(BURST):
        limit.fail(f"2001:db8::{number:x}", 0.0)
    assert limit.fail("2001:db8::ffff", 0.0) is not None
    assert limit.fail("2001:db8:0:1::1", 0.0) is None


def test_memory_is_bounded() -> None:
    limit = FailureLimit()
    for number in range(ADDRESSES_MAX + 50):
        limit.fail(f"host-{number}", 0.0)
    assert len(limit) == ADDRESSES_MAX
