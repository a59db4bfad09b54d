"""Any order of starts, claims, reports, events, pauses, cancels, ended leases and timers, and what always holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from control.rules.kitchen import LEASE_S, Kitchen, everything, unchanged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stateous_contract.codes import Code, Refused
from stateous_contract.states import TASK_LIFE, TaskState, TokenStatus

from stateous_control.rules.book import Task, Token

PATHS = (
    "draft",
    "plain",
    "fragile",
    "brittle",
    "patient",
    "deadline",
    "reminder",
    "picky",
    "round",
    "sturdy",
    "proofs",
    "proofs",
    "sprint",
)
EVENTS = {
    "drafted": {"pages": 1},
    "approved": None,
    "returned": {"why": "x"},
    "noted": None,
    "flagged": {"level": 1},
    "answered": None,
    "declined": None,
    "nudge": {"level": 1},
    "picked": {"level": 11},
    "again": None,
    "verdict": {"ok": True},
    "unheard-of": None,
    "timeout": None,
}
ORDINARY = {
    Code.TASK_NOT_HELD,
    Code.ATTEMPT_OVER,
    Code.EVENT_NOT_ALLOWED,
    Code.TOKEN_NOT_ACTIVE,
    Code.INVALID_PAYLOAD,
    Code.INVALID_CONTEXT,
    Code.CHILD_TOKEN,
}
SAID = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["event", "event", "event", "waiting", "failed", "released"]),
        "event": st.sampled_from([*EVENTS, *[""] * 12]),
        "reason": st.sampled_from(["drain", "host_died: 9", "agent_died"]),
        "who": st.sampled_from(["holder", "holder", "holder", None, "other"]),
        "off": st.sampled_from([0, 0, 0, 0, None, -1, 1]),
        "label": st.sampled_from([..., ..., "x", "final", 7]),
        "timer": st.sampled_from([None, None, "noted", "nudge", "zzz"]),
    }
)
NEXT_STATES = {
    state: {goal for (source, _), goal in TASK_LIFE.items() if source is state} for state in TaskState
}


def bare(task: Task) -> str:
    """The name of a task's state in its own workflow."""
    return task.state.rpartition("/")[2]


