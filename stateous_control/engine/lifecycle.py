"""The loops of a control plane in one task group: who starts them, what each does when it fails, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from stateous_control.engine.attendance import Attendance
from stateous_control.engine.claims import Claims, Desk
from stateous_control.engine.gathering import Gathering
from stateous_control.engine.keyring import Keyring
from stateous_control.engine.notices import Notices
from stateous_control.engine.sweep import Sweep
from stateous_control.engine.telling import Telling
from stateous_control.logs import logger
from stateous_control.store.failures import Unavailable

WRITERS: Final = 2

log = logger()


class Loops:
    """A task group that lives from `start` to `stop`, with a place for desks that come and go."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self,
        *,
        gathering: Gathering,
        claims: Claims,
        notices: Notices,
        sweep: Sweep,
        attendance: Attendance,
        keyring: Keyring,
        telling: Telling,
        sweep_s: float,
    ) -> None:
        """Start every loop."""
        for _ in range(WRITERS):
            self._spawn(gathering.write())
        self._spawn(claims.look_now_and_then())
        self._spawn(keyring.run())
        self._spawn(telling.run(gathering.run))
        self._spawn(notices.publish())
        self._spawn(notices.listener.run())
        self._spawn(_sweep_for_ever(sweep, attendance, notices, sweep_s))

    def serve(self, desk: Desk) -> None:
        """Run a desk until nobody stands there."""
        self._spawn(desk.run())

    async def stop(self) -> None:
        """Cancel every loop and wait until each has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, loop: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(loop)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # Every loop catches what it expects; this is a fault of ours, and it must be seen.
            log.error("loop.ended", exc_info=error)


async def _sweep_for_ever(sweep: Sweep, attendance: Attendance, notices: Notices, sweep_s: float) -> None:
    is_away = False
    while True:
        await asyncio.sleep(sweep_s)
        try:
            await sweep.sweep()
            notices.others = sweep.seen.others
            await attendance.write()
        except Unavailable as error:
            if not is_away:
                log.warning("database.lost", reason=error.sentence)
            is_away = True
        except Exception:  # the top of a loop: a pass that fails is tried again, whatever it was
            log.exception("sweep.failed")
        else:
            if is_away:
                log.info("database.found")
            is_away = False
