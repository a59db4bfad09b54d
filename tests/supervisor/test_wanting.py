"""What a claim asks for: states with their versions, routines without a graph, and nothing that is not offered."""

from __future__ import annotations

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import Terms
from stateous_supervisor.agent.receivers import is_served, served_by
from stateous_supervisor.agent.slots import Room
from stateous_supervisor.agent.wanting import request_of
from stateous_supervisor.link.frames import RoutineFacts

ME = Identity("box", "i1")
ALL = Terms(is_extended=True, features=frozenset({"batch", "versions", "routines"}))
SERVED = {"a": [1], "b": [2], "c": [1, 2], "@r.x": [1, 3]}
ROOM = Room(4, {"a": 4, "b": 2, "c": 4, "@r.x": 1})


def test_a_claim_names_versions_and_routines_s2_57() -> None:
    """S2-52: a state that is served in its first version alone is named as the baseline names it."""
    asked = request_of("r1", ME, ROOM, terms=ALL, served=SERVED, limits={"b": 2, "@r.x": 1})

    assert asked.states == ["a", "b", "c"]
    assert asked.versions == {"b": [2], "c": [1, 2]}
    assert asked.routines == {"r.x": [1, 3]}
    assert (asked.max, asked.max_by_state) == (4, {"b": 2, "@r.x": 1})


def test_what_the_control_plane_does_not_know_is_not_said() -> None:
    asked = request_of("r1", ME, Room(1, {"b": 1}), terms=Terms(), served=SERVED, limits=None)

    assert (asked.states, asked.versions, asked.routines, asked.max) == (["b"], None, None, None)
    assert (asked.instance, asked.request) == (None, "r1")


def test_versions_of_one_state_are_served_together() -> None:
    facts = [
        RoutineFacts(state=state, file="a.py", line=1, name="f", is_async=False, versions=[version])
        for state, version in [("b", 2), ("a", 1), ("b", 1)]
    ]
    served = served_by(facts)

    assert served == {"b": [2, 1], "a": [1]}
    assert [is_served(served, *each) for each in [("b", 1), ("b", 3), ("b", 0), ("c", 0)]] == [
        True,
        False,
        True,
        False,
    ]
