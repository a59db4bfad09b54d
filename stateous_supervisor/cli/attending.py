"""What stands around a running agent: signals, the service manager, the socket in the state folder, the reload.

Called by `daemon`. None of it is needed for the agent's work: when it breaks, tasks go on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import msgspec

from stateous_supervisor.agent import folder as folders
from stateous_supervisor.agent.announcing import announce, announce_reload
from stateous_supervisor.agent.desk import Desk
from stateous_supervisor.agent.duty import Orders
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.keys import KEYS
from stateous_supervisor.agent.metrics import render
from stateous_supervisor.agent.metrics_page import MetricsPage
from stateous_supervisor.agent.overview import Drained, Reloaded, headline
from stateous_supervisor.agent.stop import listen

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from stateous_supervisor.agent.config import Config
    from stateous_supervisor.agent.host import HostSource
    from stateous_supervisor.agent.logs import Log
    from stateous_supervisor.agent.stop import Stop
    from stateous_supervisor.agent.supervisor import Supervisor
    from stateous_supervisor.systemd.notify import Notifier

RELOADED: Final = frozenset(
    {"tasks", "drain_timeout", "python", "log.level"}
)  # and everything below `routines`
FINISH_S: Final = 1.0

Reread = Callable[[], "Config"]
MakeSource = Callable[["Config"], "HostSource"]


class Attendance:
    """Attends to one running agent.

    Args:
        reread: reads flags, environment and file again; raises Fault.
        make_source: makes what starts hosts of a configuration; None where a folder cannot be loaded again.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        config: Config,
        *,
        stop: Stop,
        log: Log,
        notifier: Notifier,
        reread: Reread,
        make_source: MakeSource | None,
    ) -> None:
        self._supervisor = supervisor
        self._config = config
        self._stop = stop
        self._log = log
        self._notifier = notifier
        self._reread = reread
        self._make_source = make_source
        self._reloading = anyio.Lock()
        self._over = anyio.Event()
        self._code = Exit.DONE
        self._kept = 0
        answers = {"status": self._status, "reload": self._reload, "drain": self._drain}
        self._desk = Desk(config.state_dir, answers)

    def begin(self, tasks: TaskGroup) -> None:
        """Start everything in `tasks`, which is cancelled at the end."""
        keep_going = self._supervisor.keep_going
        tasks.start_soon(listen, self._stop)
        tasks.start_soon(self._listen_for_reloads)
        tasks.start_soon(keep_going, "notify", self._announce)
        tasks.start_soon(keep_going, "socket", self._serve_desk)
        if self._config.metrics_listen is not None:
            tasks.start_soon(keep_going, "metrics", self._serve_metrics)

    async def end(self, code: Exit) -> None:
        """The agent's work is over: tell those who wait for that."""
        self._code, self._kept = code, self._supervisor.look().outbox_depth
        self._over.set()
        await self._desk.finish(FINISH_S)

    async def _announce(self) -> None:
        await announce(self._supervisor, self._stop, self._notifier, self._desk.is_settled)

    async def _serve_desk(self) -> None:
        try:
            await self._desk.serve()
        except OSError as error:
            self._log.tell("socket.failed", folder=str(self._config.state_dir), error=str(error))

    async def _serve_metrics(self) -> None:
        listen = str(self._config.metrics_listen)
        supervisor = self._supervisor
        try:
            await MetricsPage(listen, lambda: render(supervisor.look(), supervisor.tally)).serve()
        except OSError as error:
            self._log.tell("metrics.failed", listen=listen, error=str(error))

    async def _listen_for_reloads(self) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            async for _ in signals:
                await self.reload()

    # What is asked at the socket.

    async def _status(self) -> bytes:
        return msgspec.json.encode(self._supervisor.look())

    async def _reload(self) -> bytes:
        return msgspec.json.encode(await self.reload())

    async def _drain(self) -> bytes:
        if not self._stop.asked.is_set():  # asked twice is not insisting
            self._stop.ask("drain")
        await self._over.wait()
        return msgspec.json.encode(Drained(exit_code=int(self._code), kept=self._kept))

    # The reload.

    async def reload(self) -> Reloaded:
        """Read configuration and folder again; say what came of it: to the caller, the log and the manager (A-45)."""
        async with self._reloading:
            await self._supervisor.started.wait()
            announce_reload(self._notifier)
            try:
                result = await self._try_to_reload()
                self._log.tell(
                    "folder.reloaded",
                    host=result.host,
                    states=result.states,
                    needs_restart=result.needs_restart or None,
                )
            except Fault as fault:
                result = Reloaded(error=fault.sentence)
                self._log.tell("reload.refused", error=fault.sentence)
            self._supervisor.reload_error = result.error
            self._notifier.ready(headline(self._supervisor.look()))
            return result

    async def _try_to_reload(self) -> Reloaded:
        if self._stop.asked.is_set():
            raise Fault(Exit.CONFIG, "the agent is stopping")
        if self._make_source is None:
            raise Fault(
                Exit.CONFIG, "routines inside the agent's process cannot be loaded again; start it anew"
            )
        fresh = await anyio.to_thread.run_sync(self._reread)
        folders.checksum_of(fresh.folder)
        await self._supervisor.reload(orders_of(fresh, self._make_source(fresh)))
        self._log.show_from(fresh.log_level)
        return Reloaded(
            host=self._supervisor.generation,
            states=self._supervisor.states,
            needs_restart=changed_keys(self._config, fresh),
        )


def orders_of(config: Config, source: HostSource) -> Orders:
    """Return what a reload changes."""
    return Orders(
        source=source,
        tasks=config.tasks,
        tasks_by_state={s: r.tasks for s, r in config.routines.items() if r.tasks is not None},
        timeouts={s: r.timeout_s for s, r in config.routines.items()},
        confinements={s: r.confinement for s, r in config.routines.items()},
        fenced=config.fenced,
        drain_timeout_s=config.drain_timeout_s,
    )


def changed_keys(running: Config, fresh: Config) -> list[str]:
    """Return the keys that have another value than the agent runs with, and that only a restart changes."""
    fixed = [name for name in KEYS if name not in RELOADED]
    return [name for name in fixed if running.settings[name].value != fresh.settings[name].value]
