"""`init` and `contract` on the command line: what they print, and how they end (A-60)."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeControlPlane, Fault, serving
from stateous_contract.canonical import checksum_of, completed
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.agent import folder as agent_folder
from stateous_supervisor.cli.main import run

SDLC = Path(__file__).parents[3] / "examples" / "sdlc"


class Run:
    """Runs one command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, list[str], list[str]]:
        code = run([str(argument) for argument in arguments])
        said = self._capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("STATEOUS_URL", raising=False)
    return Run(capsys)


@pytest.fixture
def plane() -> Iterator[tuple[FakeControlPlane, str]]:
    fake = FakeControlPlane()
    with serving(fake) as url:
        yield fake, url


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_init_from_a_file_makes_a_folder_whose_contract_is_that_of_the_example(
    command: Run, tmp_path: Path
) -> None:
    code, said, _ = command("init", SDLC / "workflow.yaml", tmp_path / "new")

    assert code == 0
    assert f"made       {tmp_path / 'new' / 'testing.py'}" in said
    assert (tmp_path / "new/contract.py").read_text() == (SDLC / "contract.py").read_text()


def test_init_from_a_control_plane_makes_a_folder_that_is_pointed_at_it(
    command: Run, plane: tuple[FakeControlPlane, str], tmp_path: Path
) -> None:
    fake, url = plane

    code, _, _ = command("init", url + "/", tmp_path)

    assert code == 0
    assert f"url: {url}\n" in (tmp_path / "stateous.yaml").read_text()
    assert agent_folder.checksum_of(tmp_path) == fake.graph.checksum


def test_contract_asks_the_control_plane_of_the_settings(
    command: Run, plane: tuple[FakeControlPlane, str], tmp_path: Path
) -> None:
    fake, url = plane
    command("init", url, tmp_path)

    code, said, _ = command("contract", tmp_path)

    assert code == 0
    assert said[0] == f"{tmp_path / 'contract.py'} is up to date: {fake.graph.checksum}"


def test_contract_shows_what_changed_and_which_states_have_no_routine(command: Run, tmp_path: Path) -> None:
    command("init", written(tmp_path / "old.json", KITCHEN), tmp_path / "folder")
    changed = copy.deepcopy(KITCHEN)
    changed["states"]["extra"] = {"emits": ["ready"]}

    code, said, _ = command("contract", tmp_path / "folder", written(tmp_path / "new.json", changed))

    assert code == 0
    assert "+ state extra: may emit ready" in said
    assert "without a routine: extra ('stateous-supervisor init' writes stubs)" in said
    assert agent_folder.checksum_of(tmp_path / "folder") == checksum_of(completed(changed))


def test_contract_with_check_fails_where_it_would_have_changed_something(
    command: Run, tmp_path: Path
) -> None:
    command("init", written(tmp_path / "old.json", KITCHEN), tmp_path / "folder")
    changed = written(tmp_path / "new.json", {**KITCHEN, "workflow": "other"})

    assert command("contract", "--check", tmp_path / "folder", changed)[0] == 1
    assert command("contract", "--check", tmp_path / "folder", tmp_path / "old.json")[0] == 0


def ended(command: Run, *arguments: object) -> int:
    """Return the exit code of a command that is refused: in one sentence, and without a traceback."""
    code, _, errors = command(*arguments)
    assert len(errors) == 1, errors
    assert errors[0].startswith("error: ")
    return code


def test_a_source_that_is_no_url_is_a_wrong_command_line(command: Run, tmp_path: Path) -> None:
    assert ended(command, "init", "http://", tmp_path) == 64


def test_a_control_plane_that_is_not_there_is_not_reached(command: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    assert ended(command, "init", f"http://127.0.0.1:{port}", tmp_path / "new") == 69
    assert not (tmp_path / "new").exists()


def test_a_control_plane_that_answers_a_page_is_refused(
    command: Run, plane: tuple[FakeControlPlane, str], tmp_path: Path
) -> None:
    fake, url = plane
    fake.faults.append(Fault("GET /health", status=404))

    assert ended(command, "init", url, tmp_path) == 76


def test_a_file_that_is_no_workflow_is_a_bad_file(command: Run, tmp_path: Path) -> None:
    assert ended(command, "init", written(tmp_path / "w.json", {"stateous": 1}), tmp_path / "new") == 78


def test_a_folder_without_settings_does_not_say_where_the_control_plane_is(
    command: Run, tmp_path: Path
) -> None:
    assert ended(command, "contract", tmp_path) == 78