class Life(RuleBasedStateMachine):
    """One book over its whole life. After each step the promises of the rules are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.kitchen = Kitchen(releases_max=1)
        self.before: dict[int, tuple[TaskState, int, int, int]] = {}
        self.ended: dict[int, Any] = {}
        self.accepted: Counter[tuple[int, int]] = Counter()

    def attempt(self, step: Any, /, *args: Any, **parts: Any) -> bool:
        """Take a step; a refusal has an ordinary code and changes nothing. Say whether the step was taken."""
        before = everything(self.kitchen.book)
        try:
            step(*args, **parts)
        except Refused as refused:
            code = refused.code
        else:
            return True
        assert code in ORDINARY
        assert unchanged(self.kitchen.book, before), "a refused step changed something"
        return False

    def tops(self) -> list[Token]:
        """The tokens that are nobody's children."""
        return [token for token in self.kitchen.book.tokens.values() if token.parent is None]

    def started(self) -> list[Token]:
        """The tokens that began at the start."""
        return list(self.kitchen.book.tokens.values())

    def pick_token(self, number: int) -> Token:
        tokens = list(self.kitchen.book.tokens.values())
        live = [token for token in tokens if not token.status.is_final]
        chosen = live if live and number % 4 else tokens
        return chosen[number % len(chosen)]

    def pick_task(self, number: int) -> Task:
        """A live task as a rule, at times one that is over."""
        tasks = list(self.kitchen.book.tasks.values())
        live = [task for task in tasks if not task.current_state.is_final]
        chosen = live if live and number % 5 else tasks
        return chosen[number % len(chosen)]

    @initialize(path=st.sampled_from(PATHS))
    def begin(self, path: str) -> None:
        self.kitchen.start("t0", path=path)

    @precondition(lambda self: len(self.tops()) < 3)
    @rule(path=st.sampled_from(PATHS), label=st.sampled_from([None, "final", "brave"]))
    def start(self, path: str, label: str | None) -> None:
        self.kitchen.start(f"t{len(self.kitchen.book.tokens)}", path=path, label=label)

    @rule(who=st.sampled_from(["s", "t"]))
    def claim(self, who: str) -> None:
        now = self.kitchen.book.now
        for task in self.kitchen.book.tasks.values():
            if task.ready_at is not None and task.ready_at <= now:
                assert self.kitchen.token_of(task).status is TokenStatus.ACTIVE, (
                    "handed out while paused (S3-08)"
                )
                self.kitchen.claim(task, who)

    @rule(number=st.integers(0, 50), said=SAID, is_repeated=st.booleans())
    def report(self, number: int, said: dict[str, Any], is_repeated: bool) -> None:
        if not self.kitchen.book.tasks:
            return
        task = self.pick_task(number)
        emits = self.kitchen.book.machine(self.kitchen.token_of(task)).states[bare(task)].emits
        kind, event, timer = said["kind"], said["event"] or emits[number % len(emits)], said["timer"]
        parts: dict[str, Any] = {
            "supervisor": task.supervisor if said["who"] == "holder" else said["who"],
            "attempt": None if said["off"] is None else task.attempt + said["off"],
            "reason": said["reason"],
            "error": "x",
            "event": event,
            "payload": EVENTS[event] if kind == "event" else None,
            "context": None if said["label"] is ... else {"label": said["label"]},
            "schedules": [{"event": timer, "after": "3s", "payload": EVENTS.get(timer)}] if timer else [],
        }
        attempt, was_reported = task.attempt, task.report_attempt
        count = len(self.kitchen.book.entries)
        if not self.attempt(self.kitchen.report, task, kind, **parts):
            return
        is_new = len(self.kitchen.book.entries) > count
        assert is_new or was_reported == attempt, "nothing happened, though it was no repeat"
        if is_new and parts["supervisor"] is not None:
            self.accepted[task.id, attempt] += 1
        if is_repeated and parts["attempt"] is not None:
            self.repeat(task, kind, parts)

    def repeat(self, task: Task, kind: str, parts: dict[str, Any]) -> None:
        before, count = everything(self.kitchen.book), len(self.kitchen.book.entries)
        self.kitchen.report(task, kind, **parts)
        assert unchanged(self.kitchen.book, before)
        assert len(self.kitchen.book.entries) == count

    @rule(
        number=st.integers(0, 9),
        event=st.sampled_from(list(EVENTS)),
        key=st.sampled_from([None, None, "k", "l"]),
    )
    def fire(self, number: int, event: str, key: str | None) -> None:
        token = self.pick_token(number)
        self.attempt(self.kitchen.fire, token, event, EVENTS[event], key=key)

    @rule(
        number=st.integers(0, 9),
        verb=st.sampled_from(["pause", "pause", "resume", "resume", "resume", "cancel"]),
    )
    def steer(self, number: int, verb: str) -> None:
        self.attempt(getattr(self.kitchen, verb), self.pick_token(number))

    @rule(
        number=st.integers(0, 50),
        what=st.sampled_from(["note", "memory", "delete"]),
        who=st.sampled_from([None, "s"]),
    )
    def write(self, number: int, what: str, who: str | None) -> None:
        if not self.kitchen.book.tasks:
            return
        task = self.pick_task(number)
        parts = {"attempt": task.attempt, "supervisor": who}
        if what == "note":
            self.attempt(self.kitchen.note, task, **parts)
        else:
            self.attempt(self.kitchen.remember, task, "k", 1 if what == "memory" else None, **parts)

    @rule(seconds=st.sampled_from([0.5, 1, 3, LEASE_S + 1]))
    def sweep(self, seconds: float) -> None:
        self.kitchen.pass_time(seconds)
        for task in list(self.kitchen.book.tasks.values()):
            self.kitchen.end_lease(task)
        self.kitchen.fire_due()

    # What always holds.

    @invariant()
    def tasks_move_along_drawn_edges_and_numbers_never_fall(self) -> None:
        """S1-10, S1-11, S3-58. A step may take a task along several edges; a final one along none."""
        for task in self.kitchen.book.tasks.values():
            now = (task.current_state, task.attempt, task.failures, task.generation)
            was = self.before.get(task.id)
            if was is not None:
                assert not was[0].is_final or was == now, "a task that was over has changed"
                assert all(old <= new for old, new in zip(was[1:], now[1:], strict=True))
                assert was[0] is now[0] or was[3] < now[3], "a change that the generation does not tell"
                assert was[0] is now[0] or NEXT_STATES[was[0]], "no edge leads from there"
            assert task.failures <= min(task.attempt, task.retries + 1)
            self.before[task.id] = now

    @invariant()
    def an_ended_token_never_changes(self) -> None:
        for token in self.kitchen.book.tokens.values():
            if not token.status.is_final:
                continue
            now = (token.status, token.state, token.visit, token.context, token.events, token.visits)
            assert self.ended.setdefault(token.id, now) == now
            assert not self.kitchen.book.live_tasks(token)
            assert not self.kitchen.book.timers_of(token)
            assert not self.kitchen.book.held_of(token)
            assert token.id in self.kitchen.book.memory_cleared

    @invariant()
    def a_visit_has_one_task(self) -> None:
        """S3-01, S3-03: and it is alive, unless its outcome waits for the resume."""
        tasks = self.kitchen.book.tasks.values()
        assert all(n == 1 for n in Counter((t.token_id, t.state, t.visit) for t in tasks).values())
        for token in self.kitchen.book.tokens.values():
            live = self.kitchen.book.live_tasks(token)
            assert all((bare(task), task.visit) == (token.state, token.visit) for task in live)
            if self.is_parallel(token):
                assert not live, "a parallel state has no task"
            elif token.status is TokenStatus.ACTIVE:
                assert len(live) == 1, "an active token without a task would stand for ever (S3-05)"
            elif token.status is TokenStatus.PAUSED and not live:
                assert any(held.task_id is not None for held in self.kitchen.book.held_of(token))

    def is_parallel(self, token: Token) -> bool:
        return self.kitchen.book.machine(token).states[token.state].is_parallel

    @invariant()
    def a_family_goes_together(self) -> None:
        """B.6. A child lives only while its parent is in its visit, and that one waits only for children that live."""
        for token in self.kitchen.book.tokens.values():
            if token.parent_id is not None and not token.status.is_final:
                parent = self.kitchen.book.tokens[token.parent_id]
                assert token.is_current
                assert parent.status is token.status, "a pause is the whole family's"
                assert token.name == f"{parent.name}.{parent.state}.{parent.visit}.{token.workflow}"
            if token.status.is_final or not self.is_parallel(token):
                assert self.kitchen.book.children(token) == []
                continue
            state = self.kitchen.book.machine(token).states[token.state]
            children = self.kitchen.book.children(token)
            assert [child.workflow for child in children] == list(state.parallel)
            ended = [child for child in children if child.status.is_final]
            assert len(ended) < (1 if state.join == "any" else len(children)), "nothing would ever join"

    @invariant()
    def a_visit_joins_once_at_most(self) -> None:
        for token in self.tops():
            assert token.events.get("joined", 0) <= token.visits.get("proofs", 0) + token.visits.get(
                "sprint", 0
            )

    @invariant()
    def the_row_fits_the_state(self) -> None:
        for task in self.kitchen.book.tasks.values():
            is_queued = task.current_state is TaskState.PENDING
            is_paused = self.kitchen.token_of(task).status is TokenStatus.PAUSED
            assert (task.ready_at is not None) == (is_queued and not is_paused)
            assert (task.held_ready_at is not None) == (is_queued and is_paused)
            assert (task.lease_until is not None) == (task.current_state is TaskState.RUNNING)
            assert task.current_state is not TaskState.PARKED or task.reason, (
                "parked without a reason (S1-24)"
            )

    @invariant()
    def only_a_pause_holds_events(self) -> None:
        for token in self.kitchen.book.tokens.values():
            assert (token.paused_at is not None) == (token.status is TokenStatus.PAUSED)
            assert not self.kitchen.book.held_of(token) or token.status is TokenStatus.PAUSED
        for top in self.tops():
            family = self.kitchen.book.family(top)
            arrivals = sorted(held.arrival for token in family for held in self.kitchen.book.held_of(token))
            assert arrivals == list(range(1, len(arrivals) + 1)), "a family counts together"

    @invariant()
    def one_outcome_is_accepted_for_an_attempt(self) -> None:
        assert all(count == 1 for count in self.accepted.values())

    @invariant()
    def histories_have_no_gaps_and_agree_with_the_rows(self) -> None:
        """S1-106. Each visit has one task and ends by one move, so a token moves once for each task that is done."""
        for token in self.started():
            entries = self.kitchen.entries(token)
            assert [entry.seq for entry in entries] == list(range(1, token.seq + 1))
            kinds = Counter(entry.kind for entry in entries)
            mine = [task for task in self.kitchen.book.tasks.values() if task.token_id == token.id]
            states = Counter(task.current_state for task in mine)
            assert kinds["task_done"] == states[TaskState.COMPLETED]
            assert kinds["task_cancelled"] == states[TaskState.CANCELLED]
            together = sum(token.visits.get(state, 0) for state in ("proofs", "sprint"))
            assert kinds["task_queued"] == len(mine) == kinds["entered"] - together
            assert kinds["entered"] == sum(token.visits.values())
            assert kinds["branch_started"] == 2 * together
            assert kinds["task_claimed"] == sum(task.attempt for task in mine)
            assert kinds["task_failed"] == sum(task.failures for task in mine)
            assert kinds["task_retrying"] + states[TaskState.FAILED] == kinds["task_failed"]
            assert kinds["event_accepted"] == sum(token.events.values())
            assert kinds["event_accepted"] == kinds["entered"] + kinds["completed"]


# One machine, two lengths: a short one for every run, a long one for `make prove`.
_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


LIVES = [
    pytest.param(
        settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=_QUIET),
        id="short",
        marks=pytest.mark.timeout(300),
    ),
    pytest.param(
        settings(max_examples=3_000, stateful_step_count=80, deadline=None, suppress_health_check=_QUIET),
        id="long",
        marks=pytest.mark.prove,
    ),
]  # a busy machine makes minutes of the seconds that the short one takes


@pytest.mark.parametrize("lives", LIVES)
def test_what_always_holds_holds_in_any_order(lives: settings) -> None:
    run_state_machine_as_test(Life, settings=lives)
