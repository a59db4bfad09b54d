"""What an agent is to do: all of it at the start, and the part that a reload may change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from stateous_contract.reliance import Reliance

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.host import HostSource
from stateous_supervisor.link.frames import Confinement


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a reload may change; everything else needs a restart.

    Args:
        source: starts the hosts from now on.
        tasks, tasks_by_state, timeouts, confinements, drain_timeout_s, fenced: as in `Duty`.
    """

    source: HostSource
    tasks: int
    tasks_by_state: Mapping[str, int]
    timeouts: Mapping[str, float | None]
    confinements: Mapping[str, Confinement]
    drain_timeout_s: float | None
    fenced: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Duty:
    """What this agent is to do.

    Args:
        identity: its name and this process's instance.
        tasks: how many routines run at once.
        tasks_by_state: states with a limit of their own.
        timeouts: by state, in seconds.
        confinements: by state, where a routine runs and within what bounds.
        fenced: states whose routines do not outlive a lease that cannot be proven.
        drain_timeout_s: how long a stop waits for routines; None for ever.
        checksum: reads what the folder's contract was made for; None where it has none.
        reliance: reads what its routines rely on; None where the contract does not say.
        is_strict: whether a file that does not load keeps the agent from starting.
        url, folder, version: only to be shown.
    """

    identity: Identity
    tasks: int
    checksum: Callable[[], str | None]
    tasks_by_state: Mapping[str, int] = field(default_factory=dict)
    timeouts: Mapping[str, float | None] = field(default_factory=dict)
    confinements: Mapping[str, Confinement] = field(default_factory=dict)
    fenced: Collection[str] = ()
    reliance: Callable[[], Reliance | None] = lambda: None
    drain_timeout_s: float | None = None
    is_strict: bool = False
    url: str = ""
    folder: str = ""
    version: str = ""
