"""`compile`: every fault and warning with its line, all at once (C.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stateous_control.graph.checksum import checksum_of
from stateous_control.graph.compiler import Compiled, compile_file, dump, load_file
from stateous_control.graph.document import WorkflowInvalid

YAML = """\
stateous: 1
workflow: ticket
context: Ticket
states:
  coding: {timeout: 4h, retries: 2}
  testing: {}
events:
  written: {}
  passed: {payload: Tests}
  failed: {payload: Tests}
transitions:
  - {from: __start__, to: coding}
  - {from: coding, to: testing, on: written}
  - {from: coding, to: __end__, on: timeout}
  - {from: coding, to: __end__, on: error}
  - {from: testing, to: __end__, on: passed}
  - {from: testing, to: coding, on: failed, when: payload.failures < 3}
  - {from: testing, to: __end__, on: failed, otherwise: true}
  - {from: testing, to: coding, on: error}
schemas:
  Tests: {type: object, properties: {failures: {type: integer}}, required: [failures]}
  Ticket: {type: object, properties: {title: {type: string, default: ""}, tries: {type: integer}}}
"""

Change = tuple[str, str]
Found = list[tuple[int | None, str]]


def compiled(*changes: Change, text: str = YAML) -> Compiled:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return compile_file(text.encode(), name="ticket.yaml")


def faults(*changes: Change) -> Found:
    found = compiled(*changes)
    assert (found.graph is None) == bool(found.faults)
    return [(fault.line, fault.message) for fault in found.faults]


def warnings(*changes: Change) -> Found:
    found = compiled(*changes)
    assert not found.faults
    return [(warning.line, warning.message) for warning in found.warnings]


def test_a_sound_workflow_has_no_fault_and_no_warning(ticket: dict[str, Any]) -> None:
    found = compiled()

    assert (found.faults, found.warnings) == ((), ())
    assert found.graph is not None
    assert found.graph.checksum == checksum_of(ticket)


START_GUARD = "{from: __start__, to: coding, when: %s}"
FAULTS: list[tuple[list[Change], int, str]] = [
    # Names that lead nowhere.
    ([("to: testing, on: written", "to: testng, on: written")], 13, "transitions[1].to names 'testng', which is no state"),
    ([("on: passed", "on: pased")], 16, "transitions[4].on names 'pased', which is no event; did you mean 'passed'?"),
    ([("passed: {payload: Tests}", "passed: {payload: Test}")], 9, "events.passed.payload names the model 'Test'"),
    ([("context: Ticket", "context: Tickets")], 3, "context names the model 'Tickets'"),
    ([("testing: {}", "testing: {emits: [written, passed, failed]}")], 6, "states.testing.emits names 'written', which no"),
    ([("testing: {}", "testing: {emits: [pass]}")], 6, "states.testing.emits names 'pass', which is no event"),
    # Ways.
    ([("  testing: {}", "  testing: {}\n  lonely: {}")], 7, "states.lonely cannot be reached from __start__"),
    ([("{from: __start__, to: coding}", "{from: __start__, to: __end__}")], 12, "transitions[0] goes from __start__ straight"),
    ([("  - {from: __start__, to: coding}\n", "")], 11, "transitions has none from __start__"),
    ([("to: coding, on: error", "to: stuck, on: error"), ("testing: {}", "testing: {}\n  stuck: {}")], 7, "states.stuck has no way to __end__"),
    # Guards.
    ([("when: payload.failures < 3", "when: payload.failures + 3")], 17, "transitions[5].when is no guard"),
    ([(", otherwise: true", "")], 18, "transitions[6] has no guard, but stands beside guarded ones"),
    ([("when: payload.failures < 3", "otherwise: true")], 18, "transitions[6] is a second way without a guard"),
    ([("when: payload.failures < 3", "when: payload.failures < 3, otherwise: true")], 17, "transitions[5] has a guard and is the otherwise"),
    ([("payload.failures", "payload.errors")], 17, "transitions[5].when reads payload.errors, which the payload model 'Tests'"),
    ([("payload.failures < 3", "\"ctx['title'] == ctx['owner']\"")], 17, "transitions[5].when reads ctx['owner'], which the context model"),
    ([("payload.failures < 3", "count('fail') < 3")], 17, "transitions[5].when counts 'fail', which is no event; did you mean"),
    ([("on: written}", "on: written, when: payload.x}")], 13, "transitions[1].when reads payload.x, but the event has no payload"),
    ([("on: timeout}", "on: timeout, when: payload.x}")], 14, "transitions[2].when reads payload.x, but the event has no payload"),
    ([("context: Ticket\n", ""), ("payload.failures < 3", "\"ctx['n'] < 3\"")], 16, "transitions[5].when reads ctx['n'], but the workflow has no context"),
    ([("{from: __start__, to: coding}", START_GUARD % "payload.n == 1")], 12, "transitions[0].when reads more than the context"),
    ([("{from: __start__, to: coding}", START_GUARD % '"count(\'written\') == 1"')], 12, "transitions[0].when reads more"),
    ([("{from: __start__, to: coding}", START_GUARD % "branches.any(true)")], 12, "transitions[0].when reads more"),
    # Names.
    ([("  testing: {}", "  testing: {}\n  Bad: {}")], 7, "states.Bad has the name 'Bad'"),
    ([("  testing: {}", "  testing: {}\n  class: {}")], 7, "states.class is a keyword of Python"),
    ([("  written: {}", "  written: {}\n  a-b: {}\n  a_b: {}")], 10, "events.a_b is the same Python name as 'a-b'"),
    ([("  written: {}", "  written: {}\n  error: {}")], 9, "events.error is an event of the control plane's own"),
    # Shapes and settings.
    ([("stateous: 1\n", "stateous: 2\n")], 1, "stateous is 2"),
    ([("timeout: 4h", "timeout: 4 hours")], 5, "states.coding.timeout is '4 hours'"),
    ([("retries: 2", "retries: -2")], 5, "states.coding.retries is -2"),
    ([("  testing: {}", "  testing:")], 6, "states.testing is null; it must be an object (an empty one is {})"),
    ([("  testing: {}", "  testing: {parallel: [x]}")], 6, "states.testing.parallel names 'x'"),
    ([("type: string", "type: text")], 22, "schemas.Ticket.properties.title.type is no valid JSON Schema"),
    ([("schemas:\n", "schemas:\n  Unused: {type: nothing}\n")], 21, "schemas.Unused.type is no valid JSON Schema"),
    # The file itself.
    ([("workflow: ticket", "workflow: ticket\nworkflow: ticket")], 3, "the key 'workflow' stands twice"),
    ([("testing: {}", "testing: &t {}")], 6, "the anchor &t is not allowed"),
    ([("testing: {}", "testing: !!map {}")], 6, "the tag !!map is not allowed"),
    ([("testing: {}", "testing: {")], 8, "the file is not YAML"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line", "message"), FAULTS)
def test_a_fault_is_told_with_its_line(changes: list[Change], line: int, message: str) -> None:
    found = faults(*changes)

    assert any(at == line and text.startswith(message) for at, text in found), found


@pytest.mark.parametrize(
    "changes",
    [
        [("when: payload.failures < 3", "when: payload.failures + 3")],
        [(", otherwise: true", "")],
        [("payload.failures", "payload.errors")],
        [("context: Ticket", "context: Tickets"), ("payload.failures < 3", "\"ctx['title'] == 'a'\"")],
        [("type: integer}}, required", "type: 5}}, required")],
        [("workflow: ticket", "workflow: ticket\nworkflow: ticket")],
    ],
)
def test_one_mistake_makes_one_sentence(changes: list[Change]) -> None:
    assert len(faults(*changes)) == 1


def test_all_faults_come_at_once_in_the_order_of_their_lines() -> None:
    found = faults(
        ("timeout: 4h", "timeout: soon"),
        ("to: testing, on: written", "to: testng, on: written"),
        ("payload.failures < 3", "payload.errors < 3"),
        ("type: string", "type: text"),
    )

    assert [line for line, _ in found] == [5, 6, 13, 17, 22]


def test_no_way_from_start_to_end_is_one_fault() -> None:
    text = YAML
    for event in ("timeout", "error", "passed"):
        text = text.replace(f"to: __end__, on: {event}", f"to: coding, on: {event}")
    text = text.replace("to: __end__, on: failed", "to: testing, on: failed")

    found = compiled(text=text)

    assert [(fault.line, fault.message) for fault in found.faults] == [
        (11, "transitions has no way from __start__ to __end__")
    ]


def test_a_workflow_without_states_is_refused() -> None:
    document = {"stateous": 1, "workflow": "w", "states": {}, "events": {}, "transitions": [], "schemas": {}}

    found = compile_file(json.dumps(document).encode(), name="w.json")

    assert [fault.message for fault in found.faults] == ["states has no state"]


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "[]",
        "null",
        "x",
        "{}",
        "states: 5",
        "transitions: [5, [], {}]",
        "states: {a: {}}\ntransitions: 1",
        "workflows: {a: 5}",
    ],
)
def test_a_document_of_another_shape_is_refused_and_never_raised(text: str) -> None:
    assert compile_file(text.encode(), name="a.yaml").faults


WARNINGS: list[tuple[list[Change], int, str]] = [
    ([("  - {from: coding, to: __end__, on: timeout}\n", "")], 5, "states.coding has a timeout of 4h and no transition on 'timeout'"),
    ([("  - {from: coding, to: __end__, on: error}\n", "")], 5, "states.coding has no transition on 'error': a token fails when its last attempt"),
    ([("  - {from: testing, to: coding, on: error}\n", "")], 6, "states.testing has no transition on 'error': a token fails when its only attempt"),
    ([("otherwise: true", "when: payload.failures > 1")], 18, "transitions[6].when holds together with the guard of transitions[5] when payload.failures is 2"),
    ([("otherwise: true", "when: \"ctx['title'] == ctx['tries']\"")], 18, "transitions[6].when may hold together with the guard of transitions[5]"),
    ([("timeout: 4h, ", "")], 14, "transitions[2] never happens: 'coding' has no timeout"),
    ([("on: timeout}", "on: joined}"), ("timeout: 4h, ", "")], 14, "transitions[2] never happens: 'coding' is no parallel state"),
    ([("  written: {}", "  written: {}\n  spare: {}")], 9, "events.spare is taken by no transition"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line", "message"), WARNINGS)
def test_what_is_legal_but_seldom_meant_is_a_warning_with_its_line(
    changes: list[Change], line: int, message: str
) -> None:
    [(at, text)] = warnings(*changes)

    assert (at, text[: len(message)]) == (line, message)


def test_the_warning_of_a_timeout_says_that_the_queue_counts() -> None:
    """A state's timeout runs while its task is only queued."""
    [(_, text)] = warnings(("  - {from: coding, to: __end__, on: timeout}\n", ""))

    assert "queue" in text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("payload.failures < 3", "payload.failures >= 3"),
        ("payload.failures < 3", "payload.failures > 2"),
        ("\"ctx['title'] == 'a'\"", "\"ctx['title'] == 'b'\""),
        ("\"count('failed') < 2\"", "\"count('failed') > 1\""),
        ("\"count('failed') == 0\"", '"true"'),
    ],
)
def test_guards_that_exclude_each_other_by_their_values_and_kinds_are_no_warning(
    first: str, second: str
) -> None:
    assert (
        warnings(("when: payload.failures < 3", f"when: {first}"), ("otherwise: true", f"when: {second}"))
        == []
    )


