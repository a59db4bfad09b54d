"""What each endpoint of the fake control plane checks and does. The half of `fakes` between HTTP and the lives."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import anyio
from fake_lives import OWN_EVENTS, Json, Lives, Task, Token, checked, depth, is_finite, is_whole, stamp
from stateous_contract import limits
from stateous_contract.codes import Code, Refused

OFFERED = ("wait", "batch", "release")
"""What the fake can do: less than the real one lists."""


def matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def parsed(content: bytes) -> Json:
    """Read a request body as the agreement says: strictly JSON, an object, not too large or deep."""

    def never(literal: str) -> None:
        raise ValueError(literal)

    checked(len(content) <= limits.BODY_BYTES_MAX, Code.BODY_TOO_LARGE, "the body is larger than 1 MiB")
    try:
        value = json.loads(content, parse_constant=never) if content.strip() else {}
        text = json.dumps(value, ensure_ascii=False) if b"\\u" in content else ""
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Refused(Code.BAD_REQUEST, f"the body is not JSON: {error}") from None
    checked("\\u0000" not in text, Code.BAD_REQUEST, "the body has a NUL in a text")
    checked(depth(value) <= limits.DEPTH_MAX, Code.BAD_REQUEST, "the body is nested more than 64 levels deep")
    checked(isinstance(value, dict), Code.INVALID_BODY, "the body is not an object")
    return dict(value)


class Requests(Lives):
    """Each method takes what the path and the body say, and returns a body, or a status with one."""

    def __init__(self, document: Json | None = None, *, features: tuple[str, ...] = OFFERED, clock: Callable[[], float] = time.time,
                 lease_s: float = 120.0, heartbeat_s: float = 30.0, retry_delay_s: float = 0.0) -> None:  # fmt: skip
        super().__init__(document, clock=clock, lease_s=lease_s, retry_delay_s=retry_delay_s)
        self.features, self.heartbeat_s = features, heartbeat_s
        self.stopping = False
        self._remembered: dict[tuple[str, str | None], dict[str, list[tuple[int, int]]]] = {}
        self._waiting: dict[tuple[str, str | None, str], anyio.Event] = {}
        self._withdrawn: set[tuple[str, str | None, str]] = set()
        self._changed = anyio.Event()

    def _health(self, query: Json) -> Json:
        told: Json = {"workflow": self.graph.document["workflow"], "checksum": self.graph.checksum}
        if self.features:
            told |= {
                "protocol": limits.PROTOCOL,
                "features": list(self.features),
                "limits": {
                    "body_bytes_max": limits.BODY_BYTES_MAX,
                    "batch_bytes_max": limits.BATCH_BYTES_MAX,
                    "depth_max": limits.DEPTH_MAX,
                    "claim_max": limits.CLAIM_MAX,
                    "heartbeat_max": limits.HEARTBEAT_MAX,
                    "messages_max": limits.MESSAGES_MAX,
                    "wait_s_max": limits.WAIT_S_MAX,
                },
                "lease_s": self.lease_s,
                "heartbeat_s": self.heartbeat_s,
            }
        return told

    def _workflow(self, query: Json) -> Json:
        return self.graph.document

    def _view(self, token: Token) -> Json:
        return {
            "token": token.name,
            "state": token.state,
            "status": token.status,
            "visit": token.visit,
            "context": token.context,
            "entered_at": stamp(token.entered_at),
        }

    def _token(self, name: str) -> Token:
        checked(name in self.tokens, Code.TOKEN_NOT_FOUND, f"there is no token {name!r}")
        return self.tokens[name]

    def _start(self, body: Json) -> Any:
        name: Any = body.get("token")
        context = body.get("context")
        is_name = isinstance(name, str) and re.fullmatch(limits.TOKEN_PATTERN, name)
        checked(is_name, Code.INVALID_TOKEN_ID, f"{name!r} is not a token id")
        checked(context is None or isinstance(context, dict), Code.INVALID_CONTEXT, "a context is an object")
        if name in self.tokens:
            return 200, self._view(self.tokens[name])
        is_other = any(name.lower() == other.lower() for other in self.tokens)
        checked(not is_other, Code.INVALID_TOKEN_ID, f"{name!r} exists in another spelling")
        token = Token(name, self.graph.with_defaults(context or {}))
        fault = self.graph.fault(self.graph.document["context"], token.context)
        checked(fault is None, Code.INVALID_CONTEXT, str(fault))
        state = self.graph.route(token, None, None, token.context)
        self.tokens[name] = token
        self.log(token, "started", context=dict(token.context))
        self.log(token, "event_accepted", event="__started__", payload=None, state="__start__")
        token.entered_by = {"name": "__started__"}
        self.enter(token, state)
        return 201, self._view(token)

    def _show(self, name: str, query: Json) -> Json:
        return self._view(self._token(name))

    def _history(self, name: str, query: Json) -> list[Json]:
        return self._token(name).history

    def _list_tokens(self, query: Json) -> list[Json]:
        status, limit, parent = query.get("status"), query.get("limit", "100"), query.get("parent")
        statuses = {None, "active", "paused", "completed", "failed", "cancelled"}
        checked(status in statuses, Code.INVALID_ARGUMENT, f"'status' is {status!r}")
        is_limit = limit.isdecimal() and 1 <= int(limit) <= limits.LIST_MAX
        checked(is_limit, Code.INVALID_ARGUMENT, f"'limit' is {limit!r}")
        checked(parent is None or 1 <= len(parent) <= 128, Code.INVALID_ARGUMENT, "'parent' is a token id")
        found = [t for t in self.tokens.values() if status in (None, t.status) and parent is None]
        return [self._view(t) for t in sorted(found, key=lambda t: (-t.entered_at, t.name))][: int(limit)]

    def _fire(self, name: str, event: str, body: Json, headers: dict[str, str]) -> Json:
        payload, key = body.get("payload"), headers.get("idempotency-key")
        checked(payload is None or isinstance(payload, dict), Code.INVALID_PAYLOAD, "a payload is an object")
        is_key = key is None or (1 <= len(key) <= limits.IDEMPOTENCY_KEY_CHARS_MAX and key.isprintable())
        checked(is_key, Code.INVALID_PAYLOAD, "a key has 1 to 256 characters")
        token = self._token(name)
        if key in token.keys:
            return {"duplicate": True, "token": self._view(token)}
        self._fire_checked(token, event, payload)
        token.keys |= {key} if key else set()
        return self._view(token)

    def _fire_checked(self, token: Token, event: str, payload: Any) -> None:
        try:
            is_live = token.status in ("active", "paused")
            checked(
                is_live, Code.TOKEN_NOT_ACTIVE, f"token {token.name!r} is {token.status}; it takes no events"
            )
            is_ours = event not in OWN_EVENTS and event in self.graph.document["events"]
            checked(is_ours, Code.EVENT_NOT_ALLOWED, f"nobody fires {event!r}")
            fault = self.graph.payload_fault(event, payload)
            checked(fault is None, Code.INVALID_PAYLOAD, str(fault))
            if token.status == "paused":
                self.hold(token, event, payload)
            else:
                self.move(token, event, payload, self.graph.route(token, event, payload, token.context))
        except Refused as refused:
            if refused.code.status == 409:
                self.log(token, "event_rejected", event=event, reason=refused.sentence)
            raise

    def _steer(self, name: str, action: str, query: Json) -> Json:
        token = self._token(name)
        allowed = {"pause": ["active"], "resume": ["paused"], "cancel": ["active", "paused"]}[action]
        checked(token.status in allowed, Code.TOKEN_NOT_ACTIVE, f"token {name!r} is {token.status}")
        if action == "pause":
            token.status, token.paused_at = "paused", self.clock()
            self.log(token, "paused")
        elif action == "resume":
            self._resume(token)
        else:
            for held in token.held:
                self.log(token, "event_dropped", event=held["event"], reason="the token was cancelled")
            token.held.clear()
            self.finish(token, "cancelled")
        return self._view(token)

    def _resume(self, token: Token) -> None:
        now = self.clock()
        for timer in token.timers:
            timer["due"] += now - max(token.paused_at, timer["set"])
        token.status = "active"
        self.log(token, "resumed")
        held, token.held = token.held, []
        for one in held:
            self.replay(token, one)

    # Work.

    def look_s(self) -> float:
        """Return how soon a waiting claim looks at the clock again, where nothing changes."""
        return 0.25

    def _holder(self, body: Json) -> tuple[str, str | None]:
        supervisor, instance = body.get("supervisor"), body.get("instance")
        is_name = isinstance(supervisor, str) and 1 <= len(supervisor) <= limits.SUPERVISOR_CHARS_MAX
        checked(is_name, Code.INVALID_ARGUMENT, "'supervisor' has 1 to 256 characters")
        is_instance = instance is None or matches(limits.INSTANCE_PATTERN, instance)
        checked(is_instance, Code.INVALID_ARGUMENT, f"'instance' is {instance!r}")
        return str(supervisor), instance

    def _holds(self, task: Task, holder: tuple[str, str | None]) -> bool:
        same = task.holder[0] == holder[0] and (holder[1] is None or task.holder[1] == holder[1])
        return task.status == "claimed" and same

    async def _claim(self, body: Json, receive: Any) -> tuple[int, Any]:
        holder = self._claim_checked(body)
        request = body.get("request")
        place = (*holder, request or "")
        if request is not None and place in self._waiting:
            self._waiting.pop(place).set()
        if body.get("withdraw"):
            self._withdrawn.add(place)
            self._withdraw(holder, request)
            return 204, None
        leaves = anyio.Event()
        self._waiting |= {place: leaves} if request is not None else {}
        granted = self._repeated(holder, request) or await self._waited(body, holder, leaves, receive)
        if self._waiting.get(place) is leaves:
            del self._waiting[place]
        if place in self._withdrawn:  # it went away between what it got and its being remembered
            for task in granted:
                self.release(task, "not_started")
            granted = []
        if request is not None and (granted or not leaves.is_set()):
            remembered = self._remembered.setdefault(holder, {})
            if holder[1] is None:
                remembered.clear()
            remembered[request] = [(task.id, task.attempt) for task in granted]
        grants = [self._grant(task) for task in granted]
        return (204, None) if not grants else (200, {"tasks": grants} if body.get("max") else grants[0])

    def _claim_checked(self, body: Json) -> tuple[str, str | None]:
        holder, request = self._holder(body), body.get("request")
        states: Any = body.get("states")
        checked(isinstance(states, list), Code.INVALID_BODY, "'states' is a list of state names")
        names = [s for s in states if isinstance(s, str) and 1 <= len(s) <= limits.STATE_CHARS_MAX]
        checked(len(names) == len(states), Code.INVALID_BODY, "a state's name has 1 to 129 characters")
        checked(len(states) <= limits.STATES_MAX, Code.INVALID_ARGUMENT, "'states' has at most 1000 names")
        is_request = request is None or matches(limits.REQUEST_PATTERN, request)
        checked(is_request, Code.INVALID_ARGUMENT, f"'request' is {request!r}")
        checked(body.get("max") is None or is_whole(body["max"]), Code.INVALID_ARGUMENT, "'max' is 1 or more")
        by_state = (body.get("max_by_state") or {}).values()
        checked(all(is_whole(n, 0) for n in by_state), Code.INVALID_ARGUMENT, "'max_by_state' counts tasks")
        wait = body.get("wait") or 0
        is_wait = type(wait) in (int, float) and wait >= 0
        checked(is_wait, Code.INVALID_ARGUMENT, f"'wait' is {wait!r}")
        return holder

    def _withdraw(self, holder: tuple[str, str | None], request: str | None) -> None:
        for task in self._repeated(holder, request):
            self.release(task, "not_started")

    def _repeated(self, holder: tuple[str, str | None], request: str | None) -> list[Task]:
        """Return what this request id brought and is still held, with its lease renewed."""
        pairs = self._remembered.get(holder, {}).get(request or "", [])
        found = [self.tasks[number] for number, attempt in pairs if self.tasks[number].attempt == attempt]
        held = [task for task in found if self._holds(task, holder) and task.until >= self.clock()]
        for task in held:
            task.until = self.clock() + self.lease_s
        return held

    async def _waited(
        self, body: Json, holder: tuple[str, str | None], leaves: anyio.Event, receive: Any
    ) -> list[Task]:
        wait_s = min(body.get("wait") or 0, limits.WAIT_S_MAX) if "wait" in self.features else 0
        if not wait_s:
            return self._picked(body, holder)

        async def hang_up() -> None:
            await receive()
            leaves.set()

        async def watch() -> None:
            await leaves.wait()
            self._changed.set()

        granted: list[Task] = []
        end = anyio.current_time() + wait_s
        async with anyio.create_task_group() as group:
            group.start_soon(hang_up)
            group.start_soon(watch)
            while not granted and not leaves.is_set() and not self.stopping and anyio.current_time() < end:
                granted = self._picked(body, holder)
                changed = self._changed
                with anyio.move_on_after(0 if granted else min(end - anyio.current_time(), self.look_s())):
                    await changed.wait()
                self.tick()
            group.cancel_scope.cancel()
        return granted

    def _picked(self, body: Json, holder: tuple[str, str | None]) -> list[Task]:
        now, left = self.clock(), dict(body.get("max_by_state") or {})
        ready = [t for t in self.tasks.values() if t.status == "queued" and t.ready_at <= now]
        picked: list[Task] = []
        for task in sorted(ready, key=lambda t: (t.ready_at, t.id)):
            is_served = (
                task.state in body["states"] and task.token.status == "active" and left.get(task.state, 1) > 0
            )
            if is_served and len(picked) < (body.get("max") or 1):
                picked.append(task)
                left |= {task.state: left[task.state] - 1} if task.state in left else {}
        for task in picked:
            task.status, task.holder, task.until = "claimed", holder, now + self.lease_s
            task.attempt += 1
            self.log(task.token, "task_claimed", task=task.id, supervisor=holder[0], attempt=task.attempt)
        return picked

    def _grant(self, task: Task) -> Json:
        token = task.token
        memory = {key: value for (state, key), value in token.memory.items() if state == task.state}
        told: Json = {
            "task": task.id,
            "token": token.name,
            "state": task.state,
            "visit": task.visit,
            "attempt": task.attempt,
        }
        told |= {"context": token.context, "memory": memory, "entered_by": dict(token.entered_by)}
        if self.features:
            return told | {"lease_s": self.lease_s, **({"suspect": True} if task.is_suspect else {})}
        told["entered_by"].pop("error", None)
        return told

    def _heartbeat(self, body: Json) -> Json:
        holder, attempts = self._holder(body), body.get("attempts") or {}
        numbers: Any = body.get("tasks")
        is_list = isinstance(numbers, list) and all(is_whole(n) for n in numbers)
        checked(is_list, Code.INVALID_BODY, "'tasks' is a list of task ids")
        checked(len(numbers) <= limits.HEARTBEAT_MAX, Code.INVALID_ARGUMENT, "'tasks' has at most 1000 ids")
        causes: dict[str, str] = {}
        for number in sorted(set(numbers)):
            task = self.tasks.get(number)
            if task is None:
                causes[str(number)] = "not_found"
            elif attempts.get(str(number), task.attempt) != task.attempt:
                causes[str(number)] = "attempt_over"
            elif not self._holds(task, holder):
                causes[str(number)] = task.cause
            else:
                task.until = self.clock() + self.lease_s
        lost = [int(number) for number in causes]
        return {"lost": lost, **({"causes": causes} if causes and self.features else {})}

    def _task(self, number: str | int, attempt: Any) -> Task:
        task = self.tasks.get(int(number))
        if task is None:
            raise Refused(Code.TASK_NOT_FOUND, f"there is no task {number}")
        sentence = f"task {number} is at attempt {task.attempt}, not attempt {attempt}"
        checked(attempt is None or attempt >= task.attempt, Code.ATTEMPT_OVER, sentence)
        checked(attempt is None or attempt <= task.attempt, Code.TASK_NOT_HELD, sentence)
        return task

    def _said(self, number: str | int, body: Json, holder: tuple[str, str | None] | None) -> Task:
        """Check what a note and a memory write have in common; `holder` is None for the baseline's own endpoints."""
        attempt = body.get("attempt")
        checked(attempt is None or is_whole(attempt), Code.INVALID_ARGUMENT, "'attempt' is 1 or more")
        task = self._task(number, attempt)
        is_open = task.status in ("claimed", "waiting") and (holder is None or self._holds(task, holder))
        checked(is_open, Code.TASK_NOT_HELD, f"task {number} is {task.status}")
        return task

    def _note(
        self, number: str, body: Json, holder: tuple[str, str | None] | None = None
    ) -> tuple[int, None]:
        text = body["text"].strip() if isinstance(body.get("text"), str) else ""
        checked(
            1 <= len(text) <= limits.NOTE_CHARS_MAX, Code.INVALID_PAYLOAD, "a note has 1 to 500 characters"
        )
        task = self._said(number, body, holder)
        self.log(task.token, "note", task=task.id, text=text)
        return 204, None

    def _memory(
        self, number: str, body: Json, holder: tuple[str, str | None] | None = None
    ) -> tuple[int, None]:
        key = body.get("key")
        is_key = isinstance(key, str) and 1 <= len(key) <= limits.MEMORY_KEY_CHARS_MAX
        checked(is_key, Code.INVALID_PAYLOAD, "'key' has 1 to 128 characters")
        checked("value" in body, Code.INVALID_BODY, "memory needs a 'value'")
        checked(is_finite(body["value"]), Code.INVALID_PAYLOAD, "'value' is no JSON")
        task = self._said(number, body, holder)
        memory, place = task.token.memory, (task.state, str(key))
        if body["value"] is not None:
            memory[place] = body["value"]
            self.log(task.token, "memory_set", state=task.state, memory_key=key)
        elif memory.pop(place, None) is not None:
            self.log(task.token, "memory_deleted", state=task.state, memory_key=key)
        return 204, None
