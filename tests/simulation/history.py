"""What happened in one simulated life, as it is needed to judge it and to show it. It knows no agent and no network."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Key = tuple[int, int]


class Line(NamedTuple):
    """One thing that happened. `who` is a process of an agent ("box/3") or "plane"; `key` names task and attempt."""

    at: float
    who: str
    what: str
    key: Key | None
    more: Any


class Broken(Exception):
    """The history does not satisfy a rule. `rule` names it (`A-11`)."""

    def __init__(self, rule: str, sentence: str, key: Key | None = None, who: str = "") -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule = rule
        self.key = key
        self.who = who


@dataclass
class Process:
    """One process of an agent, from its start to its end, as seen from outside."""

    name: str
    box: str
    instance: str
    slots: int
    limits: dict[str, int]
    lanes: int
    started_at: float
    old_ids: set[str]
    ended_at: float | None = None
    stop_at: float | None = None
    reached_at: float | None = None
    open_ids: set[str] = field(default_factory=set)
    closed_ids: set[str] = field(default_factory=set)
    in_flight: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)
    slot_of: set[Key] = field(default_factory=set)
    state_of: dict[Key, str] = field(default_factory=dict)
    held_since: dict[Key, float] = field(default_factory=dict)
    beat_at: dict[Key, float] = field(default_factory=dict)
    over: set[Key] = field(default_factory=set)
    over_at: float = -1.0
    woke_at: float = -1.0
    beat_by: float | None = None
    running: set[Key] = field(default_factory=set)


class History:
    """Lines in order, and the sets that the rules are about.

    Args:
        now: the simulated clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.lines: list[Line] = []
        self.faults: Counter[str] = Counter()
        self.accepted: dict[Key, list[tuple[str, str | None]]] = defaultdict(list)
        self.told: dict[Key, list[str]] = defaultdict(list)
        self.made: dict[Key, list[str]] = defaultdict(list)
        self.returned: dict[Key, tuple[str, str | None]] = {}
        self.on_disk: dict[Key, list[tuple[str, str | None]]] = defaultdict(list)
        self.kept_bodies: dict[Key, set[bytes]] = defaultdict(set)
        self.sent_bodies: dict[tuple[str, str, str], bytes] = {}
        self.confirmed: list[tuple[Key, tuple[str, str | None]]] = []
        self.refused: set[tuple[Key, tuple[str, str | None]]] = set()
        self.granted_wrongly: set[Key] = set()
        self.ran: set[Key] = set()
        self.broken: list[Broken] = []
        self.beats = self.requests = 0

    def add(self, who: str, what: str, key: Key | None = None, more: Any = None) -> None:
        self.lines.append(Line(self.now(), who, what, key, more))

    def fault(self, name: str, who: str = "", more: Any = None) -> None:
        self.faults[name] += 1
        self.add(who, f"! {name}", None, more)

    def blame(self, rule: str, sentence: str, key: Key | None = None, who: str = "") -> None:
        """Note that a rule is broken."""
        self.broken.append(Broken(rule, sentence, key, who))
        self.add(who, f"BREAKS {rule}: {sentence}", key)

    def short(self, broken: Broken | None, count: int = 60) -> str:
        """Return the last lines, of that attempt and that process where the fault names one."""
        key = broken.key if broken else None
        chosen = [
            line
            for line in self.lines
            if key is None or line.key == key or (line.key and line.key[0] == key[0])
        ]
        near = self.lines[-12:] if key is not None else []
        wanted = sorted(set(map(self.lines.index, chosen[-count:] + near)))
        return "\n".join(_shown(self.lines[number]) for number in wanted)


def _shown(line: Line) -> str:
    key = "" if line.key is None else f" task {line.key[0]}#{line.key[1]}"
    more = "" if line.more is None else f" {line.more}"
    return f"{line.at:12.3f} {line.who:10} {line.what}{key}{more}"[:220]
