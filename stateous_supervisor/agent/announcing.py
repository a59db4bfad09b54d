"""The loop that tells the service manager how the agent is: ready, one line, alive, stopping (A-55).

It reads the agent and changes nothing. READY comes after discovery, whether or not a control plane answers, and when
the agent's socket can be asked; the watchdog is answered while every loop turns and not otherwise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import anyio

from stateous_supervisor.agent.overview import headline

if TYPE_CHECKING:
    from anyio import Event

    from stateous_supervisor.agent.stop import Stop
    from stateous_supervisor.agent.supervisor import Supervisor
    from stateous_supervisor.systemd.notify import Notifier

TICK_S: Final = 5.0
EXTEND_S: Final = 30.0


async def announce(supervisor: Supervisor, stop: Stop, notifier: Notifier, desk_is_settled: Event) -> None:
    """Announce, for ever. Without a service manager there is nothing to do."""
    if notifier.address is None:
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_ready, supervisor, notifier, desk_is_settled)
        await stop.asked.wait()
        tasks.cancel_scope.cancel()
    notifier.stopping(headline(supervisor.look()))
    told = ""
    while True:
        notifier.extend(seconds=EXTEND_S)
        told = _tell(supervisor, notifier, told)
        await anyio.sleep(_tick_s(notifier))


async def _until_ready(supervisor: Supervisor, notifier: Notifier, desk_is_settled: Event) -> None:
    await supervisor.started.wait()
    await desk_is_settled.wait()
    told = headline(supervisor.look())
    notifier.ready(told)
    while True:
        told = _tell(supervisor, notifier, told)
        await anyio.sleep(_tick_s(notifier))


def _tell(supervisor: Supervisor, notifier: Notifier, told: str) -> str:
    """Say the line if it is another one than `told`, and answer the watchdog if all loops turn; return the line."""
    line = headline(supervisor.look())
    if line != told:
        notifier.status(line)
    if notifier.watchdog_s is not None and not supervisor.progress.late():
        notifier.alive()
    return line


def _tick_s(notifier: Notifier) -> float:
    """Return how often to look: at least three times in the watchdog's time."""
    return TICK_S if notifier.watchdog_s is None else min(TICK_S, notifier.watchdog_s / 3)


def announce_reload(notifier: Notifier) -> None:
    """Say that a reload begins; `Notifier.ready` ends it, whether it was good or not."""
    notifier.reloading(monotonic_usec=time.monotonic_ns() // 1_000)
