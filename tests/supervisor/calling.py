"""A client of ours for one test, made as the agent makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from stateous_supervisor.agent.client import Client, options_for

KEY = "canary-key"


def with_client(url: str, main: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        client = Client(url, product="agent/1", key=lambda: KEY, options=options_for(url, **options))
        try:
            await main(client)
        finally:
            await client.close()

    anyio.run(run)


def ask(url: str, path: str = "/health", *, deadline_s: float = 5.0, **options: Any) -> int:
    statuses: list[int] = []

    async def main(client: Client) -> None:
        answer = await client.call("POST", path, b"{}", deadline_s=deadline_s, bytes_max=1_000)
        statuses.append(answer.status)

    with_client(url, main, **options)
    return statuses[0]
