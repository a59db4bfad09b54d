"""What `init` and `contract` do to a folder, and what they never do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stateous_contract.canonical import checksum_of
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.scaffold.document import read_document
from stateous_supervisor.scaffold.folder import Written, init, refresh

CHANGED = {**KITCHEN, "states": {**KITCHEN["states"], "extra": {}}}


def init_kitchen(folder: Path, document: dict[str, object] = KITCHEN) -> Written:
    return init(folder, read_document(document), checksum_of(document), "http://127.0.0.1:1")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_a_new_folder_gets_contract_stubs_and_settings(tmp_path: Path) -> None:
    """A-08."""
    written = init_kitchen(tmp_path / "new" / "folder")

    made = {
        "contract.py",
        "prepare.py",
        "stuck.py",
        "class_.py",
        "wait.py",
        "oven_prepare.py",
        "stateous.yaml",
    }
    assert set(written.made) == made == set(contents(tmp_path / "new" / "folder"))


def test_the_settings_name_the_control_plane(tmp_path: Path) -> None:
    init_kitchen(tmp_path)

    assert "\nurl: http://127.0.0.1:1\n" in (tmp_path / "stateous.yaml").read_text("utf-8")


def test_a_second_init_changes_nothing(tmp_path: Path) -> None:
    init_kitchen(tmp_path)
    before = contents(tmp_path)

    written = init_kitchen(tmp_path)

    assert contents(tmp_path) == before
    assert (written.made, written.kept) == ([], ["contract.py", "stateous.yaml"])


def test_a_routine_is_never_overwritten_wherever_it_stands(tmp_path: Path) -> None:
    """A-08: one file may serve several states under any name."""
    text = (
        "from contract import states\nfrom stateous_supervisor import on_state\n\n"
        "@on_state(states.prepare)\ndef one(ctx): ...\n\n@on_state(states.wait)\ndef two(ctx): ...\n"
    )
    (tmp_path / "mine.py").write_text(text)

    written = init_kitchen(tmp_path)

    assert (tmp_path / "mine.py").read_text() == text
    assert not {"prepare.py", "wait.py"} & set(written.made)


def test_settings_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "stateous.yaml").write_text("url: http://mine:1\n")

    init_kitchen(tmp_path)

    assert (tmp_path / "stateous.yaml").read_text() == "url: http://mine:1\n"


def test_a_file_that_does_not_parse_keeps_its_name_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("def broken(:\n")

    written = init_kitchen(tmp_path)

    assert (tmp_path / "prepare.py").read_text() == "def broken(:\n"
    assert "prepare_2.py" not in written.made
    assert written.unreadable[0].startswith("prepare.py, line 1: ")
    assert written.unserved == ["prepare"]


def test_files_are_read_and_never_run(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")

    init_kitchen(tmp_path)

    assert (tmp_path / "contract.py").exists()


def test_a_contract_that_init_did_not_write_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "contract.py").write_text("MINE = 1\n")

    with pytest.raises(Fault, match="was not written by init") as refused:
        init_kitchen(tmp_path)

    assert refused.value.exit_code is Exit.CONFIG
    assert contents(tmp_path) == {"contract.py": "MINE = 1\n"}


def test_a_refresh_writes_the_contract_and_nothing_else(tmp_path: Path) -> None:
    init_kitchen(tmp_path)
    before = contents(tmp_path)

    written = refresh(tmp_path, read_document(CHANGED), checksum_of(CHANGED))

    after = contents(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {"contract.py"}
    assert "+ state extra: may emit nothing" in written.changes
    assert written.unserved == ["extra"]


def test_a_dry_refresh_writes_nothing(tmp_path: Path) -> None:
    init_kitchen(tmp_path)
    before = contents(tmp_path)

    written = refresh(tmp_path, read_document(CHANGED), checksum_of(CHANGED), is_dry=True)

    assert written.refreshed == ["contract.py"]
    assert contents(tmp_path) == before


def test_a_refresh_mends_a_contract_that_does_not_parse(tmp_path: Path) -> None:
    init_kitchen(tmp_path)
    good = (tmp_path / "contract.py").read_text()
    (tmp_path / "contract.py").write_text(good + "\n<<<<<<< ours\n")

    refresh(tmp_path, read_document(KITCHEN), checksum_of(KITCHEN))

    assert (tmp_path / "contract.py").read_text() == good


def test_a_refresh_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="is no folder"):
        refresh(tmp_path / "none", read_document(KITCHEN), "sha256:0")


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Fault) as refused:
        init_kitchen(tmp_path / "file" / "folder")

    assert refused.value.exit_code is Exit.CONFIG
    assert "\n" not in refused.value.sentence


def test_written_files_have_the_modes_of_ordinary_files(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        init_kitchen(tmp_path)
    finally:
        os.umask(old)

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
