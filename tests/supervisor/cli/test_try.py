"""`stateous-supervisor try` with a real host process and no network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateous_supervisor.cli.main import run
from stateous_supervisor.scaffold import folder as folders
from stateous_supervisor.scaffold.source import from_file

WORKFLOW = """
stateous: 1
workflow: small
context: Ticket
states: {making: {emits: [made]}, checking: {emits: [passed]}, dying: {emits: [passed]}}
events: {made: {payload: Made}, passed: {}}
transitions:
  - {from: __start__, to: making}
  - {from: making, to: checking, on: made}
  - {from: making, to: dying, on: error}
  - {from: checking, to: __end__, on: passed}
  - {from: checking, to: __end__, on: error}
  - {from: dying, to: __end__, on: passed}
  - {from: dying, to: __end__, on: error}
schemas:
  Ticket: {type: object, required: [title], properties: {title: {type: string}, size: {type: integer, default: 3}}}
  Made: {type: object, required: [size], properties: {size: {type: integer}}}
"""
MAKING = """
from contract import Made, TicketContext, events, states
from stateous_supervisor import on_state

@on_state(states.making)
def making(ctx: TicketContext) -> events.made:
    print("printed by the routine")
    ctx.note(f"making {ctx['title']}, after {ctx.memory.get('tries', 0)} tries, attempt {ctx.attempt}")
    ctx.memory["tries"] = ctx.attempt
    ctx["size"] = ctx["size"] + 1
    ctx.schedule(events.passed, "30s")
    if ctx["title"] == "raise":
        raise RuntimeError("it snapped")
    return events.made(Made(size=ctx["size"]))
"""
CHECKING = """
from contract import TicketContext, states
from stateous_supervisor import on_state

@on_state(states.checking)
async def checking(ctx: TicketContext) -> None:
    came = ctx.entered_by
    if ctx["title"] == "ask":
        size = await ctx.step("measure", lambda: [ctx["size"]])
        await ctx.ask("go", {"size": size}, choices=["yes", "no"])
    if ctx["title"] == "sleep":
        await ctx.sleep_for("nap", "1m")
    ctx.note(f"{came.name} {came.payload} {came.error}")
"""
DYING = """
import os
from contract import TicketContext, states
from stateous_supervisor import on_state

@on_state(states.dying)
def dying(ctx: TicketContext) -> None:
    os.abort()
"""
PUBLISHING = """
from typing import Any
from stateous_supervisor import routine

@routine("report.publish")
def first(ctx: Any, given: Any) -> Any:
    raise AssertionError("the newest version is run")

@routine("report.publish", version=2)
def publish(ctx: Any, given: Any) -> Any:
    ctx.note(f"attempt {ctx.attempt} of {ctx.routine}")
    ctx.memory["tries"] = ctx.attempt
    if given == "raise":
        raise RuntimeError("it snapped")
    return {"sent": given}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("try") / "folder"
    made.mkdir()
    (made / "workflow.yaml").write_text(WORKFLOW)
    for name, text in {
        "making": MAKING,
        "checking": CHECKING,
        "dying": DYING,
        "publishing": PUBLISHING,
    }.items():
        (made / f"{name}.py").write_text(text)
    source = from_file(made / "workflow.yaml")
    folders.init(made, source.document, source.checksum, "http://127.0.0.1:9")
    return made


def attempt(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("stateous-supervisor")
    return subprocess.run([command, "try", folder, *arguments], capture_output=True, text=True, input=stdin)


def test_a_routine_is_run_and_shown(folder: Path) -> None:
    done = attempt(
        folder, "making", "--context", '{"title": "x"}', "--memory", '{"tries": 4}', "--attempt", "5"
    )

    assert done.stdout.splitlines() == [
        "note     making x, after 4 tries, attempt 5",
        "memory   tries = 5",
        "context  size = 4",
        "timer    passed after 30s",
        'outcome  event made {"size": 4}',
    ]
    assert done.stderr == "printed by the routine\n"
    assert done.returncode == 0


def test_a_failure_is_exit_code_1_with_the_traceback(folder: Path) -> None:
    done = attempt(folder, "making", "--context", '{"title": "raise"}', "--json")

    told: dict[str, Any] = json.loads(done.stdout)
    assert (told["outcome"], told["error"], told["context"]) == ("failed", "RuntimeError: it snapped", None)
    assert told["memory"] == {"tries": 1}
    assert 'raise RuntimeError("it snapped")' in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("event", "note"),
    [('made:{"size": 2}', "made {'size': 2} None"), ("error:it snapped", "error None it snapped")],
)
def test_the_event_that_brought_the_token_can_be_given(folder: Path, event: str, note: str) -> None:
    done = attempt(folder, "checking", "--context", "-", "--event", event, stdin='{"title": "x"}')

    assert done.stdout.splitlines() == [f"note     {note}", "outcome  waiting for an event from outside"]


