"""Play a scene of `contract/exchanges` against a control plane: send each request, compare each answer.

Every scene works under names of its own and cancels the tokens that it started, so that scenes do not meet.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from conformance.matching import differences, filled, history_differences

EXCHANGES = Path(__file__).resolve().parent.parent / "exchanges"
AGAIN_S = 0.1


@dataclass(frozen=True)
class Scene:
    """Some exchanges that belong together. `needs` names what `Peer.needs` knows."""

    name: str
    steps: list[dict[str, Any]]
    needs: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()


@dataclass
class Player:
    """One scene's view of a control plane. `heard` keeps every exchange, for checks against the API's description."""

    http: httpx.Client
    names: dict[str, Any] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    heard: list[tuple[str, str, int, Any]] = field(default_factory=list)

    def send(self, step: dict[str, Any]) -> httpx.Response:
        """Send the request of one step."""
        method, _, path = filled(step["send"], self.names).partition(" ")
        headers = filled(step.get("headers", {}), self.names)
        response = self.http.request(method, path, headers=headers, content=self._content(step))
        if response.status_code in (200, 201) and (method, path) == ("POST", "/tokens"):
            self.started.append(response.json()["token"])
        self.heard.append((method, path, response.status_code, _json_of(response)))
        return response

    def _content(self, step: dict[str, Any]) -> bytes | Iterator[bytes] | None:
        if "hex" in step:
            return bytes.fromhex(step["hex"])
        if "built" in step:
            content = built(filled(step["built"], self.names))
            return _in_chunks(content) if step.get("chunked") else content
        if "raw" in step:
            return str(filled(step["raw"], self.names)).encode()
        if "body" in step:
            return json.dumps(filled(step["body"], self.names), ensure_ascii=False).encode()
        return None

    def clean_up(self) -> None:
        """Cancel what the scene started; a token that has ended says 409, which is just as good."""
        for token in dict.fromkeys(self.started):
            self.http.post(f"/tokens/{token}/cancel")


def built(pieces: list[Any]) -> bytes:
    """Join texts and ``[text, times]`` pairs: bodies that are too long to write down."""
    return b"".join(p.encode() if isinstance(p, str) else p[0].encode() * p[1] for p in pieces)


def _in_chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 65_536):
        yield content[start : start + 65_536]


def _json_of(response: httpx.Response) -> Any:
    try:
        return response.json() if response.content else None
    except ValueError:
        return response.text


def scenes() -> list[Scene]:
    """Read every scene of `contract/exchanges`, in the order of the files."""
    openings = json.loads((EXCHANGES / "openings.json").read_text("utf-8"))
    found = []
    for path in sorted(EXCHANGES.glob("[0-9]*.json")):
        document = json.loads(path.read_text("utf-8"))
        for name, scene in document["scenes"].items():
            opening = [filled(step, scene.get("with", {})) for step in openings[scene.get("opening", "none")]]
            needs = tuple(scene.get("needs", document.get("needs", ())))
            covers = tuple(scene.get("covers", ()))
            found.append(Scene(f"{path.stem[3:]}: {name}", opening + scene["steps"], needs, covers))
    return found


def play(scene: Scene, http: httpx.Client) -> Player:
    """Play `scene`; an answer that is not the expected one raises AssertionError with the exchange in its text."""
    player = Player(http, {"run": "c" + secrets.token_hex(5)})
    try:
        for step in scene.steps:
            _play_step(step, player)
    finally:
        player.clean_up()
    return player


def _play_step(step: dict[str, Any], player: Player) -> None:
    deadline = time.monotonic() + step.get("within_s", 0)
    while True:
        response = player.send(step)
        faults = list(_faults(step, response, player.names))
        if not faults:
            break
        if time.monotonic() > deadline:
            told = f"{step.get('say', '')} {step['send']} -> {response.status_code} {response.text[:600]}"
            raise AssertionError("\n".join([told, *faults]))
        time.sleep(AGAIN_S)
    for name, where in step.get("keep", {}).items():
        player.names[name] = _picked(response.json(), where)


def _faults(step: dict[str, Any], response: httpx.Response, names: dict[str, Any]) -> Iterator[str]:
    if response.status_code != step["status"]:
        yield f"status {response.status_code}, expected {step['status']}"
        return
    heard = _json_of(response)
    if "code" in step:
        yield from differences({"error": "<sentence>", "code": step["code"]}, heard)
    if "history" in step:
        yield from history_differences(filled(step["history"], names), heard)
    if "answer" in step:
        yield from differences(filled(step["answer"], names), heard, more=True)
    for name, value in step.get("answer_headers", {}).items():
        yield from differences(value, response.headers.get(name), where=f"header {name}")


def _picked(value: Any, where: str) -> Any:
    for part in where.split("."):
        value = value[int(part)] if part.isdigit() else value[part]
    return value
