"""A bell between loops. It carries nothing: who was woken reads the truth again."""

from __future__ import annotations

import math

import anyio


class Wake:
    """One waiter at a time. A ring while nobody waits is kept, several rings are one."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None
        self._is_rung = False

    def ring(self) -> None:
        """Wake the waiter, or the next one. Cheap when it was rung already: whoever has news rings for each."""
        if self._is_rung:
            return
        self._is_rung = True
        if self._event is not None:
            self._event.set()

    async def wait(self, until: float = math.inf) -> bool:
        """Wait for a ring, at most until that time of the loop's clock; return whether there was one."""
        if not self._is_rung:
            self._event = anyio.Event()
            try:
                with anyio.CancelScope(deadline=until):
                    await self._event.wait()
            finally:
                self._event = None
        was_rung, self._is_rung = self._is_rung, False
        return was_rung