def test_an_own_event_may_be_counted() -> None:
    assert warnings(("payload.failures < 3", "count('error') < 3")) == []


def test_a_field_of_an_open_model_may_be_read() -> None:
    assert (
        warnings(
            ("payload.failures < 3", "payload.other"), ("required: [failures]", "additionalProperties: true")
        )
        == []
    )


def test_a_joined_event_has_branches(ticket: dict[str, Any]) -> None:
    ticket["transitions"] += [
        {"from": "testing", "to": "coding", "on": "joined", "when": "branches.any(payload.anything)"},
        {"from": "testing", "to": "coding", "on": "joined", "when": "payload.branches == null"},
        {"from": "testing", "to": "coding", "on": "joined", "when": "payload.x"},
    ]

    found = compile_file(json.dumps(ticket).encode(), name="t.json")

    assert [fault.message for fault in found.faults] == [
        "transitions[10].when reads payload.x, but the event has no payload"
    ]


def test_a_child_is_checked_like_the_main_workflow(ticket: dict[str, Any]) -> None:
    ticket["workflows"] = {"child": {"states": {"a": {}}, "events": {}, "transitions": []}}

    found = compile_file(json.dumps(ticket).encode(), name="t.json")

    assert [fault.message for fault in found.faults] == [
        "workflows.child.transitions has none from __start__"
    ]


