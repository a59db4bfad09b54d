"""A control plane of a few lines for durable calls, and routines of both kinds that are run once against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from stateous_contract.messages import GivenAnswer, PassedStep
from supervisor.sdk.ports import Recorder, grant

from stateous_supervisor import AsyncContext, Context
from stateous_supervisor.sdk.driving import line
from stateous_supervisor.sdk.durable import Reply

Plain = Callable[[Context[Any]], Any]
Awaited = Callable[[AsyncContext[Any]], Awaitable[Any]]
BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])


class Plane(Recorder):
    """Keeps checkpoints and answers as a control plane does. `heard` is every call: its kind and what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.values: dict[tuple[str, int], bytes] = {}
        self.answers: dict[tuple[str, int], Any] = {}
        self.refusal: tuple[int, dict[str, str]] | None = None
        self.ended: dict[str, Any] = {}
        self.page = 1_000

    def call(self, kind: str, body: bytes) -> Future[Reply]:
        fields = json.loads(body)
        self.heard.append((kind, fields))
        call: Future[Reply] = Future()
        if self.refusal is not None:
            call.set_result(Reply(self.refusal[0], json.dumps(self.refusal[1]).encode()))
        else:
            call.set_result(getattr(self, kind)(body))
        return call

    def checkpoint(self, body: bytes) -> Reply:
        said = msgspec.json.decode(body, type=dict[str, Raw])
        place = (json.loads(bytes(said["step"])), json.loads(bytes(said["occurrence"])))
        return Reply(200, self.values.setdefault(place, bytes(said["value"])))

    def ask(self, body: bytes) -> Reply:
        said = json.loads(body)
        place = (said["key"], said["occurrence"])
        asked = {"question": 12, "status": "pending", "parked": True, "generation": 3, "expires_at": ""}
        if place in self.answers:
            asked |= {"parked": False, "answer": self.answers[place]}
        return Reply(201, json.dumps(asked).encode(), bool(asked["parked"]))

    def pause(self, body: bytes) -> Reply:
        said = json.loads(body)
        if "step" in said:
            self.values[said["step"], said["occurrence"]] = b"null"
        is_parked, self.pauses = self.pauses > 1, 0
        return Reply(200, json.dumps({"status": "parked" if is_parked else "ready"}).encode(), is_parked)

    def park(self, body: bytes) -> Reply:
        """A wait is over when `ended` says, by its step, what came of it."""
        said = json.loads(body)
        if said["step"] not in self.ended:
            return Reply(200, b'{"status": "parked", "generation": 3}', is_parked=True)
        value = json.dumps(self.ended[said["step"]])
        self.values[said["step"], said["occurrence"]] = value.encode()
        return Reply(200, f'{{"status": "ready", "generation": 2, "value": {value}}}'.encode())

    def diverged(self, body: bytes) -> Reply:
        return Reply(200, b'{"status": "parked", "generation": 3}', is_parked=True)

    def spawn(self, body: bytes) -> Reply:
        said = json.loads(body)
        place = (said["step"], said["occurrence"])
        return Reply(
            201, self.values.setdefault(place, json.dumps({"task": 100 + len(self.values)}).encode())
        )

    def checkpoints(self, body: bytes) -> Reply:
        after = json.loads(body)["after"]
        entries = [
            {"step": step, "occurrence": number, "seq": seq, "value": json.loads(value)}
            for seq, ((step, number), value) in enumerate(self.values.items(), 1)
        ]
        rest = entries[after : after + self.page]
        is_more = after + self.page < len(entries)
        return Reply(200, json.dumps({"entries": rest, "cursor": "x" if is_more else None}).encode())

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.heard]


def attempt(plane: Plane, plain: Plain | None = None, awaited: Awaited | None = None, **given: Any) -> Any:
    """Run a body once, from the top, with what the plane has kept so far."""
    passed = [
        PassedStep(step=step, occurrence=number, seq=seq, value=Raw(value))
        for seq, ((step, number), value) in enumerate(plane.values.items(), 1)
    ]
    answers = [
        GivenAnswer(key=key, occurrence=number, answer=Raw(json.dumps(value).encode()))
        for (key, number), value in plane.answers.items()
    ]
    made = msgspec.structs.replace(grant(), **{"checkpoints": passed, "answers": answers, **given})
    if plain is not None:
        plane.own_line = line()
        return plain(Context(made, plane))
    assert awaited is not None

    async def follow() -> Any:
        plane.own_line = line()
        return await awaited(AsyncContext(made, plane))

    return asyncio.run(follow())


def both(plane: Plane, name: str, make: Callable[[], Any], *, is_async: bool) -> Any:
    """Do one step in a routine of either kind."""
    if is_async:

        async def awaited(ctx: AsyncContext[Any]) -> Any:
            return await ctx.step(name, make)

        return attempt(plane, awaited=awaited)
    return attempt(plane, lambda ctx: ctx.step(name, make))
