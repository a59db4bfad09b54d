"""A port that remembers what a context said, for tests without a host."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw
from stateous_contract.messages import EnteredBy, Grant


class Recorder:
    """Stands in for the host."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.cause: str | None = None
        self.model: Any = None

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
