"""The deploy example: it builds once, parks for a person, and publishes once, on whichever box is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from journeys import durable
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram

from stateous_supervisor.testing import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy"


@pytest.fixture
def deploying(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The routine's module, as the host of its folder imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "contract", raising=False)
    spec = importlib.util.spec_from_file_location("deploying", EXAMPLE / "deploying.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("contract", None)


def test_it_asks_with_what_it_has_built(deploying: ModuleType) -> None:
    outcome = run(deploying.deploying, context={"service": "shop"})

    assert outcome.kind == "parked"
    assert outcome.question is not None
    assert outcome.question.data == {"service": "shop", "artifact": "shop-1.0.tar"}
    assert outcome.question.choices == ["yes", "no"]


@pytest.mark.parametrize(("answer", "event"), [("yes", "deployed"), ("no", "declined")])
def test_it_does_what_was_answered(deploying: ModuleType, answer: str, event: str) -> None:
    outcome = run(deploying.deploying, context={"service": "shop"}, answers={"approve-deploy": answer})

    assert outcome.event == event
    assert ("publish#1" in outcome.steps) == (answer == "yes")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_build_goes_out_when_a_person_says_so(database: str, tmp_path: Path) -> None:
    """As its README has it: the box that asked is gone when the answer comes."""
    with (
        ControlPlaneProgram(EXAMPLE / "workflow.yaml", "--database", database) as program,
        ControlPlaneClient(program.url) as plane,
    ):
        first, second = ("--state-dir", tmp_path / "one"), ("--state-dir", tmp_path / "two")
        with AgentProgram(EXAMPLE, program.url, *first):
            plane.start("shop-1", service="shop")
            asked = durable.open_question(plane, "shop-1", within_s=40)
        durable.command(program.url, "question", "answer", asked["question"], "yes")
        with AgentProgram(EXAMPLE, program.url, *second, name="box-2"):
            plane.until("shop-1", status="completed", within_s=40)
        notes = [entry["data"]["text"] for entry in plane.history("shop-1") if entry["kind"] == "note"]

    assert notes[0] == "building shop"
    assert notes[1:] == [f"publishing shop-1.0.tar under the key shop-1.{asked['task']}.1.publish#1"]
