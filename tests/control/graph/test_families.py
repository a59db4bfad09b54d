"""Parallel states in a workflow file: what is refused, what is warned of, and how much one event can bring (C.3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stateous_control.graph.compiler import Compiled, compile_file
from stateous_control.graph.document import WorkflowInvalid
from stateous_control.graph.loading import load
from stateous_control.graph.source import read_source

YAML = """\
stateous: 1
workflow: book
context: Book
states:
  writing: {}
  proofs: {parallel: [spelling, layout], join: all, inputs: [title, pages]}
events:
  written: {}
transitions:
  - {from: __start__, to: writing}
  - {from: writing, to: proofs, on: written}
  - {from: writing, to: __end__, on: error}
  - {from: proofs, to: __end__, on: joined}
workflows:
  spelling:
    context: Text
    states: {check: {}}
    events: {verdict: {}}
    transitions:
      - {from: __start__, to: check}
      - {from: check, to: __end__, on: verdict}
      - {from: check, to: __end__, on: error}
  layout:
    states: {check: {}}
    events: {verdict: {}}
    transitions:
      - {from: __start__, to: check}
      - {from: check, to: __end__, on: verdict}
      - {from: check, to: __end__, on: error}
schemas:
  Book: {type: object, properties: {title: {type: string}, pages: {type: integer, default: 0}}, required: [title]}
  Text: {type: object, properties: {title: {type: string}}, required: [title]}
"""

Change = tuple[str, str]


def compiled(*changes: Change) -> Compiled:
    text = YAML
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return compile_file(text.encode(), name="book.yaml")


def test_a_sound_workflow_with_parallel_states_has_no_fault_and_no_warning() -> None:
    found = compiled()

    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ([("on: joined}", "on: written}")], 6, "has no transition on 'joined'; a token could not leave it"),
        (
            [("on: joined}", "on: joined}\n  - {from: proofs, to: __end__, on: error}")],
            6,
            "has a transition on 'error'; it has no task of its own that fails",
        ),
        ([("join: all", "retries: 1, join: all")], 6, "states.proofs.retries must be left out"),
        ([("join: all", "emits: [written], join: all")], 6, "states.proofs.emits must be left out"),
        ([("[title, pages]", "[pages]")], 6, "lacks 'title', which the context of 'spelling' must have"),
        ([("[title, pages]", "[title, page]")], 6, "names 'page', which the context model 'Book' does not declare"),
        ([("[spelling, layout]", "[spelling, spelling]")], 6, "names a workflow twice"),
        ([("[spelling, layout]", "[spelling, lay]")], 6, "names 'lay', which workflows does not have"),
        (
            [("{from: __start__, to: check}\n      - {from: check, to: __end__, on: verdict}",
              "{from: __start__, to: check, when: \"ctx['title'] == 'a'\"}\n      - {from: check, to: __end__, on: verdict}")],
            19,
            "workflows.spelling.transitions has no way from __start__ that is always open",
        ),
        (
            [("  layout:\n    states: {check: {}}", "  layout:\n    states: {check: {parallel: [layout], join: any}}")],
            24,
            "leads back to the workflow 'layout', so that entering it would never end",
        ),
        ([("  layout:", "  writing:"), ("spelling, layout", "spelling, writing")], 23,
         "workflows.writing is the same Python name as the state 'writing'"),
        ([("  layout:", "  written:"), ("spelling, layout", "spelling, written")], 23,
         "workflows.written is the same Python name as the event 'written'"),
        ([("  layout:", "  class:"), ("spelling, layout", "spelling, class")], 23,
         "workflows.class is a keyword of Python"),
        ([("  layout:", f"  {'l' * 53}:"), ("spelling, layout", f"spelling, {'l' * 53}")], 6,
         "leads to token ids that are 1 characters too long"),
    ],
)  # fmt: skip
def test_a_fault_of_a_parallel_state_is_named_with_its_line(
    changes: list[Change], line: int, message: str
) -> None:
    found = compiled(*changes)

    assert [fault.line for fault in found.faults if message in fault.message] == [line]


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ([("[spelling, layout]", "[spelling]")], 23, "workflows.layout is run by no parallel state"),
        ([(", required: [title]}\n  Text", "}\n  Text")], 6, "names 'title', which a context may lack"),
        ([("spelling:\n    context: Text\n    states: {check: {}}",
           "spelling:\n    context: Text\n    states: {check: {timeout: 1h}}")], 17, "no transition on 'timeout'"),
    ],
)  # fmt: skip
def test_a_warning_of_a_parallel_state_is_named_with_its_line(
    changes: list[Change], line: int, message: str
) -> None:
    found = compiled(*changes)

    assert not found.faults
    assert [warning.line for warning in found.warnings if message in warning.message] == [line]


def test_a_default_covers_what_a_child_must_have() -> None:
    found = compiled(
        ("[title, pages]", "[pages]"),
        ("Text: {type: object, properties: {title: {type: string}}",
         "Text: {type: object, properties: {title: {type: string, default: ''}}"),
    )  # fmt: skip

    assert not found.faults


def document() -> dict[str, Any]:
    read: dict[str, Any] = read_source(YAML.encode()).document
    return read


def test_one_event_brings_at_most_what_a_family_can_start() -> None:
    """A child's end may let its parent enter the parallel state again: two children, two steps."""
    assert load(document()).ids_per_move == 4


def test_without_parallel_states_one_event_brings_one_task(ticket: dict[str, Any]) -> None:
    assert load(ticket).ids_per_move == 1
    assert not load(ticket).has_children


def test_a_document_that_would_start_tokens_without_end_is_not_served() -> None:
    endless = document()
    endless["workflows"]["layout"]["states"]["check"] = {"parallel": ["spelling"]}
    endless["workflows"]["spelling"]["states"]["check"] = {"parallel": ["layout"]}

    with pytest.raises(WorkflowInvalid) as refused:
        load(endless)

    assert all("would never end" in fault.message for fault in refused.value.faults)
    assert len(refused.value.faults) == 2


def test_a_document_that_would_start_a_thousand_million_tokens_is_refused_in_time() -> None:
    """Thirty generations of two children each."""
    many = document()
    many["workflows"] = {
        f"w{n}{side}": {
            "states": {"s": {"parallel": [f"w{n + 1}a", f"w{n + 1}b"]} if n < 30 else {}},
            "events": {},
            "transitions": [{"from": "__start__", "to": "s"}, {"from": "s", "to": "__end__", "on": "joined"}],
        }
        for n in range(31)
        for side in "ab"
    }
    many["states"]["proofs"]["parallel"] = ["w0a", "w0b"]

    with pytest.raises(WorkflowInvalid) as refused:
        load(many)

    assert any("tokens at once; at most 1000 are started" in str(fault) for fault in refused.value.faults)


def test_the_workflows_of_the_page_on_workflow_files_compile() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/workflow-files.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert len(blocks) == 2
    assert [compile_file(block.encode(), name="w.yaml").faults for block in blocks] == [(), ()]
