"""The pages for people who write routines and run boxes: their Python runs, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateous_control.cli import main as control
from stateous_supervisor.agent.keys import KEYS
from stateous_supervisor.agent.logs import EVENTS
from stateous_supervisor.agent.yaml_file import read
from stateous_supervisor.cli import main as supervisor
from stateous_supervisor.cli.attending import RELOADED
from stateous_supervisor.sdk.marks import mark_of
from stateous_supervisor.systemd.unit import Service

ROOT = Path(__file__).parents[2]
WAITING = "wait-for-days.md"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*/*.md"))
ROUTINES = [
    block
    for page in ("write-a-routine.md", "ask-people.md")
    for block in re.findall(
        r"^```python\n(.*?)^```$", (DOCS / "how-to" / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    if "@on_state" in block
]


def users(page: str) -> list[tuple[str, str]]:
    """Return the users that a page makes, each with its home."""
    return re.findall(r"useradd --system --home-dir (\S+) (\S+)", (DOCS / "how-to" / page).read_text("utf-8"))


@pytest.fixture
def contract(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The contract of the sdlc example, as its folder's routines import it."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "sdlc"))
    monkeypatch.delitem(sys.modules, "contract", raising=False)
    yield
    sys.modules.pop("contract", None)


@pytest.mark.parametrize("block", ROUTINES, ids=range(len(ROUTINES)))
def test_each_routine_of_the_page_is_one(block: str, contract: None) -> None:
    from stateous_supervisor.testing import run

    module: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "page.py", "exec"), module)
    routines = [thing for thing in module.values() if mark_of(thing) is not None]

    outcomes = [run(routine, context={"title": "Add up prices"}) for routine in routines]

    assert len(outcomes) == 1
    assert not outcomes[0].failed, outcomes[0].error


def test_agent_and_control_plane_have_each_the_user_of_their_unit() -> None:
    """On one box with both the second page works too, and routines do not run as the owner of the database."""
    unit = (ROOT / "deploy" / "stateous-control.service").read_text("utf-8")

    assert users("run-the-agent.md") == [
        ("/var/lib/stateous-supervisor", Service(program="p", folder="f").user)
    ]
    assert users("run-the-control-plane.md") == [("/var/lib/stateous-control", "stateous-control")]
    assert "\nUser=stateous-control\nStateDirectory=stateous-control\n" in unit


def test_each_routine_without_a_graph_of_the_page_is_one() -> None:
    text = (DOCS / "how-to" / WAITING).read_text("utf-8")
    marks = []
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        module: dict[str, Any] = {"__name__": "page"}
        exec(compile(block, "page.py", "exec"), module)
        marks += [mark for mark in map(mark_of, module.values()) if mark is not None]

    assert [(mark.state.routine, mark.version) for mark in marks] == [
        ("orders.ship", 1),
        ("orders.pack", 1),
        ("orders.pack-all", 1),
        ("orders.bill", 1),
        ("orders.bill", 2),
        ("orders.refund", 1),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_page_exists(page: Path) -> None:
    known = {"stateous-supervisor": set(supervisor.COMMANDS), "stateous-control": set(_names(control.app))}

    text = page.read_text("utf-8")
    used = re.findall(r"(?:^[$#] |sudo |/bin/)(?:\S*/)?(stateous-\w+) ([a-z]+)\b", text, flags=re.MULTILINE)

    assert [(program, name) for program, name in used if name not in known.get(program, ())] == []


def _names(app: Any) -> list[str]:
    import typer

    return list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_each_event_of_the_table_of_incidents_is_logged() -> None:
    text = (DOCS / "how-to" / "run-the-agent.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", text)) - {
        "stateous.yaml",
        "contract.py",
        "outbox.db",
        *KEYS,
    }

    assert len(named) > 4
    assert named <= set(EVENTS)


def test_the_configuration_of_the_page_is_read() -> None:
    text = (DOCS / "how-to" / "run-the-agent.md").read_text("utf-8")
    block = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)[0]

    keys: Any = read(block).value
    assert {*keys} == {"url", "tasks", "drain_timeout", "token_file"}


def test_the_page_says_of_each_key_whether_a_reload_or_a_restart_changes_it_a_45() -> None:
    text = (DOCS / "how-to" / "run-the-agent.md").read_text("utf-8")
    said = {
        kind: set(re.findall(r"`([a-z_.]+)`", part.partition(". ")[0]))
        for kind, part in re.findall(
            r"^- (read again|need a restart): (.*?)(?=^- |^$)", text, re.MULTILINE | re.DOTALL
        )
    }

    assert said == {"read again": RELOADED | {"routines"}, "need a restart": set(KEYS) - RELOADED}


def test_every_file_that_the_map_names_is_there() -> None:
    rows = re.findall(r"^\| .+$", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE)
    subjects = [cells for row in rows if len(cells := row.strip("|").split("|")) == 5][1:]
    rooms = ("rules", "engine", "store", "http")
    named = [(room, name) for _, *cells in subjects for room, cell in zip(rooms, cells, strict=True)
             for name in re.findall(r"`(\w+)`", cell)]  # fmt: skip

    assert len(named) > 40
    assert [
        each for each in named if not (ROOT / "stateous_control" / each[0] / f"{each[1]}.py").is_file()
    ] == []


def test_every_fault_of_the_failure_model_names_a_test_that_is_there() -> None:
    page = (DOCS / "explanation" / "failure-model.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 6][1:]
    texts = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))

    assert len(rows) >= 20
    for row in rows:
        shown_by = re.findall(r"`([^`]+)`", row.split("|")[5])
        assert shown_by, row
        for name in shown_by:
            is_there = (ROOT / "tests" / name).is_file() if name.endswith(".py") else f"def {name}(" in texts
            assert is_there, f"{name} is no test; it stands in: {row}"
