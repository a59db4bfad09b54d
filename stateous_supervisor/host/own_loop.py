"""The loop that `async def` routines run on, with a clock that nobody else sets."""

from __future__ import annotations

import asyncio
from time import monotonic


class OwnLoop(asyncio.SelectorEventLoop):
    """asyncio asks `time.monotonic` anew each time: where a test's library freezes that, no sleep would ever end."""

    def time(self) -> float:
        return monotonic()
