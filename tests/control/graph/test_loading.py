"""What every served graph is checked for (C.2), and the values that come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateous_control.graph.document import END, START, Faults, WorkflowInvalid
from stateous_control.graph.loading import load, load_text
from stateous_control.graph.reading import duration_s


def faults(document: Any) -> list[str]:
    with pytest.raises(WorkflowInvalid) as refused:
        load(document)
    return [fault.message for fault in refused.value.faults]


def test_a_graph_is_its_machines_by_name(ticket: dict[str, Any]) -> None:
    graph = load(ticket)

    assert graph.main is graph.machines["ticket"] is graph.machines[""]
    assert (graph.workflow, graph.main.context) == ("ticket", "Ticket")
    assert list(graph.main.states) == ["coding", "testing"]


def test_a_state_knows_its_settings(ticket: dict[str, Any]) -> None:
    state = load(ticket).main.states["coding"]

    assert (state.timeout, state.timeout_s, state.retries, state.emits) == ("4h", 14_400, 2, ("written",))
    assert not state.is_parallel


def test_transitions_are_found_by_source_and_event_in_file_order(ticket: dict[str, Any]) -> None:
    transitions = load(ticket).main.transitions

    assert [each.target for each in transitions["testing", "failed"]] == ["coding", END]
    assert [each.position for each in transitions["testing", "failed"]] == [5, 6]
    assert transitions[START, None][0].target == "coding"


def test_the_text_is_compact_and_keeps_the_order_of_keys(ticket: dict[str, Any]) -> None:
    ticket["zebra"] = ticket["apple"] = {"é": 1.0}

    graph = load(ticket)

    assert graph.text == json.dumps(ticket, ensure_ascii=False, separators=(",", ":"))
    assert load_text(graph.text).checksum == graph.checksum


def test_what_a_state_emits_is_derived_where_it_is_not_written(ticket: dict[str, Any]) -> None:
    del ticket["states"]["testing"]["emits"]

    assert load(ticket).main.states["testing"].emits == ("passed", "failed")


def test_extra_keys_are_kept_and_ignored(ticket: dict[str, Any]) -> None:
    ticket["states"]["coding"]["owner"] = "me"

    assert load(ticket).document["states"]["coding"]["owner"] == "me"


def test_null_stands_for_an_absent_optional_key(ticket: dict[str, Any]) -> None:
    ticket["context"] = ticket["states"]["coding"]["timeout"] = ticket["events"]["written"]["payload"] = None
    ticket["transitions"][0] |= {"on": None, "when": None}

    main = load(ticket).main

    assert (main.context, main.states["coding"].timeout_s, main.events["written"].payload) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("key", ["stateous", "workflow", "states", "events", "transitions", "schemas"])
def test_a_missing_key_is_named(ticket: dict[str, Any], key: str) -> None:
    del ticket[key]

    assert f"the workflow has no {key!r}" in faults(ticket)


@pytest.mark.parametrize("version", [True, 2, "1", 1.0, None])
def test_only_format_1_is_read(ticket: dict[str, Any], version: Any) -> None:
    ticket["stateous"] = version

    assert faults(ticket)[0].startswith("stateous is")


@pytest.mark.parametrize("document", [None, 5, "x", [], True])
def test_what_is_no_object_is_refused(document: Any) -> None:
    assert len(faults(document)) == 1


WRONG: list[tuple[list[str | int], Any, str]] = [
    (["workflow"], "Ticket", "workflow has the name 'Ticket'"),
    (["workflow"], "a" * 65, "workflow has the name"),
    (["workflow"], 5, "workflow has the name 5"),
    (["states"], [], "states is a list; it must be an object"),
    (["events"], "x", "events is a string; it must be an object"),
    (["schemas"], 5, "schemas is an integer; it must be an object"),
    (["transitions"], {}, "transitions is an object; it must be a list"),
    (["states", "coding"], None, "states.coding is null; it must be an object (an empty one is {})"),
    (["states", "coding", "timeout"], "4 h", "states.coding.timeout is '4 h'"),
    (["states", "coding", "timeout"], 4, "states.coding.timeout is 4"),
    (["states", "coding", "timeout"], "3651d", "states.coding.timeout is '3651d'"),
    (["states", "coding", "retries"], -1, "states.coding.retries is -1"),
    (["states", "coding", "retries"], True, "states.coding.retries is true"),
    (["states", "coding", "retries"], 1.0, "states.coding.retries is 1.0"),
    (["states", "coding", "retries"], 10**4000, "states.coding.retries is an integer"),
    (["states", "coding", "retries"], None, "states.coding.retries is null"),
    (["states", "coding", "emits"], "written", "states.coding.emits must be a list of names"),
    (["states", "coding", "emits"], [1], "states.coding.emits must be a list of names"),
    (
        ["states", "coding", "emits"],
        ["writen"],
        "states.coding.emits names 'writen', which is no event; did you",
    ),
    (["states", "coding", "join"], "some", "states.coding.join is 'some'; it must be all or any"),
    (["states", "coding", "inputs"], [5], "states.coding.inputs must be a list of names"),
    (["states", "coding", "parallel"], [], "states.coding.parallel must name at least one workflow"),
    (
        ["states", "coding", "parallel"],
        ["x"],
        "states.coding.parallel names 'x', which workflows does not have",
    ),
    (["states", "Bad"], {}, "states.Bad has the name 'Bad'"),
    (["states", "a\0b"], {}, "states.a\0b has the name 'a\\x00b'"),
    (["events", "written"], 5, "events.written is an integer; it must be an object"),
    (["events", "written"], {"payload": 5}, "events.written.payload is an integer"),
    (["events", "written"], {"payload": "Nope"}, "events.written.payload names the model 'Nope'"),
    (["events", "a b"], {}, "events.a b has the name 'a b'"),
    (["context"], "Nope", "context names the model 'Nope', which schemas does not have"),
    (["context"], 5, "context is an integer; it must be the name of a model in schemas"),
    (["schemas", "Ticket"], {"type": "nope"}, "schemas.Ticket.type is no valid JSON Schema"),
    (["schemas", "Tests"], 5, "schemas.Tests is no valid JSON Schema"),
    (["transitions", 1], 5, "transitions[1] is an integer; it must be an object"),
    (
        ["transitions", 1, "from"],
        "codin",
        "transitions[1].from names 'codin', which is no state; did you mean 'coding'?",
    ),
    (
        ["transitions", 1, "from"],
        "__end__",
        "transitions[1].from is '__end__'; it must be the name of a state",
    ),
    (["transitions", 1, "from"], 5, "transitions[1].from is 5; it must be the name of a state"),
    (
        ["transitions", 1, "to"],
        "__start__",
        "transitions[1].to is '__start__'; it must be the name of a state",
    ),
    (["transitions", 1, "to"], "nowhere", "transitions[1].to names 'nowhere', which is no state"),
    (["transitions", 1, "on"], "wrote", "transitions[1].on names 'wrote', which is no event"),
    (["transitions", 1, "on"], 5, "transitions[1].on is an integer; it must be the name of an event"),
    (["transitions", 1, "on"], None, "transitions[1].on is null"),
    (["transitions", 0, "on"], "written", "transitions[0].on must be left out"),
    (
        ["transitions", 5, "when"],
        True,
        "transitions[5].when is true or false; it must be the text of a guard",
    ),
    (["transitions", 5, "when"], "payload.a +", "transitions[5].when is no guard"),
    (
        ["transitions", 6, "otherwise"],
        "yes",
        "transitions[6].otherwise is a string; it must be true or false",
    ),
    (["workflows"], [], "workflows is a list; it must be an object"),
    (["workflows"], {"child": 5}, "workflows.child is an integer; it must be an object"),
    (["workflows"], {"ticket": {}}, "workflows.ticket has the name of the main workflow"),
    (["workflows"], {"C": {}}, "workflows.C has the name 'C'"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_one_sentence_names_the_place_and_the_fault(
    ticket: dict[str, Any], path: list[str | int], value: Any, message: str
) -> None:
    node: Any = ticket
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value

    assert any(found.startswith(message) for found in faults(ticket)), faults(ticket)


@pytest.mark.parametrize("key", ["states", "events", "transitions"])
def test_a_child_has_its_three_keys(ticket: dict[str, Any], key: str) -> None:
    child: dict[str, Any] = {"states": {}, "events": {}, "transitions": []}
    del child[key]
    ticket["workflows"] = {"child": child}

    assert faults(ticket) == [f"workflows.child has no {key!r}"]


def test_a_child_is_a_machine_of_its_own(ticket: dict[str, Any]) -> None:
    ticket["workflows"] = {
        "review": {"states": {"look": {}}, "events": {"ok": {"payload": "Tests"}}, "transitions": []}
    }

    child = load(ticket).machines["review"]

    assert (list(child.states), child.events["ok"].payload) == (["look"], "Tests")


def test_a_parallel_state_knows_its_children_and_what_they_are_handed(ticket: dict[str, Any]) -> None:
    ticket["workflows"] = {"review": {"states": {}, "events": {}, "transitions": []}}
    ticket["states"]["testing"] = {"parallel": ["review"], "join": "any", "inputs": ["title"]}

    state = load(ticket).main.states["testing"]

    assert (state.parallel, state.join, state.inputs, state.emits) == (("review",), "any", ("title",), ())


def test_every_fault_is_named_at_once(ticket: dict[str, Any]) -> None:
    ticket["states"]["coding"]["timeout"] = "soon"
    ticket["transitions"][1]["to"] = "nowhere"
    ticket["transitions"][5]["when"] = "payload +"

    assert len(faults(ticket)) == 3


def test_a_broken_model_is_named_once_however_often_it_is_used(ticket: dict[str, Any]) -> None:
    ticket["schemas"]["Tests"] = {"type": 5}

    assert len(faults(ticket)) == 1


def test_faults_know_their_lines_and_come_in_their_order(ticket: dict[str, Any]) -> None:
    ticket["states"]["coding"]["timeout"] = "soon"
    ticket["stateous"] = 2
    lines: dict[tuple[str | int, ...], int] = {("states", "coding", "timeout"): 3, ("stateous",): 7}

    with pytest.raises(WorkflowInvalid) as refused:
        load(ticket, Faults(lines.get))

    assert [fault.line for fault in refused.value.faults] == [3, 7]
    assert str(refused.value).startswith("line 3: states.coding.timeout is 'soon'")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("90m", 5_400),
        ("2h", 7_200),
        ("3650d", 315_360_000),
        ("0s", None),
        ("01s", None),
        ("1", None),
        ("1w", None),
        ("1.5h", None),
        ("1 h", None),
        ("1h\n", None),
        ("-1s", None),
        ("", None),
        ("3651d", None),
        ("9" * 5_000 + "s", None),
        ("١s", None),
    ],
)
def test_a_duration_is_a_whole_number_and_one_unit(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["coding", "x", "", "on"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["from", "to", "on", "when", "payload", "timeout", "a", "parallel", "emits", "A"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(
        ["stateous", "workflow", "context", "states", "events", "transitions", "workflows", "schemas"]
    ),
    JSON,
)
def test_no_document_does_more_than_refuse(key: str, value: Any) -> None:
    document: dict[str, Any] = {
        "stateous": 1,
        "workflow": "w",
        "states": {"coding": {}},
        "events": {},
        "transitions": [],
        "schemas": {},
        key: value,
    }
    try:
        graph = load(document)
    except WorkflowInvalid:
        return

    assert graph.document is document
