"""How the fake control plane takes reports, alone and many at a time."""

from __future__ import annotations

import json
import re
from typing import Any

from fake_lives import Json, Task, checked, is_whole
from fake_requests import Requests
from stateous_contract import limits
from stateous_contract.codes import Code, Refused

REPORT_KEYS = ("kind", "event", "error", "payload", "context", "schedules", "reason", "supervisor")


class Reports(Requests):
    """Checks come first, in the order that the agreement names; then one change."""

    def _report(self, number: str, body: Json) -> Json:
        outcome = self._outcome_checked(body)
        attempt, supervisor = body.get("attempt"), body.get("supervisor")
        holder = self._holder(body) if supervisor is not None else None
        task = self._task(number, attempt)
        said = {k: v for k, v in body.items() if k in REPORT_KEYS and v not in (None, {}, [])}
        digest = json.dumps([task.attempt, said], sort_keys=True)
        if holder and attempt is not None and task.reported == digest and self.features:
            return self._view(task.token)
        self._may_report(task, holder, outcome["kind"])
        self._apply(task, outcome)
        task.reported = digest if holder and attempt is not None else ""
        return self._view(task.token)

    def _outcome_checked(self, body: Json) -> Json:
        kind, attempt = body.get("kind"), body.get("attempt")
        kinds = {"event": "event", "waiting": None, "failed": "error", "released": "reason"}
        is_kind = kind in kinds and (kind != "released" or "release" in self.features)
        checked(is_kind, Code.INVALID_BODY, f"an outcome's 'kind' is {kind!r}")
        needed = kinds[str(kind)]
        checked(
            needed is None or isinstance(body.get(needed), str),
            Code.INVALID_BODY,
            f"a {kind!r} needs {needed!r}",
        )
        is_reason = kind != "released" or re.match(
            r"(drain|not_started|agent_died)$|host_died", str(body["reason"])
        )
        checked(is_reason, Code.INVALID_BODY, f"nobody releases for {body.get('reason')!r}")
        for key in ("payload", "context"):
            checked(
                body.get(key) is None or isinstance(body[key], dict),
                Code.INVALID_BODY,
                f"{key!r} is an object",
            )
        checked(attempt is None or is_whole(attempt), Code.INVALID_BODY, "'attempt' is 1 or more")
        schedules = body.get("schedules") or []
        checked(isinstance(schedules, list), Code.INVALID_BODY, "'schedules' is a list")
        for one in schedules:
            is_one = isinstance(one, dict) and isinstance(one.get("event"), str)
            after = one.get("after") if is_one else None
            is_after = isinstance(after, str) and re.fullmatch(limits.DURATION_PATTERN, after)
            checked(is_after, Code.INVALID_BODY, f"a schedule's 'after' is {after!r}")
        return body

    def _may_report(self, task: Task, holder: tuple[str, str | None] | None, kind: str) -> None:
        sentence = f"task {task.id} is {task.status}, held by {task.holder[0]!r}"
        if holder is None:
            checked(kind in ("event", "failed"), Code.TASK_NOT_HELD, "only who holds a task says so")
            checked(task.status in ("claimed", "waiting"), Code.TASK_NOT_HELD, sentence)
        else:
            checked(self._holds(task, holder), Code.TASK_NOT_HELD, sentence)

    def _apply(self, task: Task, outcome: Json) -> None:
        token, kind = task.token, outcome["kind"]
        if kind == "failed":
            self.fail(task, outcome["error"], delay_s=self.retry_delay_s)
            return
        if kind == "released":
            self.release(task, outcome["reason"])
            return
        merged = token.context | (outcome.get("context") or {})
        fault = self.graph.fault(self.graph.document["context"], merged)
        checked(fault is None, Code.INVALID_CONTEXT, str(fault))
        for schedule in outcome.get("schedules") or []:
            self._timer_checked(schedule)
        if kind == "waiting":
            self.write(token, outcome)
            task.status, task.cause = "waiting", "token_left"
            self.log(token, "task_waiting", task=task.id)
            return
        self._emit(task, outcome, merged)

    def _emit(self, task: Task, outcome: Json, merged: Json) -> None:
        token, event, payload = task.token, outcome["event"], outcome.get("payload")
        try:
            is_emitted = event in self.graph.document["states"][task.state]["emits"]
            checked(is_emitted, Code.EVENT_NOT_ALLOWED, f"{task.state!r} may not emit {event!r}")
            fault = self.graph.payload_fault(event, payload)
            checked(fault is None, Code.INVALID_PAYLOAD, str(fault))
            target = self.graph.route(token, event, payload, merged)
        except Refused as refused:
            if refused.code is Code.EVENT_NOT_ALLOWED:
                self.log(token, "event_rejected", event=event, reason=refused.sentence)
            raise
        if token.status == "paused":
            self.hold(token, event, payload, task=task, outcome=outcome)
            task.status = "done"
            self.log(token, "task_done", task=task.id)
            return
        self.write(token, outcome)
        self.move(token, event, payload, target)

    def _timer_checked(self, schedule: Json) -> None:
        event = schedule["event"]
        is_ours = event in self.graph.document["events"]
        checked(is_ours, Code.INVALID_PAYLOAD, f"a timer names {event!r}, which is no event of this workflow")
        fault = self.graph.payload_fault(event, schedule.get("payload"))
        checked(fault is None, Code.INVALID_PAYLOAD, str(fault))

    def _messages(self, body: Json) -> Json:
        holder = self._holder(body)
        messages: Any = body.get("messages")
        checked(holder[1] is not None, Code.INVALID_ARGUMENT, "'instance' is missing")
        is_list = isinstance(messages, list) and all(
            isinstance(m, dict) and is_whole(m.get("task")) for m in messages
        )
        checked(is_list, Code.INVALID_BODY, "'messages' is a list of messages")
        stopped: dict[tuple[int, Any], Json] = {}
        results = []
        for message in messages:
            place = (message["task"], message.get("attempt"))
            result = stopped.get(place) or self._message(message, holder)
            if result["status"] >= 400:
                stopped[place] = result
            results.append(result)
        return {"results": results}

    def _message(self, message: Json, holder: tuple[str, str | None]) -> Json:
        number = message["task"]
        told = {"task": number}
        try:
            if message.get("kind") == "note":
                self._note(number, message, holder)
            elif message.get("kind") == "memory":
                self._memory(number, message, holder)
            else:
                report = message | {
                    "kind": message.get("outcome"),
                    "supervisor": holder[0],
                    "instance": holder[1],
                }
                return told | {"status": 200, "token": self._report(number, report)}
        except Refused as refused:
            return told | {
                "status": refused.code.status,
                "code": refused.code.wire,
                "error": refused.sentence,
            }
        return told | {"status": 204}
