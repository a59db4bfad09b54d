"""One box of a simulated life: its disk, and the processes of its agent one after the other."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.duty import Duty, Orders
from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.agent.logs import EVENTS, Log
from stateous_supervisor.agent.outbox import (
    Batch,
    ClaimRow,
    Envelope,
    GrantRow,
    Outbox,
    WriteFailed,
    in_memory,
)
from stateous_supervisor.agent.stop import Stop
from stateous_supervisor.agent.supervisor import Supervisor

from .clock import BoxClocks
from .history import Process
from .host import ModelHosts
from .network import Direct, Network
from .watch import Box, Watch

if TYPE_CHECKING:
    from .life import Life

INSISTED_S = 5.5


class Told(Log):
    """A log that renders nothing and tells every event to the watch."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(lambda _: None)
        self._watch = watch

    def tell(self, event: str, /, **keys: object) -> None:
        assert event in EVENTS, event
        self.heard(event, keys)
        self._watch.tells(event, keys)

    def tell_at(self, level: str, event: str, keys: Mapping[str, object]) -> None:
        self._watch.tells(event, keys)


class Disk(Outbox):
    """The outbox of one process over its box's database; the disk may be full."""

    watch: Watch
    box: Box

    def commit(self, batch: Batch) -> None:
        if self.watch.process.ended_at is not None:
            return  # it has been killed
        if self.box.is_full:
            self.watch.commits(batch, is_written=False)
            raise WriteFailed("the outbox cannot be written: no space left on device")
        super().commit(batch)
        self.watch.commits(batch, is_written=True)


