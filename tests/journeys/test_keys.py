"""An agent with a key at a control plane that asks for keys: it works, outlives a revocation, and tells the key nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from control.databases import fresh
from control.http.keyed import make_key, revoke
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for

from journeys import folders
from journeys.conftest import TIMES
from journeys.folders import WORKFLOW


@dataclass
class Guarded:
    """A control plane with keys: its database, its program, and a person who may do everything."""

    database: str
    program: ControlPlaneProgram
    person: ControlPlaneClient


@pytest.fixture(scope="module")
def guarded(postgres: str, migrated_template: str) -> Iterator[Guarded]:
    with fresh(postgres, migrated_template) as database:
        key = make_key(database, "ann", "admin")
        with (
            ControlPlaneProgram(WORKFLOW, *TIMES, "--database", database) as program,
            ControlPlaneClient(program.url) as person,
        ):
            person.http.headers["Authorization"] = f"Bearer {key}"
            yield Guarded(database, program, person)


def keyed_folder(place: Path, url: str, key: str) -> tuple[Path, Path]:
    """Make a folder whose agent shows the key in the file that is returned beside it."""
    file = place.parent / "key"
    file.write_text(key + "\n")
    file.chmod(0o600)
    made = folders.make(place, url)
    config = made / "stateous.yaml"
    before = config.read_text() if config.exists() else ""
    config.write_text(f"{before}\ntoken_file: {file}\n")
    return made, file


def test_an_agent_with_a_key_works_and_the_key_is_nowhere_else(guarded: Guarded, box: Path) -> None:
    """BH-055: not in a log of either side, not in the history, not in an argument."""
    key = make_key(guarded.database, "box", "supervisor")
    made, _file = keyed_folder(box, guarded.program.url, key)
    with AgentProgram(made, guarded.program.url) as agent:
        guarded.person.start("keyed", size=7)
        guarded.person.until("keyed", status="completed")
        arguments = Path(f"/proc/{agent.child.pid}/cmdline").read_text()
    history = str(guarded.person.history("keyed"))
    for text in (agent.told, guarded.program.told, arguments, history):
        assert key[17:] not in text


def test_work_goes_on_through_an_exchange_of_keys(guarded: Guarded, box: Path, tmp_path: Path) -> None:
    """BH-036: a routine runs on while its agent's key is refused, and its outcome arrives under the next key."""
    key = make_key(guarded.database, "old", "supervisor")
    made, file = keyed_folder(box, guarded.program.url, key)
    gate = tmp_path / "gate"
    with AgentProgram(made, guarded.program.url) as agent:
        guarded.person.start("exchanged", gate=str(gate))
        wait_for(lambda: folders.phases(made, "exchanged"), within_s=20, what="routine that runs")
        revoke(guarded.database, "old")
        guarded.program.line('"event": "key.refused"', within_s=15)
        file.write_text(make_key(guarded.database, "new", "supervisor") + "\n")
        gate.touch()
        guarded.person.until("exchanged", status="completed", within_s=40)
        assert agent.child.poll() is None
    assert key[17:] not in agent.told + guarded.program.told