def test_yaml_and_json_of_one_workflow_have_one_checksum(ticket: dict[str, Any]) -> None:
    from_json = compile_file(json.dumps(ticket).encode(), name="t.json").graph
    from_yaml = compile_file(yaml.safe_dump(ticket).encode(), name="t.yaml").graph

    assert from_json is not None
    assert from_yaml is not None
    assert from_json.checksum == from_yaml.checksum == checksum_of(ticket)


@pytest.mark.parametrize("name", ["t.yaml", "t.json"])
def test_what_is_left_out_is_filled_in_before_the_checksum(ticket: dict[str, Any], name: str) -> None:
    checksum = checksum_of(ticket)
    del ticket["states"]["coding"]["emits"], ticket["states"]["testing"]["emits"]

    graph = load_file(json.dumps(ticket).encode(), name=name)

    assert graph.checksum == checksum
    assert graph.document["states"]["testing"]["emits"] == ["passed", "failed"]


def test_serving_asks_less_than_compiling() -> None:
    lonely = YAML.replace("  testing: {}", "  testing: {}\n  lonely: {}")

    assert "lonely" in load_file(lonely.encode(), name="t.yaml").main.states


def test_a_file_that_cannot_be_served_is_refused_with_lines() -> None:
    with pytest.raises(WorkflowInvalid) as refused:
        load_file(YAML.replace("4h", "soon").encode(), name="t.yaml")

    assert [fault.line for fault in refused.value.faults] == [5]


