"""The lives of tokens and tasks over dicts: the half of `fakes` that knows no HTTP. Shares no line with the control plane.

It has no loop: `tick` does whatever is due by `clock`, whenever somebody asks something.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema_rs
from stateous_contract import limits
from stateous_contract.codes import Code, Refused

Json = dict[str, Any]
WORKFLOW = Path(__file__).resolve().parent.parent / "contract/conformance/workflow.json"
OWN_EVENTS = {"__started__", "timeout", "error", "joined"}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass
class Token:
    name: str
    context: Json
    state: str = ""
    status: str = "active"
    visit: int = 0
    entered_at: float = 0.0
    entered_by: Json = field(default_factory=dict)
    visits: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    history: list[Json] = field(default_factory=list)
    timers: list[Json] = field(default_factory=list)
    held: list[Json] = field(default_factory=list)
    arrivals: int = 0
    keys: set[str] = field(default_factory=set)
    memory: dict[tuple[str, str], Any] = field(default_factory=dict)
    paused_at: float = 0.0


@dataclass
class Task:
    id: int
    token: Token
    state: str
    visit: int
    retries: int
    ready_at: float
    status: str = "queued"
    attempt: int = 0
    failures: int = 0
    releases: int = 0
    is_suspect: bool = False
    holder: tuple[str, str | None] = ("", None)
    until: float = 0.0
    reported: str = ""
    cause: str = "lease_ended"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def checked(is_right: Any, code: Code, sentence: str) -> None:
    if not is_right:
        raise Refused(code, sentence)


def is_whole(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value <= limits.TASK_ID_MAX


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth(item) for item in inner), default=0)


def is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(is_finite(item) for item in inner)


def without_parallel(document: Json) -> Json:
    """The same workflow without parallel states, which the fake does not run."""
    gone = {name for name, state in document["states"].items() if state.get("parallel")}
    if not gone:
        return document
    return {
        **{key: value for key, value in document.items() if key != "workflows"},
        "states": {name: state for name, state in document["states"].items() if name not in gone},
        "transitions": [t for t in document["transitions"] if gone.isdisjoint((t["from"], t["to"]))],
    }


class Graph:
    """The workflow document, with guards evaluated by Python itself: it is ours, and this is a test."""

    def __init__(self, document: Json) -> None:
        self.document = document
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        self.checksum = "sha256:" + sha256(text.encode()).hexdigest()

    def fault(self, model: str | None, value: Any) -> str | None:
        """Say what is wrong with `value` as `model`, or None."""
        if not isinstance(value, dict) or not is_finite(value):
            return "not an object of JSON values"
        if model is None:
            return None
        schema = {"$ref": f"#/schemas/{model}", "schemas": self.document["schemas"]}
        error = next(jsonschema_rs.Draft202012Validator(schema).iter_errors(value), None)
        return error.message if error else None

    def payload_fault(self, event: str, payload: Any) -> str | None:
        model = self.document["events"][event].get("payload")
        if model is None and payload:
            return f"{event!r} carries no payload"
        return self.fault(model, payload if payload is not None else {})

    def with_defaults(self, context: Json) -> Json:
        properties = self.document["schemas"][self.document["context"]]["properties"]
        return {k: v["default"] for k, v in properties.items() if "default" in v} | context

    def route(self, token: Token, event: str | None, payload: Any, context: Json) -> str:
        def holds(guard: str) -> bool:
            fields = type("Payload", (), {"__getattr__": lambda _, name: None, **(payload or {})})()
            ctx = type("Context", (dict,), {"__missing__": lambda _, key: None})(context)
            names = {
                "ctx": ctx,
                "payload": fields,
                "count": lambda name: token.events[name] + (name == event),
            }
            return bool(eval(guard, {"__builtins__": {}}, names))

        source = token.state or "__start__"
        edges = [t for t in self.document["transitions"] if t["from"] == source and t.get("on") == event]
        for edge in [t for t in edges if "when" in t and holds(t["when"])] + [
            t for t in edges if "when" not in t
        ]:
            return str(edge["to"])
        raise Refused(Code.EVENT_NOT_ALLOWED, f"no transition for {event!r} from {source!r}")


class Lives:
    """What happens to tokens and tasks, whoever asks. Checks come first, so that a refusal changes nothing."""

    def __init__(self, document: Json | None = None, *, clock: Callable[[], float] = time.time, lease_s: float = 120.0,
                 retry_delay_s: float = 0.0) -> None:  # fmt: skip
        self.graph = Graph(without_parallel(document or json.loads(WORKFLOW.read_text("utf-8"))))
        self.clock, self.lease_s, self.retry_delay_s = clock, lease_s, retry_delay_s
        self.tokens: dict[str, Token] = {}
        self.tasks: dict[int, Task] = {}

    def log(self, token: Token, kind: str, **data: Any) -> None:
        token.history.append(
            {"seq": len(token.history) + 1, "at": stamp(self.clock()), "kind": kind, "data": data}
        )

    def tick(self) -> None:
        """Do what is due: end leases, fire timers."""
        now = self.clock()
        for task in [t for t in self.tasks.values() if t.status == "claimed" and t.until < now]:
            text = f"{task.holder[0]} stopped answering: no heartbeat for {self.lease_s:g} s"
            self.fail(task, text, delay_s=0.0)
        timers = [
            (t["due"], token, t) for token in self.tokens.values() for t in token.timers if t["due"] <= now
        ]
        for _, token, timer in sorted(timers, key=lambda found: found[0]):
            if token.status == "active" and timer in token.timers:
                token.timers.remove(timer)
                self.log(token, "timer_fired", event=timer["event"])
                self.own(token, "timeout") if timer["is_timeout"] else self.try_event(token, timer)

    def try_event(self, token: Token, timer: Json) -> None:
        try:
            target = self.graph.route(token, timer["event"], timer["payload"], token.context)
        except Refused as refused:
            self.log(token, "event_rejected", event=timer["event"], reason=refused.sentence)
        else:
            self.move(token, timer["event"], timer["payload"], target)

    def enter(self, token: Token, state: str) -> None:
        now, definition = self.clock(), self.graph.document["states"][state]
        token.visits[state] += 1
        token.state, token.visit, token.entered_at = state, token.visits[state], now
        self.log(token, "entered", state=state, visit=token.visit)
        task = Task(len(self.tasks) + 1, token, state, token.visit, definition.get("retries", 0), now)
        self.tasks[task.id] = task
        self.log(token, "task_queued", task=task.id, state=state)
        if "timeout" in definition:
            self.set_timer(token, {"event": "timeout", "after": definition["timeout"]}, is_timeout=True)

    def set_timer(self, token: Token, schedule: Json, *, is_timeout: bool = False) -> None:
        after, now = schedule["after"], self.clock()
        due = now + int(after[:-1]) * UNITS[after[-1]]
        found = {"event": schedule["event"], "payload": schedule.get("payload"), "due": due, "set": now}
        token.timers.append({**found, "is_timeout": is_timeout})
        self.log(token, "timer_set", event=schedule["event"], due_at=stamp(due))

    def write(self, token: Token, outcome: Json) -> None:
        if outcome.get("context"):
            token.context |= outcome["context"]
            self.log(token, "context_changed", keys=sorted(outcome["context"]))
        for schedule in outcome.get("schedules") or []:
            self.set_timer(token, schedule)

    def move(self, token: Token, event: str, payload: Any, target: str, *, error: str | None = None) -> None:
        token.events[event] += 1
        self.log(token, "event_accepted", event=event, payload=payload, state=token.state)
        self.end_tasks(token, emitted=event, cause="token_left")
        token.timers.clear()
        extras = {"payload": payload, "error": error}
        token.entered_by = {"name": event, **{k: v for k, v in extras.items() if v is not None}}
        self.finish(token, "completed") if target == "__end__" else self.enter(token, target)

    def end_tasks(self, token: Token, *, emitted: str | None = None, cause: str) -> None:
        for task in [
            t
            for t in self.tasks.values()
            if t.token is token and t.status in ("queued", "claimed", "waiting")
        ]:
            is_emitted = emitted in self.graph.document["states"][task.state]["emits"]
            task.status = "done" if is_emitted and task.status != "queued" else "cancelled"
            task.cause = cause
            self.log(token, f"task_{task.status}", task=task.id)

    def finish(self, token: Token, status: str, **data: Any) -> None:
        self.end_tasks(token, cause="cancelled" if status == "cancelled" else "token_left")
        token.timers.clear()
        token.memory.clear()
        token.status = status
        self.log(token, status, **data)

    def own(self, token: Token, event: str, error: str | None = None) -> None:
        try:
            target = self.graph.route(token, event, None, token.context)
        except Refused as refused:
            self.finish(token, "failed", reason=f"{error or event}: {refused.sentence}")
        else:
            self.move(token, event, None, target, error=error)

    def fail(self, task: Task, error: str, *, delay_s: float) -> None:
        token = task.token
        task.failures += 1
        self.log(token, "task_failed", task=task.id, error=error or "the attempt failed and said no more")
        if task.failures <= task.retries:
            task.status, task.ready_at, task.cause = "queued", self.clock() + delay_s, "lease_ended"
            self.log(token, "task_retrying", task=task.id, attempt=task.attempt + 1)
            token.timers = [timer for timer in token.timers if timer["is_timeout"]]
            return
        task.status = "failed"
        if token.status == "paused":
            self.hold(token, "error", None, task=task, error=error)
        else:
            self.own(token, "error", error)

    def release(self, task: Task, reason: str) -> None:
        kind = reason.partition(":")[0]
        if kind in ("host_died", "agent_died"):
            task.releases += 1
            task.is_suspect = kind == "host_died"
            if task.releases > limits.RELEASES_MAX:
                self.fail(task, reason, delay_s=0.0)
                return
        task.status, task.ready_at, task.cause = "queued", self.clock(), "lease_ended"
        self.log(task.token, "task_released", task=task.id, attempt=task.attempt, reason=reason)

    def hold(self, token: Token, event: str, payload: Any, *, task: Task | None = None, outcome: Json | None = None,
             error: str | None = None) -> None:  # fmt: skip
        token.arrivals += 1
        at = {"state": task.state, "visit": task.visit, "task": task.id} if task else {}
        kept = {k: v for k, v in (outcome or {}).items() if k in ("context", "schedules") and v}
        told = {"event": event, "payload": payload, **at, "arrival": token.arrivals, **kept}
        token.held.append({**told, "error": error})
        self.log(token, "event_deferred", **told)

    def replay(self, token: Token, held: Json) -> None:
        merged = token.context | held.get("context", {})
        try:
            checked(token.status == "active", Code.TOKEN_NOT_ACTIVE, f"the token is {token.status}")
            is_here = "visit" not in held or (held["state"], held["visit"]) == (token.state, token.visit)
            checked(is_here, Code.EVENT_NOT_ALLOWED, "the token has left that visit")
            target = self.graph.route(token, held["event"], held["payload"], merged)
        except Refused as refused:
            self.log(token, "event_dropped", event=held["event"], reason=refused.sentence)
            if held["event"] == "error" and token.status == "active":
                self.finish(token, "failed", reason=refused.sentence)
            return
        self.log(token, "event_replayed", event=held["event"])
        self.write(token, held)
        self.move(token, held["event"], held["payload"], target, error=held["error"])
