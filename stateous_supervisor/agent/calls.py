"""What a routine may ask the control plane through its agent: one row for each kind of call. Pure.

A routine's process sends a kind and a JSON object and never a path, so the agent's key opens nothing else. A new kind
is a new row here and a course in the SDK; nothing between the two knows kinds apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.link import frames

FEATURE_MISSING: Final = "feature_missing"
DIVERGED: Final = "diverged"


class Row(NamedTuple):
    """One kind: its request, the feature it needs, and what routines know it as.

    `is_message`: with `batch` it goes out among the messages of all attempts, in its place. `parks`: it may park.
    """

    method: str
    path: str
    feature: str
    about: str
    is_message: bool = False
    parks: bool = False


ROWS: Final[Mapping[str, Row]] = {
    "ask": Row("POST", "/tasks/{task}/questions", "questions", "ctx.ask", parks=True),
    "checkpoint": Row("PUT", "/tasks/{task}/checkpoints", "checkpoints", "ctx.step", is_message=True),
    "checkpoints": Row("GET", "/tasks/{task}/checkpoints", "checkpoints", "ctx.step"),
    DIVERGED: Row("POST", "/tasks/{task}/park", "checkpoints", "strict=True", parks=True),
    "park": Row("POST", "/tasks/{task}/park", "signals", "a wait", parks=True),
    "pause": Row("POST", "/tasks/{task}/park", "questions", "ctx.checkpoint", parks=True),
    "spawn": Row("POST", "/tasks/{task}/children", "children", "ctx.spawn"),
}


class Request(NamedTuple):
    """What is sent. `body` is None where the method has none."""

    method: str
    path: str
    body: bytes | None


class Standing(msgspec.Struct):
    """What is read of any answer: a value that stands, whether the task is parked, whether a pause is requested."""

    value: Raw = Raw(b"null")
    parked: bool = False
    status: str = ""
    pause: bool = False

    @property
    def is_parked(self) -> bool:
        return self.parked or self.status == "parked"


class _Page(msgspec.Struct):
    version: int
    after: int


_encode: Final = msgspec.json.Encoder().encode


class _Place(msgspec.Struct):
    step: str
    occurrence: int


_page: Final = msgspec.json.Decoder(_Page)
_place: Final = msgspec.json.Decoder(_Place)
standing: Final = msgspec.json.Decoder(Standing)


def is_alone(kind: str) -> bool:
    """Return whether a call is a request of its own also where messages go together."""
    row = ROWS.get(kind)
    return row is not None and not row.is_message


def body_of(call: frames.Call) -> bytes:
    """Return a call as the outbox's lines carry it: with whose it is, as every message says it."""
    whose = _encode({"task": call.task, "attempt": call.attempt, "kind": call.call})
    rest = bytes(call.body).lstrip()
    return whose[:-1] + (b"}" if rest[1:].lstrip() == b"}" else b"," + rest[1:])


def request(kind: str, task: int, identity: Identity, body: bytes) -> Request:
    """Return the request of one call, from what `body_of` made."""
    row = ROWS[kind]
    path = row.path.format(task=task)
    if row.method == "GET":
        page = _page.decode(body)
        return Request("GET", f"{path}?version={page.version}&after={page.after}&limit=1000", None)
    names = _encode({"supervisor": identity.supervisor, "instance": identity.instance})
    return Request(row.method, path, names[:-1] + b"," + body[1:])


def unmet(kind: str, body: bytes) -> str | None:
    """Return the step that a strict routine did not come by, of the call that says so; None of every other one."""
    if kind != DIVERGED:
        return None
    place = _place.decode(body)
    return f"{place.step}#{place.occurrence}"


def missing(kind: str, offered: frozenset[str]) -> str | None:
    """Return why a call cannot be made of this control plane, in a sentence; None where it can (A-64)."""
    row = ROWS.get(kind)
    if row is None:
        return f"this agent does not know the call {kind!r}; the SDK in the folder's environment is newer"
    if row.feature not in offered:
        return f"{row.about} needs the feature '{row.feature}', which this control plane does not offer"
    return None