# As a compiler of the baseline writes it: the starter workflow of Stateous 0.2.2, and its checksum.
ORDERS = {
    "stateous": 1,
    "workflow": "orders",
    "context": "Item",
    "states": {"draft": {"emits": ["submitted"]}, "review": {"emits": ["reviewed"]}},
    "events": {"submitted": {}, "reviewed": {"payload": "Verdict"}},
    "transitions": [
        {"from": "__start__", "to": "draft"},
        {"from": "draft", "to": "review", "on": "submitted"},
        {"from": "review", "to": "__end__", "on": "reviewed", "when": "payload.approved == true"},
        {"from": "review", "to": "draft", "on": "reviewed", "otherwise": True},
    ],
    "schemas": {
        "Item": {
            "description": "The context of each token of `orders`.",
            "properties": {"title": {"type": "string"}},
            "required": ["title"],
            "type": "object",
        },
        "Verdict": {
            "description": "The payload of the event `reviewed`.",
            "properties": {"approved": {"type": "boolean"}, "note": {"default": "", "type": "string"}},
            "required": ["approved"],
            "type": "object",
        },
    },
}
ORDERS_CHECKSUM = "sha256:77510d7465e1e6d8061c1018f6f152e6136aa15304b08e92be3efa62174d7851"


def test_a_graph_compiled_elsewhere_keeps_its_checksum_and_its_bytes() -> None:
    written = json.dumps(ORDERS, indent=2) + "\n"

    found = compile_file(written.encode(), name="orders.json")

    assert found.graph is not None
    assert found.graph.checksum == ORDERS_CHECKSUM
    assert dump(found.graph.document) == written


def test_the_written_file_has_its_keys_in_order_and_extra_ones_last() -> None:
    jumbled = {
        "zebra": 1,
        "schemas": {"B": {}, "A": {}},
        "transitions": [{"otherwise": True, "when": "true", "on": "go", "to": "a", "from": "a", "note": ""}],
        "events": {"go": {}},
        "states": {"a": {"note": "", "emits": ["go"], "retries": 1, "timeout": "1s"}},
        "workflows": {"c": {"transitions": [], "events": {}, "states": {}}},
        "workflow": "w",
        "stateous": 1,
    }

    written = json.loads(dump(jumbled))

    assert list(written) == [
        "stateous",
        "workflow",
        "states",
        "events",
        "transitions",
        "workflows",
        "schemas",
        "zebra",
    ]
    assert list(written["states"]["a"]) == ["timeout", "retries", "emits", "note"]
    assert list(written["transitions"][0]) == ["from", "to", "on", "when", "otherwise", "note"]
    assert list(written["workflows"]["c"]) == ["states", "events", "transitions"]
    assert list(written["schemas"]) == ["A", "B"]
    assert checksum_of(written) == checksum_of(jumbled)


@given(
    st.sampled_from(YAML.splitlines()),
    st.sampled_from(["", "  x: y", "- 1", "a: {", "? b", "*c", "states: {}"]),
)
def test_no_damaged_line_does_more_than_be_refused(line: str, damage: str) -> None:
    found = compiled((line, damage))

    assert (found.graph is None) == bool(found.faults)
