"""One agent: its loops put together, what it does with what an earlier process left, and how it stops.

Everything from outside comes in as an argument: control plane, outbox, source of hosts, log, chance, clock
(the event loop's). `cli/run.py` brings real ones, a simulation brings doubles.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from stateous_supervisor.agent.claims import Claims, NewId
from stateous_supervisor.agent.contact import Contact
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.delivery import Delivery
from stateous_supervisor.agent.duty import Duty, Orders
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.fences import Fences
from stateous_supervisor.agent.heartbeats import Heartbeats
from stateous_supervisor.agent.host import HostSource
from stateous_supervisor.agent.hosts import Hosts
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.outbox import Outbox
from stateous_supervisor.agent.output import Sink
from stateous_supervisor.agent.overview import Snapshot
from stateous_supervisor.agent.progress import Progress
from stateous_supervisor.agent.relay import Relay
from stateous_supervisor.agent.roster import Roster
from stateous_supervisor.agent.sight import Sights, look
from stateous_supervisor.agent.slots import Slots
from stateous_supervisor.agent.stop import Stop
from stateous_supervisor.agent.tally import Tally
from stateous_supervisor.agent.vigil import Vigil
from stateous_supervisor.agent.wake import Wake
from stateous_supervisor.link.frames import Cancel

CANCEL_S: Final = 3.0  # how long cancelled routines may clean up at the end of a drain
INSIST_S: Final = 4.5
LAST_TRY_S: Final = 1.0
AGAIN_S: Final = 1.0


class Supervisor:
    """An agent that has not started. `run` is its life."""

    def __init__(
        self,
        duty: Duty,
        *,
        control_plane: ControlPlane,
        outbox: Outbox,
        source: HostSource,
        log: Log,
        luck: random.Random,
        new_id: NewId,
        stop: Stop,
    ) -> None:
        self._duty = duty
        self._control_plane = control_plane
        self._outbox = outbox
        self._log = log
        self._stop = stop
        self.progress = Progress()
        self.tally = Tally()
        log.heard = self.tally.hear
        self.started = anyio.Event()
        self.reload_error: str | None = None
        self._started_at = 0.0
        self._drain_timeout_s = duty.drain_timeout_s
        self._wake = Wake()
        self._recovered = anyio.Event()
        self._hosts_over, self._claims_over = anyio.Event(), anyio.Event()
        self._hosts_scope = anyio.CancelScope()
        self._journal = Journal(outbox, log)
        self._contact = Contact(control_plane, log, luck, checksum=duty.checksum, reliance=duty.reliance)
        self._delivery = Delivery(control_plane, self._journal, self._contact, luck)
        self._roster = Roster(
            control_plane=control_plane,
            journal=self._journal,
            delivery=self._delivery,
            log=log,
            slots=Slots(duty.tasks, duty.tasks_by_state),
            timeouts=duty.timeouts,
            confinements=duty.confinements,
        )
        self._claims = Claims(
            control_plane=control_plane,
            contact=self._contact,
            journal=self._journal,
            roster=self._roster,
            log=log,
            luck=luck,
            identity=duty.identity,
            new_id=new_id,
        )
        self._hosts = Hosts(source, self._roster, log, luck, is_strict=duty.is_strict, changed=self._changed)
        fences = self._fences = Fences(control_plane, self._roster, self._hosts.routines, log)
        self._heartbeats = Heartbeats(
            control_plane, self._contact, self._roster, log, luck=luck, fences=fences
        )
        self._vigil = Vigil(control_plane, self._contact, self._roster, log)
        self._relay = Relay(control_plane, self._roster)
        self._connect()

    def _connect(self) -> None:
        """Let the loops ring each other, and each say that it moves: the watchdog is answered while all do (A-55)."""
        self._contact.opened = self._journal.mended = self._roster.freed = self._changed
        self._contact.regained = self._contact.standing.accepted = self._regained
        self._vigil.on_key = [self._claims.retry, self._contact.retry, self._heartbeats.hurry]
        self._vigil.on_wake = [self._heartbeats.hurry]
        self._roster.held = self._heartbeats.look
        self._roster.delivered = self._delivered
        self._hosts.called = self._relay.take
        for name in ("contact", "journal", "delivery", "heartbeats", "claims", "hosts", "vigil"):
            getattr(self, f"_{name}").promise = self.progress.of(name)

    def keep_output(self, output: Sink) -> None:
        """Have what routines print kept there (A-63)."""
        self._hosts.output = output

    async def run(self) -> Exit:
        """Serve until `stop` is asked for; return what the process should exit with.

        Raises:
            Fault: the folder or its interpreter cannot be used (78).
        """
        started_at = self._started_at = anyio.current_time()
        fault: Fault | None = None
        code = Exit.DONE
        async with anyio.create_task_group() as loops:
            try:
                code = await self._serve(loops)
            except Fault as found:
                fault = found
            loops.cancel_scope.cancel()
        fault = fault or self._fault
        if fault is not None:
            raise fault
        duration_s = round(anyio.current_time() - started_at, 1)
        self._log.tell(
            "supervisor.stopped", duration_s=duration_s, kept=self._delivery.depth, exit_code=int(code)
        )
        return code

    _fault: Fault | None = None

    async def _serve(self, loops: TaskGroup) -> Exit:
        loops.start_soon(self._have_hosts)
        loops.start_soon(self.keep_going, "journal", self._journal.run)
        loops.start_soon(self.keep_going, "contact", self._contact.run)
        loops.start_soon(self.keep_going, "delivery", lambda: self._delivery.run(self._relay.settle))
        loops.start_soon(self.keep_going, "heartbeats", self._heartbeats.run)
        loops.start_soon(self.keep_going, "vigil", self._vigil.run)
        self._tell_recovered()
        loops.start_soon(self._recover)
        async with anyio.create_task_group() as starting:
            starting.start_soon(self._start_claims, loops)
            await self._stop.asked.wait()
            starting.cancel_scope.cancel()
        return await self._end()

    async def _start_claims(self, loops: TaskGroup) -> None:
        await self._hosts.ready.wait()
        duty = self._duty
        self._log.tell(
            "supervisor.started",
            states=self.states,
            slots=duty.tasks,
            url=duty.url,
            supervisor=duty.identity.supervisor,
            instance=duty.identity.instance,
        )
        self._fences.put_up(duty.fenced, duty.confinements)
        self.started.set()
        await self._recovered.wait()
        loops.start_soon(self._claim)

    # What an earlier process left.

    def _tell_recovered(self) -> None:
        found = self._outbox.found
        for sentence in found.aside:
            self._log.tell("outbox.set_aside", record=sentence.split(":")[0], error=sentence)
        counts = {"claims": len(found.claims), "grants": len(found.grants), "messages": len(found.messages)}
        if any(counts.values()):
            self._log.tell("outbox.copied" if found.is_copied else "outbox.recovered", **counts)

    async def _recover(self) -> None:
        """Settle all that was left as soon as the control plane is reached; that needs no host (A-35, A-46)."""
        self._recover_messages()
        await self._contact.wait_for_terms()
        self._recover_grants()
        self._recovered.set()

    def _recover_messages(self) -> None:
        """Finished outcomes go first (A-35); they are held until they are delivered."""
        for envelope in self._outbox.found.messages:
            if envelope.kind == "report":
                self._roster.recover(envelope)
            self._delivery.put(envelope)

    def _recover_grants(self) -> None:
        """Settle what an earlier process ran (A-46); on a copied box that is not ours to do."""
        found = self._outbox.found
        for row in found.grants:
            if found.is_copied:
                self._journal.batch.grants_over.append((row.task, row.attempt))
            else:
                self._roster.recover(row)
                self._roster.give_back((row.task, row.attempt), "agent_died")
        if found.is_copied:
            self._journal.batch.claims_over += [row.request for row in found.claims]
        self._journal.write_soon()

    # Reload, and what can be seen.

    async def reload(self, orders: Orders) -> None:
        """Have a new host take new grants while the one before it finishes, under new limits (A-45).

        Raises:
            Fault: the folder is not good; nothing has changed (78).
        """
        slots = self._roster.slots
        before = (set(self.states), slots.total, slots.limits)
        await self._hosts.reload(orders.source)
        slots.total, slots.limits = orders.tasks, orders.tasks_by_state
        self._roster.timeouts = orders.timeouts
        self._fences.put_up(orders.fenced, orders.confinements)
        self._drain_timeout_s = orders.drain_timeout_s
        self._contact.compare_anew()
        if before != (set(self.states), slots.total, slots.limits):
            self._claims.ask_anew()
        self._changed()

    @property
    def states(self) -> list[str]:
        """What is served now: states, and routines without a graph behind an ``@``."""
        return list(self._roster.served)

    @property
    def generation(self) -> int:
        """The number of the host that takes new work; 0 without one."""
        return self._hosts.generation

    def look(self) -> Snapshot:
        """Return how the agent is now. Waits for nothing (A-57)."""
        return look(
            self._duty,
            Sights(self._roster, self._hosts, self._contact, self._heartbeats, self._delivery, self._journal),
            tally=self.tally,
            phase=self._phase,
            uptime_s=anyio.current_time() - self._started_at,
            reload_error=self.reload_error,
            late_loops=self.progress.late(),
        )

    @property
    def _phase(self) -> str:
        if self._stop.asked.is_set():
            return "stopping"
        return "serving" if self.started.is_set() else "starting"

    # Loops.

    async def _have_hosts(self) -> None:
        try:
            with self._hosts_scope:
                await self.keep_going("hosts", self._hosts.run)
        except Fault as fault:
            self._fault = fault
            self._stop.ask("fault")
        finally:
            self._hosts_over.set()

    async def _claim(self) -> None:
        found = self._outbox.found
        old = [] if found.is_copied else found.claims
        self._fences.measure()
        try:
            await self.keep_going("claims", lambda: self._claims.run(old))
        finally:
            self._claims_over.set()

    async def keep_going(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop for ever: a fault of ours in one of them must not end the others."""
        while True:
            try:
                await loop()
            except Fault:
                raise
            except Exception as error:  # the top of a loop: told in full, then on
                trace = "".join(traceback.format_exception(error))
                self._log.tell("loop.failed", loop=name, error=repr(error), traceback=trace)
                await anyio.sleep(AGAIN_S)
            else:
                return

    def _changed(self) -> None:
        self._claims.look()
        self._wake.ring()

    def _regained(self) -> None:
        self._claims.retry()
        self._delivery.retry()

    def _delivered(self) -> None:
        self._claims.look_again()
        self._wake.ring()

    # The end.

    async def _end(self) -> Exit:
        """Drain, unless and until somebody insists (A-43, A-44)."""
        self._claims.stop()
        self._journal.hurry()
        if self._fault is not None:
            return self._fault.exit_code
        running = len(self._roster.running)
        self._log.tell("supervisor.stopping", reason=self._stop.reason, running=running)
        code = Exit.ABANDONED
        async with anyio.create_task_group() as draining:
            draining.start_soon(self._insist, draining.cancel_scope)
            code = await self._drain()
            draining.cancel_scope.cancel()
        if code is Exit.ABANDONED:
            with anyio.move_on_after(INSIST_S):
                await self._abandon()
        return code

    async def _insist(self, scope: anyio.CancelScope) -> None:
        await self._stop.insisted.wait()
        scope.cancel()

    async def _drain(self) -> Exit:
        """Let routines end; return whether any had to be left at the limit although it would not stop."""
        code = Exit.DONE
        with anyio.move_on_after(self._drain_timeout_s) as scope:
            await self._until_no_routine_runs()
        if scope.cancelled_caught:
            self._cancel_all()
            with anyio.move_on_after(CANCEL_S):
                await self._until_no_routine_runs()
                while self._hosts.abandoned:
                    await self._wake.wait()
            if self._roster.running or self._hosts.abandoned:
                code = Exit.ABANDONED
        await self._end_hosts()
        await self._journal.flush()
        await self._deliver_rest()
        return code

    async def _until_no_routine_runs(self) -> None:
        if self._hosts.ready.is_set() and self._contact.has_terms:
            await self._claims_over.wait()
        while self._roster.running:
            await self._wake.wait()
        await self._relay.until_all_left()

    def _cancel_all(self) -> None:
        self._roster.is_draining = True
        running = self._roster.running
        self._roster.tell_host([Cancel(task=a.task, attempt=a.attempt, cause="drain") for a in running])

    async def _end_hosts(self) -> None:
        """End the host; what still ran in it is given back once it cannot go on."""
        self._hosts_scope.cancel()
        await self._hosts_over.wait()
        for assignment in self._roster.running:
            if assignment.host:
                self._log.tell("routine.abandoned", **self._roster.names(assignment.key))
            self._roster.give_back(assignment.key, "drain")

    async def _deliver_rest(self) -> None:
        """Wait until all is delivered, or until one more try was not answered; the rest is kept.

        While the disk keeps nothing, that is no end (A-41).
        """
        tries = self._delivery.tries
        self._delivery.hurry()
        while not self._delivery.is_empty and (
            self._delivery.tries == tries or not self._journal.is_writable
        ):
            if not self._contact.has_terms:
                return
            await self._wake.wait(anyio.current_time() + LAST_TRY_S)
        with anyio.move_on_after(LAST_TRY_S):
            await self._journal.flush()  # that it was delivered, so that nobody delivers it again

    async def _abandon(self) -> None:
        await self._end_hosts()
        with anyio.move_on_after(LAST_TRY_S):
            await self._journal.flush()
            await self._deliver_rest()
