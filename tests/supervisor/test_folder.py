"""What the agent reads of a folder without importing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stateous_contract.reliance import reliance_of

from stateous_supervisor.agent import folder
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.scaffold.codegen import contract_text
from stateous_supervisor.scaffold.document import read_document

SUM = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "line", [f'__checksum__ = "{SUM}"', f"__checksum__: str = '{SUM}'", f'__checksum__="{SUM}"']
)
def test_the_checksum_is_read_without_importing_a_09(tmp_path: Path, line: str) -> None:
    (tmp_path / "contract.py").write_text(f"# x\nraise SystemExit\n{line}\n")

    assert folder.checksum_of(tmp_path) == SUM


@pytest.mark.parametrize(
    "text", ["", f'  __checksum__ = "{SUM}"\n', f'# __checksum__ = "{SUM}"\n', '__checksum__ = "1"\n']
)
def test_a_contract_without_a_checksum_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "contract.py").write_text(text)

    with pytest.raises(Fault, match="stateous-supervisor contract FOLDER") as caught:
        folder.checksum_of(tmp_path)

    assert caught.value.exit_code is Exit.CONFIG


def test_a_folder_of_routines_without_a_graph_needs_no_contract(tmp_path: Path) -> None:
    assert folder.checksum_of(tmp_path) is None


def test_what_the_routines_rely_on_is_read_as_it_was_generated_a_09(tmp_path: Path) -> None:
    document = {
        "stateous": 1, "workflow": "w", "context": "C", "states": {"a": {"emits": ["e"]}, "b": {"emits": []}},
        "events": {"e": {"payload": "P}\n"}}, "transitions": [],
        "schemas": {"C": {"properties": {f"field{n}": {} for n in range(9)}}, "P}\n": {"type": "object"}},
    }  # fmt: skip
    (tmp_path / "contract.py").write_text(contract_text(read_document(document), SUM))

    assert folder.reliance_of(tmp_path) == reliance_of(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__states__ = {\n",
        "__states__ = {\n    1: 2,\n}\n",
        "__states__ = {\n    'a': {'b': f()},\n}\n",
        "__states__ = {" + "[" * 99_999 + "\n}\n",
    ],
)
def test_a_contract_that_does_not_say_what_routines_rely_on_is_one_of_stateous(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "contract.py").write_text(text)

    assert folder.reliance_of(tmp_path) is None


def test_systemds_state_directory_is_used_as_it_is(tmp_path: Path) -> None:
    assert folder.state_folder(tmp_path, {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}) == Path("/var/lib/x")


def test_without_it_each_folder_has_a_state_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    environment = {"XDG_STATE_HOME": "/s"}

    a, b = (folder.state_folder(tmp_path / name, environment) for name in "ab")

    assert a.parent == b.parent == Path("/s/stateous-supervisor")
    assert a != b


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")

    assert folder.state_folder(tmp_path / "a", {}) == folder.state_folder(tmp_path / "link", {})
