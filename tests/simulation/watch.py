"""What is looked at while it happens, for one process of an agent: each method is called from one of its doors.

A rule that is broken is noted in the history under its number; the life ends there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from stateous_supervisor.agent.outbox import Batch, Envelope
from stateous_supervisor.agent.vigil import IDLE_LOOK_S

from .history import History, Key, Process
from .model import Model

if TYPE_CHECKING:
    from .network import Request

GAP = 1.1
STOPPED_S = 1.0
SOON_S = 0.05
CLAIM, BEAT, MESSAGES = "/tasks/claim", "/tasks/heartbeat", "/tasks/messages"

Said = tuple[str, str | None]


class _Names(msgspec.Struct):
    task: int
    attempt: int


class _Batch(msgspec.Struct):
    messages: list[msgspec.Raw]


_names = msgspec.json.Decoder(_Names)
_batch = msgspec.json.Decoder(_Batch)


class Box:
    """What is on the disk of one box, as the commits of all its processes have left it."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self.grants: set[Key] = set()
        self.messages: dict[int, tuple[Key, str, Said | str]] = {}
        self.unwritten: set[tuple[Key, Said]] = set()
        self.is_full = False


class Watch:
    """Judges one process."""

    def __init__(self, process: Process, box: Box, plane: Model, history: History) -> None:
        self.process = process
        self.name = process.name
        self._box = box
        self._plane = plane
        self._history = history
        for key, kind, _ in box.messages.values():
            if kind == "report":
                process.held_since[key] = history.now()

    def blame(self, rule: str, sentence: str, key: Key | None = None) -> None:
        if self.process.ended_at is None:
            self._history.blame(rule, sentence, key, self.name)

    # The network.

    def sends(self, request: Request) -> None:
        self._history.requests += 1
        path, body = request.path, request.body
        if path == CLAIM:
            self._sends_claim(body)
        elif path == BEAT:
            self._sends_beat(body)
        else:
            for key, said in _reports(path, body):
                self._history.add(self.name, "reports", key, said)
                if said not in self._history.on_disk[key] and (key, said) not in self._box.unwritten:
                    self.blame("A-35", f"{said} was sent and is not on disk", key)
            self._check_bodies(request)

    def _check_bodies(self, request: Request) -> None:
        """What is sent again is byte for byte what was kept, so that its digest is the same (A-37)."""
        if request.path == MESSAGES:
            for raw in _batch.decode(request.content).messages:
                names = _names.decode(raw)
                key = (names.task, names.attempt)
                if bytes(raw) not in self._history.kept_bodies[key]:
                    self.blame("A-37", f"{bytes(raw)!r} was sent and is not what was kept", key)
        elif request.path.endswith("/report"):
            body = request.body
            name = (self.name, request.path, f"{body['attempt']} {body['kind']}")
            if self._history.sent_bodies.setdefault(name, request.content) != request.content:
                self.blame("A-37", f"{request.content!r} was sent and is not what was sent before")

    def _sends_claim(self, body: dict[str, Any]) -> None:
        process, request = self.process, body["request"]
        if body.get("withdraw"):
            process.open_ids.discard(request)
            process.closed_ids.add(request)
            return
        self._history.add(
            self.name, "claims", None, f"{request} max={body.get('max')} wait={body.get('wait')}"
        )
        now = self._history.now()
        if process.stop_at is not None and now > process.stop_at + STOPPED_S:
            self.blame("A-43", f"{request} was claimed {now - process.stop_at:.1f} s after the stop")
        if request not in self._box.claims:
            self.blame("A-11", f"{request} was sent and is not journaled")
        if request in process.closed_ids:
            self.blame("A-11", f"{request} brought something and was sent again")
        if request in process.in_flight:
            self.blame("A-11", f"{request} was sent while it was out")
        if request not in process.open_ids and request not in process.old_ids:
            self._opens(request)
        count = body.get("max") or 1
        asked = count + sum(out for out, _ in process.in_flight.values()) + len(process.slot_of)
        if asked > process.slots:
            self.blame("A-12", f"{asked} tasks held or asked for; there are {process.slots} slots")
        by_state = {state: (body.get("max_by_state") or {}).get(state, count) for state in body["states"]}
        for state in process.limits.keys() & by_state.keys():
            out = by_state[state] + sum(other.get(state, 0) for _, other in process.in_flight.values())
            self._check_limit(state, out, process.slot_of)
        process.in_flight[request] = (count, by_state)

    def _check_limit(self, state: str, asked: int, keys: set[Key]) -> None:
        limit = self.process.limits.get(state)
        held = [key for key in keys if self.process.state_of.get(key) == state]  # as the grant said
        if limit is not None and asked + len(held) > limit:
            self.blame("A-12", f"{asked} asked for and {len(held)} held of {state}; its limit is {limit}")

    def _opens(self, request: str) -> None:
        process = self.process
        process.open_ids.add(request)
        if process.old_ids:
            self.blame("A-11", f"{request} was sent before {sorted(process.old_ids)} of an earlier process")
        if len(process.open_ids) > process.lanes:
            self.blame("A-11", f"{request} is new, and {sorted(process.open_ids)} have no answer")

    def _sends_beat(self, body: dict[str, Any]) -> None:
        process, now = self.process, self._history.now()
        self._history.beats += 1
        self._history.add(self.name, "beats", None, body["tasks"])
        self._check_woken()
        attempts = body.get("attempts", {})
        for key in process.held_since:
            if key[0] in body["tasks"] and key[1] <= attempts.get(str(key[0]), key[1]):
                self._check_gap(key, now)
                process.beat_at[key] = now
        # One that was on its way when the last answer came, or when the box slept (and is repeated on a new
        # connection), says what was held then.
        is_late = now in (process.over_at, process.woke_at)
        if not process.held_since and not self._box.grants and not is_late:
            self.blame("A-27", "a beat was sent while nothing is held")

    def sleeps(self) -> None:
        """The box was suspended and goes on: what is held is beaten for at the agent's next look at its clocks."""
        if self.process.held_since and self.process.reached_at is not None and self.process.beat_by is None:
            self.process.beat_by = self._history.now() + IDLE_LOOK_S + SOON_S

    def _check_woken(self) -> None:
        beat_by, self.process.beat_by = self.process.beat_by, None
        if beat_by is not None and self.process.held_since and self._history.now() > beat_by:
            self.blame("A-33", "no beat was sent at once after the box had slept")

    def look(self) -> None:
        """Some time has passed."""
        now = self._history.now()
        for key in self.process.held_since:
            self._check_gap(key, now)
        if self.process.beat_by is not None and now > self.process.beat_by:
            self._check_woken()

    def _check_gap(self, key: Key, now: float) -> None:
        process = self.process
        reached_at = process.reached_at if process.reached_at is not None else now
        since = max(process.held_since[key], process.beat_at.get(key, 0.0), reached_at)
        if now - since > GAP * self._plane.heartbeat_s:
            self.blame("A-27", f"no beat was tried for {now - since:.1f} s", key)

    def returns(self, request: Request) -> None:
        if request.path == CLAIM:
            self.process.in_flight.pop(request.body["request"], None)

    def hears(self, request: Request, status: int, answer: bytes) -> None:
        """The agent gets an answer."""
        path = request.path
        if path == CLAIM:
            self._hears_claim(request.body, status, answer)
        elif path == "/health":
            if status == 200 and self.process.reached_at is None and "workflow" in _value(answer):
                self.process.reached_at = self._history.now()
        elif path != BEAT:
            self._hears_results(path, request.body, status, answer)

    def _hears_claim(self, body: dict[str, Any], status: int, answer: bytes) -> None:
        request, got = body["request"], _value(answer)
        tasks = got.get("tasks", got if "task" in got else None)
        is_grant = status == 200 and bool(tasks) and isinstance(tasks, (list, dict))
        if not is_grant and status != 204:
            return
        self.process.old_ids.discard(request)
        if is_grant:
            self.process.open_ids.discard(request)
            self.process.closed_ids.add(request)
            self._history.add(self.name, "is granted", None, request)

    def _hears_results(self, path: str, body: Any, status: int, answer: bytes) -> None:
        got = _value(answer)
        sent = list(_reports(path, body))
        if path != MESSAGES:
            statuses = {key: status for key, _ in sent} if got else {}
        else:
            found = got.get("results")
            found = found if isinstance(found, list) else []
            statuses = {
                (m["task"], m["attempt"]): r["status"]
                for m, r in zip(body["messages"], found, strict=False)
                if m["kind"] == "report"
            }
        for key, said in sent:
            if statuses.get(key, 0) >= 400 and ("code" in got or path == MESSAGES):
                self._history.refused.add((key, said))
                self._history.add(self.name, "is refused", key, said)
            elif 0 < statuses.get(key, 0) < 300 and ("token" in got or path == MESSAGES):
                self._history.confirmed.append((key, said))

    # The log.

    def tells(self, event: str, keys: Mapping[str, Any]) -> None:
        process = self.process
        key = (keys["task"], keys["attempt"]) if "task" in keys and "attempt" in keys else None
        if event == "task.claimed":
            assert key is not None
            process.held_since[key] = self._history.now()
            process.slot_of.add(key)
            process.state_of[key] = keys["state"]
        elif event in ("task.finished", "lease.lost") and key is not None:
            process.slot_of.discard(key)
            process.over.add(key)
            process.over_at = self._history.now()
            if key in process.held_since:
                self._check_gap(key, self._history.now())
                del process.held_since[key]
        elif event == "box.suspended":
            process.woke_at = self._history.now()
        elif event == "claim.abandoned":
            process.open_ids.discard(keys["request"])
            process.old_ids.discard(keys["request"])
        elif event == "loop.failed":
            self.blame("A-53", f"the loop {keys['loop']} failed: {keys['traceback']}")
        self._history.add(
            self.name, event, key, keys.get("error") or keys.get("reason") or keys.get("ending")
        )

    # The disk.

    def commits(self, batch: Batch, *, is_written: bool) -> None:
        """The agent's outbox is written, or the disk refuses it."""
        for envelope in batch.messages:
            key, said = (envelope.task, envelope.attempt), said_by(envelope)
            self._history.kept_bodies[key].add(envelope.body)
            if envelope.kind == "report":
                self.process.slot_of.discard(key)
                if not is_written:
                    self._box.unwritten.add((key, said))
        if is_written:
            self._written(batch)

    def _written(self, batch: Batch) -> None:
        box, history = self._box, self._history
        box.claims |= {row.request for row in batch.claims}
        box.claims -= set(batch.claims_over)
        box.grants |= {(row.task, row.attempt) for row in batch.grants}
        for envelope in batch.messages:
            key, said = (envelope.task, envelope.attempt), said_by(envelope)
            box.messages[envelope.id] = (key, envelope.kind, said)
            if envelope.kind == "report":
                history.on_disk[key].append(said)
                history.add(self.name, "keeps", key, said)
                if key not in self.process.over:  # one that an earlier process ran
                    self.process.held_since.setdefault(key, history.now())
        for key in [*batch.grants_over, *batch.attempts_over]:
            box.grants.discard(key)
            if not history.on_disk[key] and not self._plane.is_over(key):
                self.blame("A-46", "a grant was forgotten without an outcome", key)
        over = set(batch.attempts_over)
        gone = [n for n, (key, _, _) in box.messages.items() if key in over] if over else []
        for number in [*batch.messages_over, *gone]:
            if number in box.messages:
                self._check_gone(*box.messages.pop(number))

    def _check_gone(self, key: Key, kind: str, said: Any) -> None:
        history = self._history
        if self._plane.is_over(key) or (key, said) in history.refused:
            return
        if said not in (history.accepted[key] if kind == "report" else history.told[key]):
            self.blame("A-35", f"the {kind} {said} was thrown away undelivered", key)

    # The host.

    def runs(self, key: Key) -> None:
        self._history.add(self.name, "runs", key)
        if key not in self._box.grants:
            self.blame("A-46", "it runs and is not journaled", key)
        if key in self._history.ran - self._history.granted_wrongly:
            self.blame("INV", "its routine was started a second time", key)
        self._history.ran.add(key)
        self.process.running.add(key)
        running = self.process.running & self.process.slot_of
        if len(running) > self.process.slots:
            self.blame("A-12", f"{sorted(running)} run; there are {self.process.slots} slots", key)
        self._check_limit(self._plane.tasks[key[0]].state, 0, running)

    def ends(self) -> None:
        """The process is gone."""
        now = self._history.now()
        for key in self.process.held_since:
            self._check_gap(key, now)
        self.process.ended_at = now


def said_by(envelope: Envelope) -> Any:
    """Return what a message says, as far as the rules are about it."""
    body = json.loads(envelope.body)
    if envelope.kind == "report":
        return (body["outcome"], body.get("event"))
    return body["text"] if envelope.kind == "note" else f"{body['key']}={body['value']}"


def _reports(path: str, body: Any) -> list[tuple[Key, Said]]:
    alone = re.fullmatch(r"/tasks/(\d+)/report", path)
    if alone:
        return [((int(alone[1]), body["attempt"]), (body["kind"], body.get("event")))]
    messages = body.get("messages", []) if path == MESSAGES else []
    return [
        ((m["task"], m["attempt"]), (m["outcome"], m.get("event"))) for m in messages if m["kind"] == "report"
    ]


def _value(answer: bytes) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
