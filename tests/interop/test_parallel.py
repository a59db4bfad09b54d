"""Parallel states, ours and the published package's: its graph on our control plane, its folder under either supervisor."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, Program, Words

from interop.test_interop import free_port
from stateous_control.graph.compiler import compile_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FLOW = """
from pydantic import BaseModel
from stateous import END, START, Workflow

class Page(BaseModel):
    subject: str
    bad: list[str] = []

class Proof(BaseModel):
    subject: str
    bad: list[str] = []

class Verdict(BaseModel):
    ok: bool

def reading(name):
    made = Workflow(name, context=Proof)
    verdict, filed = made.event("verdict", payload=Verdict), made.event("filed")
    check, file = made.state("check", retries=1), made.state("file")
    made.transition(START, check)
    made.transition(check, file, on=verdict)
    made.transition(file, END, on=filed)
    return made

workflow = Workflow("page", context=Page)
typed, fixed = workflow.event("typed"), workflow.event("fixed")
typing = workflow.state("typing")
proofs = workflow.state("proofs", parallel=[reading("spelling"), reading("layout")], inputs=["subject", "bad"])
fixing = workflow.state("fixing")
workflow.transition(START, typing)
workflow.transition(typing, proofs, on=typed)
workflow.transition(proofs, END, on="joined", when="branches.all(payload.ok == true)")
workflow.transition(proofs, fixing, on="joined", otherwise=True)
workflow.transition(fixing, END, on=fixed)
"""
ROUTINES = """
from contract import events, states
from stateous import on_state

@on_state(states.typing)
def typing(ctx):
    return events.typed()

@on_state(states.fixing)
def fixing(ctx):
    return events.fixed()
"""
CHILD = """
from contract import Verdict, events, states
from stateous import on_state

@on_state(states.NAME.check)
def check(ctx):
    return events.NAME.verdict(Verdict(ok="NAME" not in ctx["bad"]))

@on_state(states.NAME.file)
async def file(ctx):
    return events.NAME.filed()
"""
PARENT = [
    "started", "event_accepted", "entered", "task_queued", "task_claimed", "event_accepted", "task_done", "entered",
    "branch_started", "branch_started", "event_accepted", "completed",
]  # fmt: skip
READING = [
    "started", "event_accepted", "entered", "task_queued", "task_claimed", "event_accepted", "task_done", "entered",
    "task_queued", "task_claimed", "event_accepted", "task_done", "completed",
]  # fmt: skip


@pytest.fixture(scope="module")
def page(stateous: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph file with a parallel state, made by their compiler."""
    home = tmp_path_factory.mktemp("page")
    (home / "flow.py").write_text(FLOW, "utf-8")
    graph = home / "page.json"
    subprocess.run([stateous, "compile", home / "flow.py", "--out", graph], check=True, capture_output=True)
    return graph


@pytest.fixture(scope="module")
def fresh_database(postgres: str, migrated_template: str) -> Iterator[str]:
    with fresh(postgres, migrated_template) as database:
        yield database


@pytest.fixture(scope="module", params=["our-agent", "their-supervisor", "our-agent-on-theirs"])
def plane(
    request: pytest.FixtureRequest,
    stateous: Path,
    page: Path,
    fresh_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlaneClient]:
    home = tmp_path_factory.mktemp("parallel")
    if request.param == "our-agent-on-theirs":
        url = f"http://127.0.0.1:{free_port()}"
        serve: Words = [
            stateous,
            "serve",
            page,
            "--db",
            f"sqlite:///{home}/s.db",
            "--listen",
            url.removeprefix("http://"),
        ]
        with Program(serve) as served, ControlPlaneClient(url) as client:
            served.line("serving on")
            with AgentProgram(folder_for(stateous, url, home), url):
                yield client
        return
    with (
        ControlPlaneProgram(page, "--database", fresh_database) as program,
        ControlPlaneClient(program.url) as client,
    ):
        folder = folder_for(stateous, program.url, home)
        if request.param == "our-agent":
            with AgentProgram(folder, program.url):
                yield client
        else:
            with Program([stateous, "supervise", folder]):
                yield client


def folder_for(stateous: Path, url: str, home: Path) -> Path:
    """A folder made by their `init supervisor`."""
    folder = home / "box"
    subprocess.run([stateous, "init", "supervisor", url, folder], check=True, capture_output=True)
    for stub in folder.glob("*.py"):
        if stub.name != "contract.py":
            stub.unlink()
    (folder / "main.py").write_text(ROUTINES, "utf-8")
    for name in ("spelling", "layout"):
        (folder / f"{name}.py").write_text(CHILD.replace("NAME", name), "utf-8")
    return folder


def test_a_graph_with_parallel_states_compiled_there_has_no_fault_here(page: Path) -> None:
    found = compile_file(page.read_bytes(), name="page.json")

    assert not found.faults
    assert found.graph is not None
    assert found.graph.machines["layout"].states["check"].retries == 1


def test_children_run_and_join_with_the_same_history_everywhere(plane: ControlPlaneClient) -> None:
    name = f"good-{secrets.token_hex(4)}"
    plane.start(name, subject="x")

    plane.until(name, status="completed")
    assert plane.kinds(name) == PARENT
    assert plane.kinds(f"{name}.proofs.1.layout") == READING
    assert plane.token(f"{name}.proofs.1.layout")["context"] == {"bad": [], "subject": "x"}


def test_a_guard_over_the_branches_decides(plane: ControlPlaneClient) -> None:
    name = f"bad-{secrets.token_hex(4)}"
    plane.start(name, subject="x", bad=["layout"])

    assert plane.until(name, status="completed")["state"] == "fixing"
