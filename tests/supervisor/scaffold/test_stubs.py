"""Which states have a routine is read from the text of files; the others get a stub that works."""

from __future__ import annotations

import ast

import pytest
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.scaffold.codegen import names_of
from stateous_supervisor.scaffold.document import read_document
from stateous_supervisor.scaffold.stubs import Marked, marked_in, stub_text, stubs_for

DOCUMENT = read_document(KITCHEN)
NAMES = names_of(DOCUMENT)


def routine(imports: str, mark: str, kind: str = "def") -> str:
    return f"{imports}\n\n\n@{mark}\n{kind} run(ctx):\n    return None\n"


@pytest.mark.parametrize(
    "source",
    [
        routine(
            "from contract import states\nfrom stateous_supervisor import on_state",
            "on_state(states.prepare)",
        ),
        routine("from contract import states\nfrom stateous import on_state", "on_state(states.prepare)"),
        routine("from contract import states as s\nfrom stateous import on_state as mark", "mark(s.prepare)"),
        routine("import contract\nimport stateous", "stateous.on_state(contract.states.prepare)"),
        routine(
            "import contract as c\nimport stateous_supervisor as sv", "sv.on_state(state=c.states.prepare)"
        ),
        routine(
            "from contract import states\nfrom stateous import on_state",
            "on_state(states.prepare, version=2)",
        ),
        routine(
            "from contract import states\nfrom stateous import on_state",
            "on_state(states.prepare)",
            "async def",
        ),
    ],
)
def test_a_marked_function_is_found_however_the_names_were_imported(source: str) -> None:
    assert marked_in(source).ids == {"prepare"}


def test_a_marked_state_of_a_child_workflow_is_found() -> None:
    source = routine(
        "from contract import states\nfrom stateous import on_state", "on_state(states.oven.prepare)"
    )

    assert marked_in(source).ids == {"oven.prepare"}


def test_a_state_marked_by_its_name_is_found() -> None:
    source = routine("from stateous import StateRef, on_state", 'on_state(StateRef("prepare", emits=()))')

    assert marked_in(source).names == {"prepare"}


@pytest.mark.parametrize(
    "source",
    [
        "",
        "from contract import states\nx = states.prepare\n",
        routine("from contract import states\nfrom other import on_state", "on_state(states.prepare)"),
        routine("from other import states\nfrom stateous import on_state", "on_state(states.prepare)"),
        "# @on_state(states.prepare)\ndef run(ctx): ...\n",
    ],
)
def test_what_only_looks_like_a_mark_is_none(source: str) -> None:
    assert marked_in(source) == Marked(frozenset(), frozenset())


def test_every_state_without_a_routine_gets_a_stub_of_its_own() -> None:
    marked = [Marked(frozenset({"prepare"}), frozenset({"stuck"}))]

    stubs = stubs_for(DOCUMENT, NAMES, marked, ["contract.py"])

    assert {stub.state: stub.file for stub in stubs} == {
        "class": "class_.py",
        "wait": "wait.py",
        "oven/prepare": "oven_prepare.py",
    }


def test_a_stub_never_takes_the_name_of_a_file_that_is_there() -> None:
    stubs = stubs_for(DOCUMENT, NAMES, [], ["prepare.py", "prepare_2.py"])

    assert next(stub.file for stub in stubs if stub.state == "prepare") == "prepare_3.py"


@pytest.mark.parametrize("state", ["queue", "contract", "stateous", "email"])
def test_a_stub_never_shadows_a_module(state: str) -> None:
    document = read_document({**KITCHEN, "states": {state: {}}})

    stub = stubs_for(document, names_of(document), [], [])[0]

    assert stub.file == f"{state}_routine.py"


def test_a_stub_is_a_routine_of_its_state_by_its_own_reading() -> None:
    for workflow in DOCUMENT.workflows:
        for state in workflow.states:
            text = stub_text(workflow, state, NAMES)
            dotted = NAMES.state(workflow.name, state).removeprefix("states.")
            assert marked_in(text).ids == {dotted}


def test_a_stub_that_was_not_written_fails_and_says_which_state() -> None:
    text = stub_text(DOCUMENT.workflows[0], "prepare", NAMES)

    raised = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Raise)]
    assert "NotImplementedError" in ast.unparse(raised[0])
    assert "prepare" in ast.unparse(raised[0])
