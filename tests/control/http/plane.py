"""A control plane without an engine, for what the door alone decides. Handlers that need the truth are tested with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.health import Health
from stateous_contract.messages import (
    ClaimRequest,
    Grant,
    HeartbeatAnswer,
    HeartbeatRequest,
    MessageResult,
    MessageResults,
    Report,
    TaskMessages,
    TokenView,
)

from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.views import QueueView


class SilentPlane(ControlPlane):
    """Writes down what it was asked and answers something of the right shape. It asks for no keys."""

    keyring: Any = None

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.stop = asyncio.Event()
        self.cancelled = 0
        self.versions: list[str | None] = []
        self.was_gone: list[bool] = []
        self.raises: BaseException | None = None

    @property
    def graph(self) -> Any:
        return SimpleNamespace(text='{"stateous":1,"workflow":"w"}')

    def _note(self, what: str, about: Any = None) -> None:
        self.asked.append((what, about))
        if self.raises is not None:
            raise self.raises

    def view(self, name: str, context: Raw | None = None) -> TokenView:
        return TokenView(
            token=name,
            state="s",
            status="active",
            visit=1,
            context=context or Raw(b"{}"),
            entered_at="2026-01-01T00:00:00Z",
        )

    async def start_token(
        self, name: str, context: Raw | None, key: str | None = None
    ) -> tuple[TokenView, bool]:
        self._note("start", (name, context))
        return self.view(name, context), True

    async def token(self, name: str) -> TokenView:
        self._note("token", name)
        return self.view(name)

    async def list_tokens(self, **asked: Any) -> list[TokenView]:
        self._note("list", asked)
        return []

    async def fire(self, name: str, event: str, payload: Raw | None, **asked: Any) -> tuple[TokenView, bool]:
        self._note("fire", (name, event, payload, asked))
        return self.view(name), False

    async def claim(
        self,
        request: ClaimRequest,
        is_gone: Callable[[], bool] = lambda: False,
        *,
        version: str | None = None,
    ) -> list[Grant]:
        self._note("claim", request)
        self.versions.append(version)
        if request.wait:
            try:
                await asyncio.wait_for(self.stop.wait(), request.wait)
            except TimeoutError:
                return []
            except asyncio.CancelledError:
                self.cancelled += 1
                self.was_gone.append(is_gone())
                raise
        return []

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        self._note("heartbeat", request)
        return HeartbeatAnswer(lost=[])

    async def report(self, task: int, report: Report) -> TokenView:
        self._note("report", (task, report))
        if task == 404:
            raise Refused(Code.TASK_NOT_FOUND, "there is no task 404")
        return self.view("t")

    async def note(self, task: int, text: str, *, attempt: int | None) -> None:
        self._note("note", (task, text, attempt))

    async def remember(self, task: int, key: str, value: Raw | None, *, attempt: int | None) -> None:
        self._note("memory", (task, key, value, attempt))

    async def messages(self, messages: TaskMessages) -> MessageResults:
        self._note("messages", messages)
        return MessageResults(
            results=[MessageResult(task=each.task, status=204) for each in messages.messages]
        )

    async def queues(self) -> list[QueueView]:
        self._note("queues")
        return [QueueView(state="coding", depth=3, delayed=1, running=2, oldest_wait_s=4.5, is_served=False)]

    def health(self) -> Health:
        return Health(workflow="w", checksum="sha256:0")

    async def ready(self) -> None:
        self._note("ready")

    def begin_stop(self) -> None:
        self.stop.set()

    def statistics(self) -> dict[str, Any]:
        return {"claims": 7}
