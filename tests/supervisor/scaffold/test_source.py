"""A workflow comes from a control plane or a file, and both rooms agree on its checksum."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from stateous_contract.canonical import checksum_of
from supervisor.scaffold.kitchen import KITCHEN

from stateous_control.graph.compiler import load_file
from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.scaffold.source import Source, from_control_plane, from_file

EXAMPLES = Path(__file__).parents[3] / "examples"
TRICKY = """\
stateous: 1
workflow: tricky
context: M
states: {a: {retries: 0x2}, b: {emits: [on]}}
events: {on: {}, yes: {payload: M}}
transitions:
  - {from: __start__, to: a}
  - {from: a, to: b, on: yes, when: "payload.x > 1"}
  - {from: a, to: a, on: yes, otherwise: true}
  - {from: b, to: __end__, on: on}
schemas:
  M:
    type: object
    properties:
      x: {type: number, default: 1.0, maximum: 1e3, minimum: -.5, multipleOf: 0.10}
      no: {const: no, description: 'é', default: ~}
      o: {default: 0o17}
      "2": {default: "2"}
      d: {default: 2026-01-01}
"""
URL = "http://plane:1"


def ask(handler: Callable[[httpx.Request], httpx.Response]) -> Source:
    async def asked() -> Source:
        client = Client(URL, product="test", transport=httpx.MockTransport(handler))
        try:
            return await from_control_plane(client, URL)
        finally:
            await client.close()

    return anyio.run(asked)


def plane(request: httpx.Request, document: Any = KITCHEN, said: str | None = None) -> httpx.Response:
    if request.url.path == "/health":
        return httpx.Response(200, json={"workflow": "w", "checksum": said or checksum_of(document)})
    return httpx.Response(200, json=document)


def refused(what: Callable[[], object]) -> Fault:
    with pytest.raises(Fault) as caught:
        what()
    assert "\n" not in caught.value.sentence
    return caught.value


@pytest.mark.parametrize("example", ["sdlc", "approval"])
def test_a_file_has_the_checksum_that_the_control_plane_serves_it_under(example: str) -> None:
    path = EXAMPLES / example / "workflow.yaml"

    assert from_file(path).checksum == load_file(path.read_bytes(), name=path.name).checksum


def test_both_rooms_read_the_same_values_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "tricky.yaml"
    path.write_text(TRICKY, "utf-8")

    assert from_file(path).checksum == load_file(TRICKY.encode(), name=path.name).checksum


def test_a_json_file_keeps_one_and_one_point_zero_apart(tmp_path: Path) -> None:
    one, two = ({**KITCHEN, "x": number} for number in (1, 1.0))
    for name, document in (("one.json", one), ("two.json", two)):
        (tmp_path / name).write_text(json.dumps(document))

    assert from_file(tmp_path / "one.json").checksum != from_file(tmp_path / "two.json").checksum


def test_a_control_plane_gives_its_workflow_and_checksum() -> None:
    source = ask(plane)

    assert (source.checksum, source.url, source.document.name) == (checksum_of(KITCHEN), URL, "kitchen")


def test_a_control_plane_that_is_not_there_is_not_reached() -> None:
    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    assert refused(lambda: ask(gone)).exit_code is Exit.UNREACHABLE


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"error": "no", "code": "not_found"}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, text="{", headers={"content-type": "application/json"}),
        httpx.Response(302, headers={"location": "http://elsewhere"}),
        httpx.Response(401, json={}),
        httpx.Response(200, json=[]),
    ],
    ids=["not found", "a page", "half", "redirect", "denied", "no object"],
)
def test_what_no_control_plane_says_is_refused(answer: httpx.Response) -> None:
    assert refused(lambda: ask(lambda _request: answer)).exit_code is Exit.REFUSED


def test_a_workflow_that_is_not_the_one_of_health_is_refused() -> None:
    fault = refused(lambda: ask(lambda request: plane(request, said="sha256:other")))

    assert fault.exit_code is Exit.REFUSED
    assert "sha256:other" in fault.sentence


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("w.json", '{\n"stateous": 1,,\n}', "w.json:2"),
        ("w.yaml", "a: 1\na: 2\n", "w.yaml:2"),
        ("w.yaml", "a: &x 1\nb: *x\n", "w.yaml:1"),
        ("w.yaml", "just text", "is no workflow"),
        ("w.json", "[]", "is no workflow"),
        ("w.json", '{"x": 1e999}', "is no workflow"),
        ("w", '{"stateous": 2}', "is no workflow"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, name: str, text: str, where: str) -> None:
    (tmp_path / name).write_text(text)

    fault = refused(lambda: from_file(tmp_path / name))

    assert fault.exit_code is Exit.CONFIG
    assert where in fault.sentence


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused(lambda: from_file(tmp_path / "none.yaml")).exit_code is Exit.CONFIG


def test_a_file_with_a_number_that_json_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps({**KITCHEN, "x": 1}).replace('"x": 1}', '"x": 1e999}'))

    assert "number" in refused(lambda: from_file(tmp_path / "w.json")).sentence
