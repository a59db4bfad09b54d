"""What a refreshed contract changes is said in lines that a person can act on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from stateous_contract.canonical import checksum_of
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.scaffold.changes import differences, outline
from stateous_supervisor.scaffold.codegen import contract_text
from stateous_supervisor.scaffold.document import read_document

THEIRS = """
from stateous import Context, Occurrence, StateRef
from pydantic import BaseModel

__workflow__ = "kitchen"
__checksum__ = "sha256:0"

class Circle(BaseModel):
    kind: str
    r: float

CircleContext = Context[Circle]

class events:
    class ready(Occurrence[Circle]):
        name = "ready"

class states:
    prepare = StateRef("prepare", emits=(events.ready,))
"""


def changes_of(change: Callable[[Any], object]) -> list[str]:
    changed = copy.deepcopy(KITCHEN)
    change(changed)
    old, new = (contract_text(read_document(each), checksum_of(each)) for each in (KITCHEN, changed))
    lines = differences(outline(old), outline(new))
    return [line for line in lines if not line.startswith("the checksum")]


def item(document: Any) -> Any:
    return document["schemas"]["Item"]["properties"]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (lambda d: d["states"].update(extra={"emits": ["ready"]}), ["+ state extra: may emit ready"]),
        (lambda d: d["states"].pop("class"), ["- state class"]),
        (
            lambda d: d["states"]["class"].update(emits=["a-b"]),
            ["~ state class: may emit ready -> may emit a_b"],
        ),
        (lambda d: d["events"].update(new={}), ["+ event new: without payload"]),
        (
            lambda d: d["events"].update({"a_b": {"payload": "Circle"}}),
            ["~ event a_b: without payload -> carries Circle"],
        ),
        (lambda d: item(d).update(extra={"type": "integer"}), ["+ field Item.extra: int | None = None"]),
        (lambda d: item(d).pop("model_no"), ["- field Item.model_no"]),
        (
            lambda d: item(d)["qty"].update(maximum=9),
            [
                "~ field Item.qty: Annotated[int, Field(ge=1, le=5)] = 1 -> Annotated[int, Field(ge=1, le=9)] = 1"
            ],
        ),
        (
            lambda d: d["schemas"]["Item"].pop("additionalProperties"),
            ["~ model Item: extra fields: forbid -> nothing"],
        ),
        (lambda d: d["schemas"].update(New={"type": "object", "properties": {"x": {}}}), ["+ model New"]),
        (lambda d: d["states"]["prepare"].update(retries=9), []),
    ],
)
def test_each_difference_that_a_routine_can_notice_is_one_line(
    change: Callable[[Any], object], lines: list[str]
) -> None:
    assert changes_of(change) == lines


def test_the_checksums_before_and_after_are_shown() -> None:
    changed = {**KITCHEN, "workflow": "other"}
    old, new = (contract_text(read_document(each), checksum_of(each)) for each in (KITCHEN, changed))

    lines = differences(outline(old), outline(new))

    assert lines[:2] == [
        "the workflow was kitchen, is other",
        f"the checksum was {checksum_of(KITCHEN)}, is {checksum_of(changed)}",
    ]


def test_an_unchanged_contract_has_no_differences() -> None:
    assert changes_of(lambda d: None) == []


def test_a_contract_that_stateous_wrote_can_be_compared() -> None:
    found = outline(THEIRS)

    assert found.states == {"prepare": "may emit ready"}
    assert found.events == {"ready": "carries Circle"}
    assert found.models == {"Circle": ""}
    assert found.fields == {"Circle.kind": "str", "Circle.r": "float"}
    assert found.facts == {"workflow": "kitchen", "checksum": "sha256:0"}
