"""The routine host inside the agent's process, for `run --inline`: the one place where agent and host are glued."""

from __future__ import annotations

import os
import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from stateous_supervisor.agent.host import HostEnded, HostUnusable
from stateous_supervisor.agent.link_end import LinkEnd, LinkEnded
from stateous_supervisor.agent.loading import LoadStopped, load
from stateous_supervisor.host.inline import InlineHost
from stateous_supervisor.link.frames import BrokenFile, Frame, Loaded, RoutineFacts, ToAgent

END_S: Final = 3.0


class _Inline:
    """A loaded host in a thread of this process."""

    has_pulse = True

    def __init__(self, generation: int, link: LinkEnd, loaded: Loaded) -> None:
        self.generation = generation
        self.pid = os.getpid()
        self.python = platform.python_version()
        self.routines: Sequence[RoutineFacts] = loaded.routines
        self.broken: Sequence[BrokenFile] = loaded.broken
        self.faults: Sequence[str] = loaded.faults
        self._link = link

    @property
    def is_stalled(self) -> bool:
        return self._link.is_stalled

    def kill(self) -> None:
        """Nothing: it would end the agent."""

    async def hang(self) -> None:
        """Nothing: what hangs this host hangs the agent too, and so nobody asks."""

    def send(self, messages: Sequence[Frame]) -> None:
        self._link.send(messages)

    async def receive(self) -> Sequence[ToAgent]:
        try:
            return await self._link.receive()
        except LinkEnded as ended:
            raise HostEnded(str(ended)) from None


class InlineHosts:
    """Starts the routine host as a thread. Nothing is protected from user code here."""

    can_add = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open(self, generation: int) -> AsyncIterator[_Inline]:
        """Load the folder in a thread of this process; a file that hangs cannot be left out here."""
        host = InlineHost(self._folder)
        host.start()
        link = LinkEnd(host.sock)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.serve)
            try:
                _, loaded = await load(link)
                yield _Inline(generation, link, loaded)
            except LoadStopped as stopped:
                where = f"{stopped.file}: " if stopped.file else ""
                failure = HostUnusable(
                    f"{where}{stopped.reason or 'the host ended while it loaded the folder'}"
                )
            except Exception as error:  # kept as it is: a task group would wrap it
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await link.close()
                    await anyio.to_thread.run_sync(host.wait_ended, END_S)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
