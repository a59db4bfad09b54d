"""A token's history told in lines for people. Pure: entries of the wire in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Tone = Literal["plain", "quiet", "good", "bad", "back"]
VALUE_CHARS_MAX = 60


@dataclass(frozen=True)
class Line:
    """One thing that happened. `at` is the control plane's time."""

    at: datetime
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Story:
    """A history so far. `route` are the states in the order they were entered; `outcome` is None until the end."""

    lines: tuple[Line, ...]
    route: tuple[str, ...]
    outcome: str | None


def tell(entries: Sequence[Mapping[str, Any]]) -> Story:
    """Tell a history, oldest entry first. A longer history begins with the lines of a shorter one."""
    route: list[str] = []
    lines: list[Line] = []
    outcome = None
    for place, entry in enumerate(entries):
        kind, data = entry["kind"], entry["data"]
        if kind == "entered":
            route.append(data["state"])
        if kind in ("completed", "failed", "cancelled"):
            outcome = kind
        at = datetime.fromisoformat(entry["at"])
        lines += [Line(at, text, tone) for text, tone in _told(kind, data, entries[place + 1 :], route)]
    return Story(tuple(lines), tuple(route), outcome)


def _told(
    kind: str, data: Mapping[str, Any], later: Sequence[Mapping[str, Any]], route: Sequence[str]
) -> Iterator[tuple[str, Tone]]:
    if kind == "event_accepted":
        target = _target(later)
        if data["state"] == "__start__":
            yield f"starts in {target}", "plain"
        else:
            tone: Tone = "back" if _is_back(route, data["state"], target) else "plain"
            yield f"{data['state']} → {target}  on {data['event']}{_values(data.get('payload'))}", tone
    elif kind == "task_claimed":
        yield f"{route[-1]} is run by {data['supervisor']}, attempt {data['attempt']}", "quiet"
    elif kind == "note":
        yield f"“{data['text']}”", "quiet"
    elif kind == "task_failed":
        yield f"the attempt failed: {data['error']}", "bad"
    elif kind == "task_retrying":
        yield f"it is tried again as attempt {data['attempt']}", "bad"
    elif kind == "task_released":
        yield "the task was given back", "bad"
    elif kind == "completed":
        yield "completed", "good"
    elif kind in ("failed", "cancelled"):
        yield f"{kind}: {data.get('reason', 'no reason given')}", "bad"


def _is_back(route: Sequence[str], state: str, target: str) -> bool:
    """Whether `target` is a state that the token was in before it first came to `state`."""
    return state in route and target in route[: route.index(state)]


def _target(later: Sequence[Mapping[str, Any]]) -> str:
    """Where an accepted event led: the next state that was entered before another event was accepted."""
    for entry in later:
        if entry["kind"] == "event_accepted":
            break
        if entry["kind"] == "entered":
            return str(entry["data"]["state"])
    return "the end"


def _values(payload: Any) -> str:
    """A payload in a few words: its fields that say something."""
    if not isinstance(payload, Mapping):
        return ""
    said = ", ".join(
        f"{key} {_value(value)}" for key, value in payload.items() if value not in (None, "", [], {})
    )
    return f" ({said})" if said else ""


def _value(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
