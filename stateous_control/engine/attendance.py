"""Which supervisors were heard, kept in memory and written in one statement now and then.

So a claim that finds nothing and a beat write nothing about their sender, and an idle supervisor that polls every
second costs one row write in ten seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stateous_control.rules.access import DEFAULT_OWNER
from stateous_control.store.pool import Mode, Pool
from stateous_control.store.statements import statements

EVERY_S: Final = 10.0
REMEMBERED_MAX: Final = 10_000


@dataclass(slots=True)
class _Heard:
    states: tuple[str, ...]
    version: str | None
    since: float
    at: float
    written_at: float = float("-inf")
    is_news: bool = True


class Attendance:
    """The supervisors heard by this process, by name, instance and the owners that they work for."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._heard: dict[tuple[str, str, str], _Heard] = {}

    def hear(
        self,
        name: str,
        instance: str | None,
        states: Iterable[str] = (),
        *,
        scope: str = DEFAULT_OWNER,
        version: str | None = None,
    ) -> None:
        """Note a request of a supervisor; a claim tells its states and its version, a beat does not."""
        process = (name, instance or "", scope)
        served = tuple(sorted(set(states)))
        now = asyncio.get_running_loop().time()
        known = self._heard.get(process)
        if known is None:
            if len(self._heard) >= REMEMBERED_MAX:
                self._heard.clear()
            self._heard[process] = _Heard(served, version, now, now)
            return
        if (served and served != known.states) or (version is not None and version != known.version):
            known.states, known.version = served or known.states, version or known.version
            known.written_at = float("-inf")
        known.is_news, known.at = True, now

    async def write(self) -> None:
        """Write who was heard since the last time, each at most once in ten seconds."""
        now = asyncio.get_running_loop().time()
        due = {
            key: heard
            for key, heard in self._heard.items()
            if heard.is_news and now - heard.written_at >= EVERY_S
        }
        if not due:
            return
        columns = (
            [name for name, _, _ in due],
            [instance for _, instance, _ in due],
            ["\n".join(heard.states) for heard in due.values()],
            [scope for _, _, scope in due],
            [heard.version for heard in due.values()],
            [now - heard.since for heard in due.values()],
            [now - heard.at for heard in due.values()],
        )
        await self._pool.run(lambda session: session.fetch(statements.attend, *columns), Mode.BEAT)
        for heard in due.values():
            heard.written_at = now
            heard.is_news = False
