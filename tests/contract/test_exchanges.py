"""The golden exchanges are sound as data: a matcher or a name that nothing knows would match nothing, or anything."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conformance.matching import MORE, differences, filled, history_differences
from conformance.play import Scene, scenes
from stateous_contract.codes import Code
from stateous_contract.health import FEATURES

KINDS = {"<id>", "<time>", "<sentence>", "<checksum>", "<number>", "<any>", MORE}
STEP_KEYS = {"say", "send", "headers", "body", "raw", "hex", "built", "chunked", "status", "code", "answer", "history", "keep", "within_s"}  # fmt: skip


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("scene", scenes(), ids=lambda scene: scene.name)
def test_a_scene_uses_only_what_it_knows(scene: Scene) -> None:
    names = {"run"}
    for step in scene.steps:
        assert set(step) <= STEP_KEYS
        told = texts([step.get("answer"), step.get("history")])
        assert {text for text in told if text.startswith("<")} <= KINDS
        used = {
            name
            for text in texts({k: v for k, v in step.items() if k != "raw"})
            for name in re.findall(r"\{([a-z]\w*)\}", text)
        }
        assert used <= names
        names |= set(step.get("keep", {}))
        if "code" in step:
            assert (step["code"], step["status"]) in {(code.wire, code.status) for code in Code}


def test_scenes_need_only_features_that_exist() -> None:
    assert {need for scene in scenes() for need in scene.needs} <= {*FEATURES, "protocol", "parallel"}


def test_scene_names_are_unique() -> None:
    names = [scene.name for scene in scenes()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ([1], [1, 1]),
        ("<id>", "1"),
        ("<id>", 0),
        ("<time>", "2026-01-01 00:00:00"),
        ("<time>", "2026-01-01T00:00:00.5Z"),
        ("<sentence>", " "),
        ("<checksum>", "sha256:xyz"),
        ("<number>", True),
        (None, {}),
    ],
)
def test_a_wrong_answer_is_told(expected: Any, actual: Any) -> None:
    assert list(differences(expected, actual))


def test_more_keys_are_fine_where_the_scene_says_so() -> None:
    assert not list(differences({"a": "<any>", MORE: True}, {"a": None, "b": 2}))
    assert not list(differences({"a": {"b": 1}}, {"a": {"b": 1}, "c": 2}, more=True))


def test_a_history_with_a_gap_or_another_kind_is_told() -> None:
    entry = {"seq": 1, "at": "2026-01-01T00:00:00Z", "kind": "paused", "data": {}}

    assert not list(history_differences([["paused", {}]], [entry]))
    assert list(history_differences([["paused", {}]], [entry | {"seq": 2}]))
    assert list(history_differences([["resumed", {}]], [entry]))
    assert list(history_differences([["paused", {}]], [entry | {"data": {"x": 1}}]))
    assert list(history_differences([["paused", {}]], {}))


def test_names_are_filled_in_with_their_own_types() -> None:
    names = {"task": 7, "run": "r"}

    assert filled({"tasks": ["{task}"], "{task}": "{run}-a", "raw": "{nope"}, names) == {
        "tasks": [7],
        "7": "r-a",
        "raw": "{nope",
    }
