"""Every example is a whole folder: its contract is that of its workflow, and each state has a routine."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateous_control.graph.compiler import compile_file
from stateous_supervisor.agent import folder as agent_folder
from stateous_supervisor.scaffold.folder import refresh
from stateous_supervisor.scaffold.source import from_file

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[2] / "examples").glob("*/workflow.*"))

pytestmark = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


def test_the_contract_of_an_example_is_what_init_writes_today(example: Path) -> None:
    source = from_file(example / "workflow.yaml")

    written = refresh(example, source.document, source.checksum, is_dry=True)

    assert written.kept == ["contract.py"], (
        "run: stateous-supervisor init examples/…/workflow.yaml examples/…"
    )
    assert (written.unserved, written.unreadable) == ([], [])


def test_the_workflow_of_an_example_compiles_without_a_warning(example: Path) -> None:
    path = example / "workflow.yaml"

    compiled = compile_file(path.read_bytes(), name=path.name)

    assert compiled.graph is not None
    assert [str(warning) for warning in compiled.warnings] == []
    assert compiled.graph.checksum == agent_folder.checksum_of(example)


def test_an_example_is_explained_in_a_few_lines(example: Path) -> None:
    assert 5 <= len((example / "README.md").read_text("utf-8").splitlines()) <= 30
