"""Who waits for a task to change, and who wakes them: each commit of this process, and a look once a second.

A wake only says "look"; what was missed, and what other control planes did, the look finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from stateous_control.rules.book import Book

LOOK_S: Final = 1.0

Seen = TypeVar("Seen")


def all_of(*hearers: Callable[[Book], None]) -> Callable[[Book], None]:
    """Return one hearer that tells all of these of a commit."""

    def heard(book: Book) -> None:
        for hear in hearers:
            hear(book)

    return heard


class Watching:
    """The requests of this process that wait, by task."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._is_stopping = False

    def committed(self, book: Book) -> None:
        """Wake those who wait for a task that a transaction changed."""
        if not self._waiting:
            return
        for task in book.tasks.values():
            if task.is_changed:
                self.wake(task.id)

    def begin_stop(self) -> None:
        """Let everybody who waits answer now."""
        self._is_stopping = True
        for task in list(self._waiting):
            self.wake(task)

    async def until(
        self, task: int, look: Callable[[], Awaitable[Seen]], is_enough: Callable[[Seen], bool], wait_s: float
    ) -> Seen:
        """Look until it is enough, or the time is over; return what was seen last."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        woken = asyncio.Event()
        self._waiting.setdefault(task, set()).add(woken)
        try:
            while True:
                woken.clear()
                seen = await look()
                left_s = deadline - loop.time()
                if is_enough(seen) or left_s <= 0 or self._is_stopping:
                    return seen
                try:
                    async with asyncio.timeout(min(LOOK_S, left_s)):
                        await woken.wait()
                except TimeoutError:
                    continue
        finally:
            self._waiting[task].discard(woken)
            if not self._waiting[task]:
                del self._waiting[task]

    def wake(self, task: int) -> None:
        """Let those who wait for a task look."""
        for woken in self._waiting.get(task, ()):
            woken.set()
