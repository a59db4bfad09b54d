"""How an agent is asked to stop: the first signal drains, the second one ends it (A-43, A-44)."""

from __future__ import annotations

import signal
from typing import Final

import anyio

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class Stop:
    """What was asked for. Tests and simulations call `ask` in place of a signal."""

    def __init__(self) -> None:
        self.reason = ""
        self.asked = anyio.Event()
        self.insisted = anyio.Event()

    def ask(self, reason: str) -> None:
        """Ask to drain; asked again, end now."""
        if self.asked.is_set():
            self.insisted.set()
        self.reason = self.reason or reason
        self.asked.set()


async def listen(stop: Stop) -> None:
    """Turn signals into requests, for ever. Those that mean nothing here, and would end a process, do nothing."""
    with anyio.open_signal_receiver(*SIGNALS, *MEANINGLESS) as signals:
        async for number in signals:
            if number in SIGNALS:
                stop.ask(signal.Signals(number).name)
