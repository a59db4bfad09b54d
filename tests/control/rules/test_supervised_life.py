"""The life of tokens and tasks with questions, pauses, checkpoints, expiry and retries mixed in, in any order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from control.rules import test_life
from control.rules.kitchen import everything, unchanged
from control.rules.supervised import answer, ask, park, retry, store
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from stateous_contract.codes import Code, Refused
from stateous_contract.states import QuestionStatus, TaskState, TokenStatus

from stateous_control.rules import expiry, pausing
from stateous_control.rules.book import Task, Token

ORDINARY = test_life.ORDINARY | {
    Code.STALE_GENERATION,
    Code.TASK_OVER,
    Code.TASK_CANCELLED,
    Code.TASK_WAITS,
    Code.NOT_PARKED,
    Code.ALREADY_RESUMED,
    Code.TOKEN_PAUSED,
    Code.ALREADY_ANSWERED,
    Code.QUESTION_CLOSED,
    Code.ALREADY_RETRIED,
    Code.NOT_RETRYABLE,
    Code.CHILD_TOKEN,
}


class SupervisedLife(test_life.Life):
    """Everything that the life without supervision does, and people's hands on it."""

    def __init__(self) -> None:
        super().__init__()
        self.kitchen.book.question_ids = itertools.count(1)
        self.stood: dict[Any, bytes] = {}

    def attempt(self, step: Any, /, *args: Any, **parts: Any) -> bool:
        before = everything(self.kitchen.book)
        try:
            step(*args, **parts)
        except Refused as refused:
            code = refused.code
        else:
            return True
        assert code in ORDINARY, code
        assert unchanged(self.kitchen.book, before), "a refused step changed something"
        return False

    def started(self) -> list[Token]:
        """A retry goes on in the middle, with the counts of the token before it."""
        return [token for token in self.kitchen.book.tokens.values() if not token.name.startswith("r")]

    def chosen(self, number: int) -> Task | None:
        return self.pick_task(number) if self.kitchen.book.tasks else None

    @rule(who=st.sampled_from(["s", "t"]))
    def claim(self, who: str) -> None:
        now = self.kitchen.book.now
        for task in list(self.kitchen.book.tasks.values()):
            if task.ready_at is not None and task.ready_at <= now:
                assert self.kitchen.token_of(task).status is TokenStatus.ACTIVE
                assert task.pause_requested_at is None, "handed out while a pause is requested (S1-75)"
                self.kitchen.claim(task, who, "i")

    @rule(
        number=st.integers(0, 50),
        occurrence=st.integers(1, 2),
        off=st.sampled_from([0, 0, 0, -1, 1]),
        ttl_s=st.sampled_from([1.0, 1000.0]),
    )
    def ask_people(self, number: int, occurrence: int, off: int, ttl_s: float) -> None:
        task = self.chosen(number)
        if task is not None:
            self.attempt(ask, self.kitchen, task, "k", occurrence, attempt=task.attempt + off, ttl_s=ttl_s)

    @rule(number=st.integers(0, 9), off=st.sampled_from([0, 0, 0, 0, -1]))
    def answer_one(self, number: int, off: int) -> None:
        questions = list(self.kitchen.book.questions.values())
        if questions:
            question = questions[number % len(questions)]
            generation = self.kitchen.book.tasks[question.task_id].generation + off
            self.attempt(answer, self.kitchen, question, number, generation=generation)

    @rule(
        number=st.integers(0, 50),
        verb=st.sampled_from(["pause", "resume"]),
        off=st.sampled_from([0, 0, 0, -1]),
    )
    def steer_task(self, number: int, verb: str, off: int) -> None:
        task = self.chosen(number)
        if task is not None:
            change = pausing.request_pause if verb == "pause" else pausing.resume_task
            self.attempt(change, self.kitchen.book, task, generation=task.generation + off, actor="ann")

    @rule(number=st.integers(0, 50), is_named=st.booleans())
    def park_it(self, number: int, is_named: bool) -> None:
        task = self.chosen(number)
        if task is not None:
            point = {"step": "here", "occurrence": task.attempt} if is_named and task.attempt else {}
            self.attempt(park, self.kitchen, task, supervisor=task.supervisor or "s", **point)

    @rule(number=st.integers(0, 50), value=st.integers(0, 3), off=st.sampled_from([0, 0, -1]))
    def pass_step(self, number: int, value: int, off: int) -> None:
        task = self.chosen(number)
        if task is not None:
            self.attempt(
                store,
                self.kitchen,
                task,
                value,
                supervisor=task.supervisor or "s",
                attempt=task.attempt + off,
            )

    @rule(number=st.integers(0, 50))
    def retry_one(self, number: int) -> None:
        task = self.chosen(number)
        if task is not None and len(self.tops()) < 6:
            self.attempt(retry, self.kitchen, task, f"r{len(self.kitchen.book.tokens)}")

    @rule(seconds=st.sampled_from([0.5, 2, 1001]))
    def expire_due(self, seconds: float) -> None:
        self.kitchen.pass_time(seconds)
        for task in list(self.kitchen.book.tasks.values()):
            expiry.expire(self.kitchen.book, task)

    # What always holds.

    @invariant()
    def a_visit_joins_once_at_most(self) -> None:
        for token in self.started():
            entered = sum(token.visits.get(state, 0) for state in ("proofs", "sprint"))
            assert token.events.get("joined", 0) <= entered

    @invariant()
    def the_row_fits_the_state(self) -> None:
        """S1-24, S1-75: a row is ready, or it is clear what holds it back."""
        for task in self.kitchen.book.tasks.values():
            is_parked = task.current_state is TaskState.PARKED
            reason = task.reason or ""
            is_queued = task.current_state is TaskState.PENDING or (
                is_parked and reason.startswith("resuming:")
            )
            is_token_paused = self.kitchen.token_of(task).status is TokenStatus.PAUSED
            is_paused = is_token_paused or task.pause_requested_at is not None
            assert (task.ready_at is not None) == (is_queued and not is_paused)
            assert (task.lease_until is not None) == (task.current_state is TaskState.RUNNING)
            if is_parked and reason == "user_paused":
                assert task.held_ready_at is None or is_token_paused, "nothing would ever ready it"
            else:
                assert (task.held_ready_at is not None) == (is_queued and is_paused)
            assert not is_parked or reason, "parked without a reason (S1-24)"

    @invariant()
    def a_question_is_open_while_its_task_waits_for_it(self) -> None:
        """S1-93, DX-19."""
        pending = {q.id for q in self.kitchen.book.questions.values() if q.status is QuestionStatus.PENDING}
        waiting = {
            task.question.id
            for task in self.kitchen.book.tasks.values()
            if task.current_state is TaskState.PARKED
            and (task.reason or "").startswith("awaiting_user_answer:")
            if task.question is not None
        }
        assert pending == waiting
        for question in self.kitchen.book.questions.values():
            is_answered = question.status is QuestionStatus.ANSWERED
            assert is_answered == (question.answer is not None) == (question.answered_at is not None)
            assert question.status is not QuestionStatus.CLOSED or question.cause

    @invariant()
    def what_stands_never_changes(self) -> None:
        """S1-66, S2-30: an answer and a checkpoint are the same for ever."""
        now: dict[Any, bytes] = {
            place: bytes(kept.value) for place, kept in self.kitchen.book.checkpoints.items()
        }
        now |= {q.id: bytes(q.answer) for q in self.kitchen.book.questions.values() if q.answer is not None}
        assert self.stood.items() <= now.items()
        self.stood = now

    @invariant()
    def logs_have_no_gaps(self) -> None:
        """S1-106, S1-108."""
        for task in self.kitchen.book.tasks.values():
            assert [entry.seq for entry in task.entries] == list(range(1, task.log_seq + 1))
            ends = [
                entry
                for entry in task.entries
                if entry.kind in ("completed", "failed", "expired", "cancelled")
            ]
            assert len(ends) == task.current_state.is_final
            assert sum(entry.kind == "claimed" for entry in task.entries) == task.attempt


_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
LIVES = [
    pytest.param(
        settings(max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=_QUIET),
        id="short",
    ),
    pytest.param(
        settings(max_examples=3_000, stateful_step_count=80, deadline=None, suppress_health_check=_QUIET),
        id="long",
        marks=pytest.mark.prove,
    ),
]


@pytest.mark.parametrize("lives", LIVES)
def test_what_always_holds_holds_in_any_order(lives: settings) -> None:
    run_state_machine_as_test(SupervisedLife, settings=lives)
