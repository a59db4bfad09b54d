"""A token's history in words, one line an entry. Unknown kinds are shown as they are: a newer server may tell more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stateous_control.cli.digits import written
from stateous_control.cli.screen import clean, coloured

ENDS: Final = {"completed": True, "failed": False, "cancelled": False}
"""The entries that end a token, and whether that is a success."""

_COLOURS: Final = {
    "entered": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "red",
    "task_failed": "red",
    "task_retrying": "yellow",
    "task_released": "yellow",
    "task_expired": "red",
    "question_asked": "yellow",
    "event_rejected": "yellow",
    "event_dropped": "yellow",
    "note": "bold",
}

Data = Mapping[str, Any]


def _because(data: Data) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


_WORDS: Final[dict[str, Callable[[Data], str]]] = {
    "started": lambda _data: "started",
    "event_accepted": lambda data: f"{data['event']} in {_state(data['state'])}",
    "entered": lambda data: (
        f"entered {data['state']}" + (f", visit {data['visit']}" if data["visit"] > 1 else "")
    ),
    "task_queued": lambda data: f"task {data['task']} queued for {data['state']}",
    "task_claimed": lambda data: (
        f"task {data['task']} claimed by {data['supervisor']}, attempt {data['attempt']}"
    ),
    "task_waiting": lambda data: f"task {data['task']} waits for an event",
    "task_done": lambda data: f"task {data['task']} done",
    "task_cancelled": lambda data: f"task {data['task']} cancelled",
    "task_failed": lambda data: f"task {data['task']} failed: {data['error']}",
    "task_retrying": lambda data: f"task {data['task']} is tried again, attempt {data['attempt']}",
    "task_released": lambda data: f"task {data['task']} given back{_because(data)}",
    "pause_requested": lambda data: f"task {data['task']} is to pause after its current step",
    "pause_withdrawn": lambda data: f"task {data['task']} is not to pause any more",
    "task_parked": lambda data: f"task {data['task']} parked{_because(data)}",
    "task_wait_over": lambda data: f"task {data['task']} goes on{_because(data)}",
    "task_resumed": lambda data: f"task {data['task']} resumed",
    "task_expired": lambda data: f"task {data['task']} expired{_because(data)}",
    "question_asked": lambda data: f"question {data['question']} asked: {data['question_key']}",
    "question_answered": lambda data: f"question {data['question']} answered by {data['by']}",
    "timer_set": lambda data: f"timer set: {data['event']} at {_due(data)}",
    "timer_fired": lambda data: f"timer fired: {data['event']}",
    "context_changed": lambda data: f"context changed: {', '.join(data['keys'])}",
    "note": lambda data: f"note: {data['text']}",
    "memory_set": lambda data: f"memory of {data['state']} set: {data['memory_key']}",
    "memory_deleted": lambda data: f"memory of {data['state']} deleted: {data['memory_key']}",
    "event_rejected": lambda data: f"{data['event']} refused{_because(data)}",
    "event_deferred": lambda data: f"{data['event']} held until the resume",
    "event_replayed": lambda data: f"{data['event']} taken up again",
    "event_dropped": lambda data: f"{data['event']} dropped{_because(data)}",
    "paused": lambda _data: "paused",
    "resumed": lambda _data: "resumed",
    "completed": lambda _data: "completed",
    "failed": lambda data: f"failed{_because(data)}",
    "cancelled": lambda data: f"cancelled{_because(data)}",
    "branch_started": lambda data: f"branch {data['workflow']} started: {data['token']}",
}


def told(entry: Mapping[str, Any]) -> str:
    """Return one entry as a line, coloured where stdout shows colours."""
    kind, data = str(entry.get("kind")), entry.get("data") or {}
    try:
        words = _WORDS[kind]({"at": entry.get("at"), **data})
    except (KeyError, TypeError):
        words = f"{kind} {written(data)}"
    place = f"{_time(str(entry.get('at', '')))}  #{entry.get('seq')}"
    return f"{coloured(place.ljust(15), 'faint')}{coloured(clean(words), _COLOURS.get(kind))}"


def token_line(token: Mapping[str, Any]) -> str:
    """Return a token in one line: where it is and what it is."""
    pausing = f", pausing {token['pausing']}" if token.get("pausing") else ""
    return clean(f"{token.get('token')}: {token.get('state')}, {token.get('status')}{pausing}")


def _state(name: str) -> str:
    return {"__start__": "START", "__end__": "END"}.get(name, name)


def _time(stamp: str) -> str:
    """Return the time of day in a timestamp; the wire's are UTC."""
    return clean(stamp)[11:19] or "?"


def _due(timer: Mapping[str, Any]) -> str:
    """Return when a timer is due, with the day where it is not the day on which the timer was set."""
    due_at = timer["due_at"]
    same_day = due_at[:10] == str(timer["at"])[:10]
    return _time(due_at) if same_day else f"{clean(due_at)[:10]} {_time(due_at)}"
