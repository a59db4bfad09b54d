"""Which transition an event takes (B.3)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from stateous_control.graph.document import Machine, Transition
from stateous_control.graph.loading import load
from stateous_control.graph.routing import Unrouted, route, start

Way = dict[str, Any]


def machine(*ways: Way) -> Machine:
    """A machine whose state `s` has the given ways out on `go`, to `a`, `b`, … in order."""
    targets = "abcdef"[: len(ways)]
    document = {
        "stateous": 1,
        "workflow": "w",
        "states": {name: {} for name in ("s", *targets)},
        "events": {"go": {}, "other": {}},
        "transitions": [{"from": "__start__", "to": "s"}]
        + [{"from": "s", "on": "go", "to": to, **way} for to, way in zip(targets, ways, strict=True)],
        "schemas": {},
    }
    return load(document).main


def taken(found: Transition | Unrouted) -> str:
    assert isinstance(found, Transition), found
    return found.target


def refused(found: Transition | Unrouted) -> Unrouted:
    assert isinstance(found, Unrouted), found
    return found


def test_the_only_way_is_taken() -> None:
    assert taken(route(machine({}), "s", "go", context={})) == "a"


@pytest.mark.parametrize(
    ("state", "event"), [("s", "other"), ("a", "go"), ("nowhere", "go"), ("s", "nothing")]
)
def test_without_a_transition_the_event_is_refused(state: str, event: str) -> None:
    found = refused(route(machine({}), state, event, context={}))

    assert not found.is_ambiguous
    assert repr(event) in found.sentence


def test_the_one_guard_that_holds_decides_wherever_it_stands() -> None:
    ways = machine({"otherwise": True}, {"when": "payload.n == 1"}, {"when": "payload.n == 2"})

    assert taken(route(ways, "s", "go", context={}, payload={"n": 2})) == "c"


def test_when_no_guard_holds_the_first_way_without_one_is_taken_flag_or_not() -> None:
    ways = machine({"when": "false"}, {}, {"otherwise": True})

    assert taken(route(ways, "s", "go", context={})) == "b"


def test_when_nothing_is_left_the_event_is_refused() -> None:
    found = refused(route(machine({"when": "false"}), "s", "go", context={}))

    assert not found.is_ambiguous


def test_two_guards_that_hold_fail_the_token() -> None:
    ways = machine({"when": "true"}, {"when": "1 == 1"}, {"otherwise": True})

    found = refused(route(ways, "s", "go", context={}))

    assert found.is_ambiguous
    assert "1 == 1" in found.sentence


def test_texts_are_read_only_where_a_guard_looks() -> None:
    ways = machine({"when": "ctx['n'] == 1 and payload.m == 'x'"}, {"otherwise": True})
    context = {"n": Raw(b"1.0"), "unread": Raw(b"this is no JSON")}

    assert taken(route(ways, "s", "go", context=context, payload=Raw(b'{"m":"x"}'))) == "a"


@pytest.mark.parametrize("payload", [None, Raw(b"null"), {}])
def test_no_payload_reads_as_an_empty_one(payload: Any) -> None:
    ways = machine({"when": "payload.n == null"})

    assert taken(route(ways, "s", "go", context={}, payload=payload)) == "a"


def test_the_event_that_is_routed_counts_itself() -> None:
    ways = machine({"when": "count('go') == 3"}, {"when": "count('other') == 5"})

    assert taken(route(ways, "s", "go", context={}, counts={"go": 2, "other": 1})) == "a"
    assert taken(route(ways, "s", "go", context={}, counts={"other": 5})) == "b"


def test_several_guards_that_count_the_event_see_one_number() -> None:
    ways = machine({"when": "count('go') == 1"}, {"when": "count('go') == 2"}, {"when": "count('go') == 3"})

    assert taken(route(ways, "s", "go", context={})) == "a"
    assert taken(route(ways, "s", "go", context={}, counts={"go": 2})) == "c"


def test_counting_leaves_the_callers_counts_alone() -> None:
    counts = {"go": 1}

    route(machine({"when": "count('go') == 2"}), "s", "go", context={}, counts=counts)

    assert counts == {"go": 1}


def test_branches_are_those_of_a_joined_event_only() -> None:
    ways = machine({"when": "branches.any(true)"}, {"when": "branches.any(true)", "on": "joined"})
    payload = {"branches": [{"status": "completed"}]}

    assert taken(route(ways, "s", "joined", context={}, payload=payload)) == "b"
    refused(route(ways, "s", "go", context={}, payload=payload))


@pytest.mark.parametrize("branches", [None, 5, "x", [1, None], {}])
def test_a_joined_payload_of_another_shape_has_no_branches(branches: Any) -> None:
    ways = machine({"when": "branches.any(true)", "on": "joined"})

    refused(route(ways, "s", "joined", context={}, payload={"branches": branches}))


def start_with(*transitions: Way) -> Machine:
    states: dict[str, object] = {each["to"]: {} for each in transitions}
    every = [{"from": "__start__", **each} for each in transitions]
    document = {
        "stateous": 1,
        "workflow": "w",
        "states": states,
        "events": {},
        "transitions": every,
        "schemas": {},
    }
    return load(document).main


def test_start_chooses_by_the_context_alone() -> None:
    ways = start_with({"to": "a", "when": "ctx['n'] == 1"}, {"to": "b", "otherwise": True})

    assert taken(start(ways, {"n": Raw(b"1")})) == "a"
    assert taken(start(ways, {})) == "b"


def test_start_is_refused_when_nothing_or_too_much_holds() -> None:
    assert not refused(start(start_with({"to": "a", "when": "false"}), {})).is_ambiguous
    assert refused(
        start(start_with({"to": "a", "when": "true"}, {"to": "b", "when": "true"}), {})
    ).is_ambiguous


def test_a_machine_without_a_start_says_so() -> None:
    assert "__start__" in refused(start(start_with(), {})).sentence