def test_an_event_that_the_contract_does_not_have_is_refused(folder: Path) -> None:
    done = attempt(folder, "checking", "--context", '{"title": "x"}', "--event", "bogus")

    assert done.returncode == 64
    assert done.stdout == ""
    sentence = "'--event' is 'bogus'; the contract has no such event, it has __started__, error, joined, made, passed, timeout"
    assert sentence in done.stderr


def test_a_routine_that_asks_shows_its_steps_and_its_question(folder: Path) -> None:
    done = attempt(folder, "checking", "--context", '{"title": "ask"}')
    told = json.loads(attempt(folder, "checking", "--context", '{"title": "ask"}', "--json").stdout)

    assert done.stdout.splitlines() == [
        "step     measure#1 = [3]",
        'question go#1 {"size": [3]}',
        "outcome  parked until the question is answered",
    ]
    assert (told["outcome"], told["steps"], told["question"]["choices"]) == (
        "parked",
        {"measure#1": [3]},
        ["yes", "no"],
    )
    assert done.returncode == 0


def test_a_routine_that_sleeps_shows_what_it_waits_for(folder: Path) -> None:
    done = attempt(folder, "checking", "--context", '{"title": "sleep"}')
    told = json.loads(attempt(folder, "checking", "--context", '{"title": "sleep"}', "--json").stdout)

    assert done.stdout.splitlines() == [
        'wait     nap#1 {"kind": "sleep", "for_s": 60.0}',
        "outcome  parked until its wait is over",
    ]
    assert (told["outcome"], told["wait"]) == ("parked", {"kind": "sleep", "for_s": 60.0})


def test_a_routine_without_a_graph_is_run_with_its_input(folder: Path) -> None:
    done = attempt(folder, "@report.publish", "--input", '{"to": ["ada"]}', "--attempt", "3")

    assert done.stdout.splitlines() == [
        "note     attempt 3 of report.publish",
        "memory   tries = 3",
        'outcome  returned {"sent": {"to": ["ada"]}}',
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_the_input_may_be_any_json_and_a_failure_of_such_a_routine_is_exit_code_1(folder: Path) -> None:
    done = attempt(folder, "@report.publish", "--input", "-", "--json", stdin='"raise"')

    told: dict[str, Any] = json.loads(done.stdout)
    assert (told["outcome"], told["error"], told["result"]) == ("failed", "RuntimeError: it snapped", None)
    assert done.returncode == 1


def test_a_routine_that_kills_its_process_hurts_nobody(folder: Path) -> None:
    done = attempt(folder, "dying", "--context", '{"title": "x"}')

    assert done.stdout == "outcome  failed: the routine ended its host: killed by SIGABRT\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["nowhere", "--context", '{"title": ""}'],
            "no routine for the state 'nowhere'; there is one for: @report.publish, checking",
        ),
        (["nowhere", "--context", "{}"], "no routine for the state 'nowhere'; there is one for: @report"),
        (["@nowhere"], "there is no routine '@nowhere'; there is one for: @report.publish, checking"),
        (["@report.publish", "--input", "{"], "'--input' is neither JSON nor a file with it: "),
        (["making", "--input", "1"], "'--input' is for routines without a graph (@NAME); a state has"),
        (
            ["making", "--context", '{"title": 1}'],
            "'--context': the context does not fit Ticket: title: Input",
        ),
        (
            ["making", "--context", "absent.json"],
            "neither a JSON object nor a file: absent.json: no such file",
        ),
        (["making", "--memory", "{"], "'--memory' is not JSON"),
        (["making", "--event", "made:[1]"], "'--event' is list; it must be a JSON object"),
    ],
)
def test_what_cannot_be_tried_is_said_in_one_sentence(
    folder: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [] if "--context" in arguments else ["--context", '{"title": "x"}']

    code = run(["try", str(folder), *arguments, *options])

    said = capsys.readouterr().err
    assert code == 64
    assert sentence in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
