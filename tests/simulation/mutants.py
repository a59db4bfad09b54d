"""Agents with a fault put in on purpose: each breaks a rule that the simulation must find."""

from __future__ import annotations

from typing import Any

from stateous_supervisor.agent.supervisor import Supervisor

from .host import ModelHosts


def beats_on_the_routines_loop(supervisor: Supervisor, hosts: ModelHosts) -> None:
    """Heartbeats run where the routines run: one that holds the loop holds them up (A-28)."""
    beat_all = supervisor._heartbeats._beat_all

    async def after_the_routines() -> float:
        for host in list(hosts.live):
            await host.loop_free()
        return await beat_all()

    supervisor._heartbeats._beat_all = after_the_routines  # type: ignore[method-assign]


def a_new_id_for_each_try(supervisor: Supervisor, _: ModelHosts) -> None:
    """A claim without an answer is sent again under another id (A-11)."""
    pause = supervisor._claims._pause

    async def forgetting(lane: Any, error: Any, identity: Any = None) -> None:
        await pause(lane, error, identity)
        lane.request = None

    supervisor._claims._pause = forgetting  # type: ignore[method-assign]


def sent_before_it_is_on_disk(supervisor: Supervisor, _: ModelHosts) -> None:
    """A report goes out while it is being written (A-35)."""
    roster = supervisor._roster
    write = roster._keeping.write

    def hastily(assignment: Any, kind: str, body: bytes) -> Any:
        envelope = write(assignment, kind, body)
        if kind == "report":
            supervisor._delivery.put(envelope)
        return envelope

    roster._keeping.write = hastily  # type: ignore[method-assign]


def asks_for_too_much_of_a_state(supervisor: Supervisor, _: ModelHosts) -> None:
    """A claim does not say that a state has a limit of its own (A-12)."""
    supervisor._roster.slots.own_limits = lambda room: None  # type: ignore[method-assign]


def sleeps_on(supervisor: Supervisor, _: ModelHosts) -> None:
    """Nobody beats at once after the box was suspended (A-33)."""
    supervisor._vigil.on_wake = []


def says_it_in_other_words(supervisor: Supervisor, _: ModelHosts) -> None:
    """A message that is sent again is written anew (A-37)."""
    control_plane = supervisor._control_plane
    tell, told = control_plane.tell, set[bytes]()

    async def anew(identity: Any, bodies: Any) -> Any:
        again = [body.replace(b",", b", ", 1) if body in told else body for body in bodies]
        told.update(bodies)
        return await tell(identity, again)

    control_plane.tell = anew  # type: ignore[method-assign]
