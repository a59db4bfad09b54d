"""One simulated life: a model control plane, one or two boxes whose agents live, die and come back, and what disturbs them.

`Life(seed).run()` plays it; the same seed gives the same history. It storms for some hours, then nothing bad happens
any more and everything must come to its end.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import anyio
from trio._core import _run as trio_run

from stateous_supervisor.agent.supervisor import Supervisor

from . import verdict
from .boxes import BoxLife
from .clock import Jumping
from .history import Broken, History
from .host import ModelHosts
from .model import Model
from .network import Weather

EPOCH = 1_700_000_000.0
PATHS = ["plain", "main", "brittle", "fragile", "round", "sturdy", "picky", "patient"]
LEASES = [(120.0, 30.0)] * 2 + [(300.0, 60.0)] * 3 + [(60.0, 15.0)]
LIMITED = ["plain", "draft", "review", "brittle", "round"]
DRAIN_S = 3_600.0
LIVE_MAX = 25

Mutant = Callable[[Supervisor, ModelHosts], None]


@dataclass(frozen=True)
class Drawn:
    """What a life is drawn to be."""

    is_baseline: bool
    boxes: int
    slots: int
    limits: dict[str, int]
    storm_s: float
    lease_s: float
    heartbeat_s: float
    roughness: float
    pause_s: float


def draw(luck: random.Random, *, is_baseline: bool) -> Drawn:
    lease_s, heartbeat_s = (120.0, 30.0) if is_baseline else luck.choice(LEASES)
    slots = luck.choice([1, 1, 2, 4, 8])
    limited = luck.sample(LIMITED, luck.choice([0, 2, 4]))
    return Drawn(
        is_baseline=is_baseline,
        boxes=1 if is_baseline else luck.choice([1, 1, 1, 2]),
        slots=slots,
        limits={state: luck.choice([1, 1, 2]) for state in limited},
        storm_s=3_600.0 * (1.0 if is_baseline else luck.choice([2.0, 4.0, 6.0, 8.0])),
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        roughness=luck.choice([0.7, 1.0, 1.3]),
        pause_s=luck.choice([100.0, 300.0, 600.0]),
    )


class Life:
    """A life that has not begun.

    Args:
        seed: gives everything that is left to chance.
        is_baseline: the control plane has no extensions.
        mutant: changes each agent before it starts, so that the rules have something to find.
        limit_s: how long it storms at most.
    """

    def __init__(
        self, seed: int, *, is_baseline: bool = False, mutant: Mutant | None = None, limit_s: float = math.inf
    ) -> None:
        self.seed = seed
        self.luck = random.Random(f"life {seed}")
        self.drawn = draw(self.luck, is_baseline=is_baseline)
        self.storm_s = min(self.drawn.storm_s, limit_s)
        self.history = History(anyio.current_time)
        self.weather = Weather(random.Random(f"weather {seed}"))
        self.mutant = mutant
        self.skew_s = self.wall_s = 0.0
        self.is_over = False
        self.hours = 0.0
        self.boxes: list[BoxLife] = []
        self._count = 0

    def run(self) -> History:
        """Play it, and judge the whole.

        Raises:
            Broken: with the rule; the history says what led to it.
        """
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
        trio_run._r.seed(self.seed)
        clock = Jumping()

        def wall() -> float:
            return EPOCH + self.wall_s + clock.current_time()

        gc.disable()  # what a life leaves is small, and looking for it again and again is a tenth of its cost
        try:
            with mock.patch.object(time, "time", wall):
                anyio.run(self._run, backend="trio", backend_options={"clock": clock})
        finally:
            gc.enable()
        if self.history.broken:
            raise self.history.broken[0]
        return self.history

    async def _run(self) -> None:
        drawn = self.drawn
        features = {"features": ()} if drawn.is_baseline else {}
        self.plane = Model(
            self.history,
            clock=lambda: EPOCH + anyio.current_time() + self.skew_s,
            lease_s=drawn.lease_s,
            heartbeat_s=drawn.heartbeat_s,
            retry_delay_s=self.luck.choice([0.0, 5.0]),
            **features,
        )
        self.calm = anyio.Event()
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            self.boxes = [BoxLife(self, f"box{number}", tasks) for number in range(drawn.boxes)]
            for box in self.boxes:
                tasks.start_soon(box.run)
            tasks.start_soon(self._look)
            await self._storm()
            await self._come_to_rest()
            tasks.cancel_scope.cancel()
        for box in self.boxes:
            box.close()

    async def _look(self) -> None:
        """End the life as soon as a rule is broken."""
        while not self.history.broken:
            await anyio.sleep(30.0)
            for box in self.boxes:
                box.look()
        self.hours = anyio.current_time() / 3_600.0
        self.tasks.cancel_scope.cancel()

    # While it storms.

    async def _storm(self) -> None:
        luck = self.luck
        next_intensity = 0.0
        while (now := anyio.current_time()) < self.storm_s:
            if now >= next_intensity:
                self.weather.intensity = min(0.9, luck.choice([0.0, 0.0, 0.35, 0.65]) * self.drawn.roughness)
                next_intensity = now + luck.uniform(200.0, 2_400.0)
            names = ["tokens"] * 6 + [
                "people", "kill", "kill", "stop", "host death", "restart", "partition", "suspend", "wall clock",
                "disk full", "reload",
            ]  # fmt: skip
            name = luck.choice(names)
            if name not in ("tokens", "people"):
                self.history.fault(name)
            getattr(self, "_" + name.replace(" ", "_"))(luck.choice(self.boxes))
            await anyio.sleep(luck.expovariate(1 / self.drawn.pause_s))
        self.hours = anyio.current_time() / 3_600.0

    def _tokens(self, _: BoxLife) -> None:
        live = sum(token.status not in verdict.TERMINAL for token in self.plane.tokens.values())
        for _number in range(self.luck.choice([1, 1, 2, 6]) if live < LIVE_MAX else 0):
            self._count += 1
            path, label = self.luck.choice(PATHS), self.luck.choice(["final", "brave", None])
            self.plane._start({"token": f"t{self._count}", "context": {"path": path, "label": label}})
        self.plane.changed()

    def _people(self, _: BoxLife) -> None:
        """Somebody pauses, resumes, cancels, or fires an event."""
        live = [t for t in self.plane.tokens.values() if t.status in ("active", "paused")]
        if not live:
            return
        token = self.luck.choice(live)
        self.plane.tick()
        drawn = self.luck.random()
        if token.status == "paused":
            self.plane._steer(token.name, "resume", {})
        elif token.status == "active" and drawn < 0.3:
            self.plane._steer(token.name, "pause", {})
        elif token.status == "active" and drawn < 0.5:
            self.plane._steer(token.name, "cancel", {})
        elif token.status == "active":
            verdict.push(self.plane, token)
        self.plane.changed()

    def _kill(self, box: BoxLife) -> None:
        box.kill()

    def _stop(self, box: BoxLife) -> None:
        box.stop(insists_after_s=self.luck.choice([None, None, 0.5, 40.0]))

    def _host_death(self, box: BoxLife) -> None:
        box.host_dies()

    def _reload(self, box: BoxLife) -> None:
        self.tasks.start_soon(box.reload)

    def _restart(self, _: BoxLife) -> None:
        self.tasks.start_soon(
            self._restart_plane, self.luck.random() < 0.5, self.luck.choice([0.2, 5.0, 60.0, 400.0])
        )

    async def _restart_plane(self, is_graceful: bool, down_s: float) -> None:
        plane = self.plane
        if plane.is_down:
            return
        plane.is_down = True
        if is_graceful:
            plane.stopping = True
            plane.changed()
            await anyio.sleep(0.5)
            plane.stopping = False
        plane.cut()
        self.history.add("plane", "is down", None, down_s)
        await anyio.sleep(down_s)
        plane.is_down = False
        self.history.add("plane", "is up")

    def _partition(self, box: BoxLife) -> None:
        span_s = self.luck.choice([20.0, 100.0, 300.0, 1_500.0]) * (0.5 + self.luck.random())
        self.weather.cut_until[box.name] = anyio.current_time() + span_s

    def _suspend(self, _: BoxLife) -> None:
        """The boxes sleep while the control plane's clock goes on."""
        span_s = self.luck.choice([5.0, 60.0, 1_000.0])
        self.skew_s += span_s
        for box in self.boxes:
            box.sleeps(span_s)
        self.plane.tick()
        self.plane.changed()

    def _wall_clock(self, _: BoxLife) -> None:
        self.wall_s += self.luck.choice([-90_000.0, -70.0, 70.0, 90_000.0])

    def _disk_full(self, box: BoxLife) -> None:
        self.tasks.start_soon(box.fill_disk, self.luck.choice([0.5, 10.0, 200.0]))

    # When it is over.

    async def _come_to_rest(self) -> None:
        self.weather.is_calm = True
        self.calm.set()
        self.weather.cut_until.clear()
        self.history.add("", "CALM")
        until = anyio.current_time() + DRAIN_S
        while anyio.current_time() < until:
            verdict.unstick(self.plane)
            await anyio.sleep(30.0)
            if all(token.status in verdict.TERMINAL for token in self.plane.tokens.values()):
                break
        else:
            left = [t.name for t in self.plane.tokens.values() if t.status not in verdict.TERMINAL]
            self.history.blame("drain", f"{left} have not ended {DRAIN_S / 3600:g} h after the last fault")
        await anyio.sleep(400.0)
        for box in self.boxes:
            box.is_last = True
            await box.settle()
        verdict.judge(self.plane, self.history, self.boxes)


__all__ = ["Broken", "Life"]
