"""When another host takes the place of one that lives: it is crowded, not fit for more, or does not answer.

Called by the loop over hosts with what they say of themselves, and by the watch over a silent one (`stalls.py`).
What is due about silence is judged in `silence.py`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup

from stateous_supervisor.agent import cadence, silence
from stateous_supervisor.agent.host import Host
from stateous_supervisor.agent.lines import Line
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.agent.silence import Fate
from stateous_supervisor.link.frames import Outcome, Pulse, Unfit

STEADY_S: Final = 60.0  # a host that lived this long owes no backoff
ABANDONED_MAX: Final = 8  # so many routines may go on in a host although their attempt is over
AGAIN_S: Final = 60.0  # how soon a host that could not be replaced is tried again


class Replacing:
    """Takes lines out, and counts what died or had to be replaced, so that starts are spread (A-23).

    Args:
        lines: all that there are.
        start_beside: starts a line beside the one that there is; its `fault` says whether that went well.
        changed: called when the number of abandoned routines did.

    `tasks` is where replacements are started; before it is there, nothing is replaced.
    """

    def __init__(
        self,
        roster: Roster,
        log: Log,
        luck: random.Random,
        *,
        lines: Sequence[Line],
        start_beside: Callable[[], Awaitable[Line]],
        changed: Callable[[], None],
    ) -> None:
        self.tasks: TaskGroup | None = None
        self.deaths = 0
        self._roster = roster
        self._log = log
        self._luck = luck
        self._lines = lines
        self._start_beside = start_beside
        self._changed = changed

    def next_host_s(self, lived_s: float) -> float:
        """Count a host that is lost, and return how long to wait before the next one starts."""
        self.deaths = 1 if lived_s >= STEADY_S else self.deaths + 1
        return cadence.next_host_s(self.deaths, lived_s, self._luck.random())

    def unusable_s(self) -> float:
        """Count a host that could not be started, and return how long to wait before the next one is."""
        self.deaths += 1
        return cadence.backoff_s(self.deaths, self._luck.random())

    # What a host says of itself.

    def take_pulse(self, line: Line, pulse: Pulse, now: float) -> None:
        """See how many routines nobody waits for, and whether the loop hangs."""
        before, line.pulse, line.abandoned = line.abandoned, pulse, pulse.abandoned
        if before != line.abandoned:
            self._changed()
        if line.host is None:
            return
        if line.abandoned >= ABANDONED_MAX and self._can_replace(line):
            self._log.tell("host.crowded", host=line.host.generation, abandoned=line.abandoned)
            self._give_way(line)
        if line.stalls is not None:
            line.stalls.take(pulse, now)
        if self._fate(line, pulse.loop_lag_s, can_end=False) is Fate.REPLACE:
            self._give_up(line, line.host, "loop", pulse.loop_lag_s)

    def take_out(self, line: Line, unfit: Unfit) -> None:
        """Give a host no more work that has not what routines need; what runs in it may still end well (A-23)."""
        host = line.host
        if host is None or line.is_unfit or line.is_retired or not line.source.can_add or self.tasks is None:
            return
        line.is_unfit = True
        self._roster.close(host.generation)
        self._pass_over(line, host, "host.unfit", reason=unfit.reason)

    # What it does not say.

    def judge(self, line: Line, heard_at: float) -> Sequence[Outcome]:
        """Do what is due about a host that has said nothing since `heard_at`; return the ends that it does not tell."""
        host, now = line.host, anyio.current_time()
        if host is None:
            return []
        running = [a for a in self._roster.running if a.host == host.generation]
        ends = silence.overdue(running, host.routines, self._roster.confinements, heard_at=heard_at, now=now)
        silent_s = now - heard_at
        can_end = line.source.can_add and line.end is None and len(running) == len(ends)
        match self._fate(line, silent_s, can_end=can_end):
            case Fate.END:
                line.end = f"it did not answer for {silent_s:.0f} s, and no attempt was left in it"
                host.kill()
            case Fate.REPLACE:
                self._give_up(line, host, "host", silent_s)
        return ends

    def _fate(self, line: Line, silent_s: float, *, can_end: bool) -> Fate:
        hung = sum(each.has_hung for each in self._lines)
        return silence.fate(silent_s, can_end=can_end, can_replace=self._can_replace(line), hung=hung)

    def _give_up(self, line: Line, host: Host, what: str, hung_s: float) -> None:
        line.has_hung = True
        self._pass_over(line, host, "host.hung", what=what, hung_s=round(hung_s, 1))

    def _pass_over(self, line: Line, host: Host, event: str, **keys: object) -> None:
        """Have another host take the place of one that counts as lost, and say why."""
        wait_s = self.next_host_s(anyio.current_time() - line.welcomed_at)
        running = len(self._roster.running_in(host.generation))
        self._log.tell(event, host=host.generation, **keys, running=running, next_in_s=round(wait_s, 1))
        self._give_way(line, wait_s)

    def _can_replace(self, line: Line) -> bool:
        return line.can_give_way and self.tasks is not None

    def _give_way(self, line: Line, wait_s: float = 0.0) -> None:
        """Start another host for this one, unless that was done for another reason."""
        assert self.tasks is not None, "hosts are heard while there are some"
        if not line.is_giving_way:
            line.is_giving_way = True
            self.tasks.start_soon(self._replace, line, wait_s)

    async def _replace(self, before: Line, wait_s: float) -> None:
        """Have another host take new work; the one before ends with its routines, and then with what is abandoned."""
        await anyio.sleep(wait_s)
        line = await self._start_beside()
        if line.fault is not None:
            self._log.tell("host.failed", error=line.fault, next_in_s=AGAIN_S)
            await anyio.sleep(AGAIN_S)
            before.is_giving_way = before.is_unfit = before.has_hung = False
