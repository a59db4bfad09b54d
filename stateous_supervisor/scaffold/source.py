"""Where a contract comes from: a running control plane or a workflow file. Called by the commands.

The checksum of a file is computed here the way a control plane computes it; one that serves the file agrees.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateous_contract.canonical import checksum_of, completed
from stateous_contract.limits import BODY_BYTES_MAX, DEPTH_MAX

from stateous_supervisor.agent.client import Answer, Client
from stateous_supervisor.agent.faults import Denied, Exit, Fault, PeerViolation, Unanswered
from stateous_supervisor.agent.yaml_file import BadYaml, Node, read
from stateous_supervisor.scaffold.document import Document, DocumentInvalid, read_document

DEFAULT_URL = "http://127.0.0.1:8080"
DEADLINE_S = 10.0


@dataclass(frozen=True)
class Source:
    """A workflow and its checksum. `url` is where the supervisor of the folder will look for it."""

    document: Document
    checksum: str
    url: str


def is_url(source: str) -> bool:
    """Whether `source` names a control plane, not a file."""
    return source.startswith(("http://", "https://"))


async def from_control_plane(client: Client, url: str) -> Source:
    """Ask a running control plane for its workflow. Raises Fault: 69 not reached, 76 refused or not understood."""
    try:
        health = _answer(await _get(client, "/health"), f"{url}/health")
        document = _answer(await _get(client, "/workflow"), f"{url}/workflow")
    except (Denied, PeerViolation) as error:
        raise Fault(Exit.REFUSED, error.sentence) from None
    except Unanswered as error:
        raise Fault(Exit.UNREACHABLE, error.sentence) from None
    source = from_value(document, f"{url}/workflow", url, Exit.REFUSED)
    said = health.get("checksum") if isinstance(health, dict) else None
    if said != source.checksum:
        raise Fault(
            Exit.REFUSED,
            f"{url} serves a workflow with checksum {source.checksum}, and its /health says {said!r}; "
            "is it being replaced just now?",
        )
    return source


async def _get(client: Client, path: str) -> Answer:
    return await client.call("GET", path, deadline_s=DEADLINE_S, bytes_max=2 * BODY_BYTES_MAX)


def _answer(answer: Answer, name: str) -> Any:
    if answer.status != 200 or not answer.is_json:
        raise Fault(Exit.REFUSED, f"{name} answered {answer.status}; a control plane answers 200 with JSON")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Fault(Exit.REFUSED, f"{name} answered something that is not JSON") from None


def from_file(path: Path) -> Source:
    """Read a workflow file, YAML or JSON. Raises Fault."""
    try:
        with path.open("rb") as file:
            raw = file.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        raise Fault(
            Exit.CONFIG, f"{path}: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if len(raw) > BODY_BYTES_MAX:
        raise Fault(Exit.CONFIG, f"{path} is larger than {BODY_BYTES_MAX} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Fault(Exit.CONFIG, f"{path} is not UTF-8 (byte {error.start})") from None
    value = _json(text, path) if _is_json(text, path) else _yaml(text, path)
    return from_value(completed(value), str(path), DEFAULT_URL, Exit.CONFIG)


def from_value(value: Any, name: str, url: str, exit_code: Exit) -> Source:
    """Take a parsed document that came from `name`. Raises Fault with `exit_code`."""
    try:
        return Source(read_document(value), checksum_of(value), url)
    except DocumentInvalid as error:
        raise Fault(exit_code, f"{name} is no workflow: {error}") from None
    except ValueError:
        raise Fault(exit_code, f"{name} holds a number that JSON does not have") from None


def _is_json(text: str, path: Path) -> bool:
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return path.suffix.lower() == ".json"
    return text.lstrip().startswith("{")


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Fault(Exit.CONFIG, f"{path}:{error.lineno}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise Fault(Exit.CONFIG, f"{path} holds a number or a nesting that no control plane takes") from None


def _yaml(text: str, path: Path) -> Any:
    try:
        return _plain(read(text, depth_max=DEPTH_MAX))
    except BadYaml as error:
        raise Fault(Exit.CONFIG, f"{path}:{error.line}: {error.sentence}") from None


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(inner) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(inner) for inner in node.value]
    return node.value
