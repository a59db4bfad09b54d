"""A port that remembers what a context said, for tests without a host."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

from msgspec import Raw
from stateous_contract.messages import EnteredBy, Grant

from stateous_supervisor import AttemptLost
from stateous_supervisor.sdk.durable import Reply


class Recorder:
    """Stands in for the host."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.cause: str | None = None
        self.model: Any = None
        self.works = 0
        self.own_line: object = None
        self.is_strict = False
        self.rests: list[float] = []
        self.pauses = 0

    def note(self, text: str) -> None:
        self.said.append(text)

    def remember(self, key: str, value: bytes) -> None:
        self.said.append((key, value))

    def lease_s(self) -> float:
        return 12.5

    def lost_cause(self) -> str | None:
        return self.cause

    def context_model(self) -> Any:
        return self.model

    def call(self, kind: str, body: bytes) -> Future[Reply]:
        raise AssertionError(f"nobody is there to hear {kind} {body!r}")

    def is_pausing(self) -> bool:
        return self.pauses > 0

    def check_held(self) -> None:
        if self.cause is not None:
            raise AttemptLost(self.cause)

    def rest_s(self, seconds: float) -> float:
        self.rests.append(seconds)
        return 0.0


def grant(context: Any = None, memory: Any = None, entered_by: EnteredBy | None = None) -> Grant:
    return Grant(
        task=7,
        token="T-1",
        state="coding",
        visit=2,
        attempt=3,
        context=Raw(json.dumps(context or {}).encode()),
        memory=Raw(json.dumps(memory or {}).encode()),
        entered_by=entered_by,
    )