class BoxLife:
    """One box: its disk, and the processes of its agent one after the other."""

    def __init__(self, life: Life, name: str, tasks: TaskGroup) -> None:
        self.life = life
        self.name = name
        self.is_last = False
        self.disk = Box()
        self.processes: list[Process] = []
        self._tasks = tasks
        self._luck = random.Random(f"{name} {life.seed}")
        empty = in_memory()
        self._database, self._empty = empty._database, empty.found
        self._ids = 0
        self._clocks = BoxClocks()
        self._kill_scope: anyio.CancelScope | None = None
        self._stop_asked: Stop | None = None
        self._supervisor: Supervisor | None = None
        self._hosts: ModelHosts | None = None
        self._watch: Watch | None = None
        self._over = anyio.Event()

    def close(self) -> None:
        self._database.close()

    async def run(self) -> None:
        while not self.is_last:
            await self._process()
            if not self.is_last:
                await anyio.sleep(
                    0.1 if self.life.weather.is_calm else self._luck.choice([0.1, 1.0, 20.0, 300.0])
                )
        self._over.set()

    async def _process(self) -> None:
        life, drawn = self.life, self.life.drawn
        number = len(self.processes) + 1
        name = f"{self.name}/{number}"
        found = self._found()
        process = Process(
            name=name,
            box=self.name,
            instance=f"i{number}",
            slots=drawn.slots,
            limits=drawn.limits,
            lanes=1 if drawn.is_baseline else 2,
            started_at=anyio.current_time(),
            old_ids={row.request for row in found.claims},
        )
        self.processes.append(process)
        watch = self._watch = Watch(process, self.disk, life.plane, life.history)
        disk = Disk(self._database, found)
        disk.watch, disk.box = watch, self.disk
        hosts = self._hosts = ModelHosts(life.seed, watch, life.history, life.calm)
        stop = self._stop_asked = Stop()
        network = Network(
            self.name,
            plane=life.plane,
            weather=life.weather,
            tasks=life.tasks,
            watch=watch,
            history=life.history,
        )
        supervisor = self._supervisor = Supervisor(
            Duty(
                identity=Identity(self.name, process.instance),
                tasks=drawn.slots,
                tasks_by_state=drawn.limits,
                checksum=lambda: life.plane.graph.checksum,
                drain_timeout_s=self._luck.choice([None, 30.0]),
            ),
            control_plane=ControlPlane(Direct(network)),
            outbox=disk,
            source=hosts,
            log=Told(watch),
            luck=random.Random(f"{name} {life.seed}"),
            new_id=self._new_id,
            stop=stop,
        )
        supervisor._vigil._clocks, supervisor._vigil._pause = self._clocks.read, self._clocks.pause
        slow_disk(supervisor, random.Random(f"disk {name} {life.seed}"))
        if life.mutant is not None:
            life.mutant(supervisor, hosts)
        life.history.add(
            name, "starts", None, f"claims {sorted(process.old_ids)}, {len(found.messages)} messages"
        )
        code: Exit | None = None
        with anyio.CancelScope() as self._kill_scope:
            code = await supervisor.run()
        self._kill_scope = self._stop_asked = self._supervisor = self._hosts = None
        watch.ends()
        life.history.add(name, "ends", None, code if code is not None else "killed")
        if code is not None and process.stop_at is None:
            life.history.blame("A-60", f"it ended by itself with {code!r}", who=name)

    def _found(self) -> Any:
        """Return what the processes before have left on the disk."""
        rows = self._database.execute
        claims = [ClaimRow(r[0], Identity(*r[1:3])) for r in rows("SELECT * FROM claims").fetchall()]
        grants = [
            GrantRow._make((*r[:4], Identity(*r[4:6])))
            for r in rows("SELECT * FROM grants ORDER BY task, attempt").fetchall()
        ]
        messages = [
            Envelope._make((*r[:5], Identity(*r[5:7]), *r[7:]))
            for r in rows("SELECT * FROM messages ORDER BY id").fetchall()
        ]
        return self._empty._replace(claims=claims, grants=grants, messages=messages)

    def _new_id(self) -> str:
        self._ids += 1
        return f"r{self._ids}"

    # What is done to it.

    def look(self) -> None:
        """Every loop turns (A-55), and beats come in time."""
        if self._supervisor is None or self._watch is None:
            return
        self._watch.look()
        late = self._supervisor.progress.late()
        if late:
            self.life.history.blame("A-55", f"the loops {late} do not turn", who=self.processes[-1].name)

    def sleeps(self, span_s: float) -> None:
        """It was suspended for so long and goes on."""
        self._clocks.sleeps(span_s)
        if self._supervisor is not None and self._watch is not None:
            self._watch.sleeps()

    def kill(self) -> None:
        if self._kill_scope is not None:
            self.processes[-1].ended_at = anyio.current_time()
            self._kill_scope.cancel()

    def stop(self, *, insists_after_s: float | None) -> None:
        if self._stop_asked is not None and self.processes[-1].stop_at is None:
            self.processes[-1].stop_at = anyio.current_time()
            self._stop_asked.ask("test")
            if insists_after_s is not None:
                self._tasks.start_soon(self._insist, self._stop_asked, self.processes[-1], insists_after_s)

    async def _insist(self, stop: Stop, process: Process, after_s: float) -> None:
        await anyio.sleep(after_s)
        if process.ended_at is None:
            stop.ask("test")
            await anyio.sleep(INSISTED_S)
            if process.ended_at is None:
                self.life.history.blame(
                    "A-44", "it has not ended 5 s after the second signal", who=process.name
                )

    def host_dies(self) -> None:
        for host in list(self._hosts.live if self._hosts is not None else []):
            host.die("killed by SIGKILL")

    async def reload(self) -> None:
        if self._supervisor is None or self._hosts is None or not self._hosts.live:
            return
        slots = self.life.drawn.slots
        orders = Orders(source=self._hosts, tasks=slots, tasks_by_state=self.life.drawn.limits, timeouts={}, confinements={}, drain_timeout_s=None)  # fmt: skip
        with contextlib.suppress(Exception):  # the host of the reload died, or the agent with it
            await self._supervisor.reload(orders)

    async def fill_disk(self, span_s: float) -> None:
        self.disk.is_full = True
        await anyio.sleep(span_s)
        self.disk.is_full = False

    async def settle(self) -> None:
        """End the last process in peace."""
        process = self.processes[-1]
        self.stop(insists_after_s=None)
        with anyio.move_on_after(120.0):
            await self._over.wait()
        if process.ended_at is None:
            self.life.history.blame(
                "A-43", "an idle agent has not ended 120 s after its stop", who=process.name
            )


def slow_disk(supervisor: Supervisor, luck: random.Random) -> None:
    """Let commits take time, so that there is a before and an after."""
    commit = supervisor._journal._commit

    async def slowly(batch: Batch) -> None:
        if not batch.is_empty and luck.random() < 0.3:
            await anyio.sleep(luck.choice([0.002, 0.05, 0.8]))
        await commit(batch)

    supervisor._journal._commit = slowly  # type: ignore[method-assign]
