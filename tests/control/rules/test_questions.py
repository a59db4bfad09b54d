"""Asking and answering as rules on one book: every refusal changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from control.rules.kitchen import Kitchen, everything, refusal
from control.rules.supervised import (
    DECISIONS,
    answer,
    ask,
    desk,
    held,
    kinds,
)
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.states import QuestionStatus, TaskState

from stateous_control.rules.book import Task


def test_asking_parks_for_the_key_and_ends_the_lease() -> None:
    """S1-05, S1-28, S1-36, S1-50, S1-51."""
    kitchen = desk()
    task = held(kitchen)
    question, is_parked = ask(kitchen, task, "approve-deploy")
    assert is_parked
    assert (task.current_state, task.reason) == (TaskState.PARKED, "awaiting_user_answer:approve-deploy")
    assert (task.lease_until, task.ready_at, task.new_decisions) == (None, None, DECISIONS)
    assert (question.status, question.answer) == (QuestionStatus.PENDING, None)


def test_asking_is_no_failure() -> None:
    """S1-06, S1-45."""
    kitchen = desk()
    task = held(kitchen)
    ask(kitchen, task)
    assert (task.failures, task.attempt, task.releases) == (0, 1, 0)
    assert "task_failed" not in kitchen.kinds(kitchen.token_of(task))


def test_asking_leaves_one_line_that_says_so() -> None:
    """S1-40."""
    kitchen = desk()
    task = held(kitchen)
    ask(kitchen, task)
    assert kinds(task) == ["created", "claimed", "question_asked"]


def test_a_question_expires_by_its_ttl() -> None:
    """S1-39."""
    kitchen = desk()
    question, _ = ask(kitchen, held(kitchen), ttl_s=90.0)
    assert (question.expires_at - kitchen.book.now).total_seconds() == 90


def test_asking_again_answers_the_same() -> None:
    kitchen = desk()
    task = held(kitchen)
    first, _ = ask(kitchen, task)
    before = everything(kitchen.book)
    again, is_parked = ask(kitchen, task)
    assert (again, is_parked) == (first, True)
    assert everything(kitchen.book) == before


def test_a_repeat_that_comes_after_the_answer_is_still_parked() -> None:
    """The attempt that asked has ended by asking; the answer is for the next one (S1-43)."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    answer(kitchen, question)
    assert ask(kitchen, task) == (question, True)


def test_an_answered_question_is_not_asked_again() -> None:
    """S1-66, DX-07: the next attempt gets the stored answer."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    answer(kitchen, question, "yes")
    kitchen.claim_again(task)
    task.instance = "i"
    found, is_parked = ask(kitchen, task)
    assert (found.id, is_parked, bytes(found.answer or b"")) == (question.id, False, b'"yes"')
    assert task.current_state is TaskState.RUNNING


def test_each_pass_of_a_loop_has_its_own_question() -> None:
    """BH-043 (b), DX-07: bad, bad, good; old answers stay with their occurrence."""
    kitchen = desk()
    task = held(kitchen)
    for occurrence, value in enumerate(("abc", "-1", "42"), start=1):
        question, _ = ask(kitchen, task, "age", occurrence)
        answer(kitchen, question, value)
        kitchen.claim_again(task)
        task.instance = "i"
    kept = {q.occurrence: json.loads(bytes(q.answer or b"")) for q in kitchen.book.questions.values()}
    assert kept == {1: "abc", 2: "-1", 3: "42"}


@pytest.mark.parametrize(
    "more",
    [{"supervisor": "other"}, {"instance": "other"}, {"attempt": 2}],
    ids=lambda more: next(iter(more)),
)
def test_only_the_holder_asks(more: dict[str, Any]) -> None:
    """S1-49."""
    kitchen = desk()
    task = held(kitchen)
    before = everything(kitchen.book)
    assert refusal(ask, kitchen, task, **more) is Code.TASK_NOT_HELD
    assert everything(kitchen.book) == before


def test_a_late_attempt_asks_nothing() -> None:
    """S1-49, S2-58."""
    kitchen = desk()
    task = held(kitchen)
    kitchen.report(task, "released", reason="drain", instance="i")
    kitchen.claim_again(task)
    assert refusal(ask, kitchen, task, attempt=1) is Code.ATTEMPT_OVER


@pytest.mark.parametrize("schema", [b'{"type":"nope"}', b'{"$ref":"#/$defs/gone"}', b'{"$ref":"http://x/y"}'])
def test_a_schema_that_is_none_is_refused_before_anything_is_parked(schema: bytes) -> None:
    kitchen = desk()
    task = held(kitchen)
    assert refusal(ask, kitchen, task, schema=Raw(schema)) is Code.INVALID_QUESTION
    assert task.current_state is TaskState.RUNNING


def test_an_answer_is_stored_with_who_and_when_and_readies_the_task() -> None:
    """S1-57, S1-60, S1-67."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    answer(kitchen, question, {"go": True}, actor="ben")
    assert (question.status, question.answered_by, question.answered_at) == (
        QuestionStatus.ANSWERED,
        "ben",
        kitchen.book.now,
    )
    assert (task.current_state, task.reason, task.ready_at) == (
        TaskState.PARKED,
        "resuming:awaiting_user_answer:go",
        kitchen.book.now,
    )
    assert task.entries[-1].data["by"] == "ben"
    assert bytes(task.entries[-1].data["answer"]) == b'{"go": true}'


def test_the_reason_is_gone_when_the_task_runs() -> None:
    """S1-31."""
    kitchen = desk()
    task = held(kitchen)
    answer(kitchen, ask(kitchen, task)[0])
    kitchen.claim_again(task)
    assert (task.current_state, task.reason) == (TaskState.RUNNING, None)


def test_a_second_answer_is_told_who_was_first() -> None:
    """S1-58, S1-65, S1-84: whatever generation it names."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    answer(kitchen, question, "first", actor="ann")
    before = everything(kitchen.book)
    with pytest.raises(Refused) as caught:
        answer(kitchen, question, "second", generation=1)
    assert caught.value.code is Code.ALREADY_ANSWERED
    assert caught.value.told == {"answered_by": "ann", "answered_at": "2026-01-01T00:00:00Z"}
    assert everything(kitchen.book) == before


def test_an_answer_after_the_time_is_refused_though_nobody_swept() -> None:
    """S1-58, S1-87, S1-93, S1-94."""
    kitchen = desk()
    question, _ = ask(kitchen, held(kitchen), ttl_s=60.0)
    kitchen.pass_time(60)
    before = everything(kitchen.book)
    kitchen.pass_time(0.001)
    assert refusal(answer, kitchen, question) is Code.QUESTION_CLOSED
    assert everything(kitchen.book) == before


def test_an_answer_just_in_time_is_taken() -> None:
    """S1-87: the predicate is `expires_at < now()`."""
    kitchen = desk()
    question, _ = ask(kitchen, held(kitchen), ttl_s=60.0)
    kitchen.pass_time(60)
    assert answer(kitchen, question).current_state is TaskState.PARKED


def test_an_answer_stays_though_another_path_resumed_the_task() -> None:
    """S1-61."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    task.current_state, task.reason = TaskState.RUNNING, None
    generation = task.generation
    answer(kitchen, question, "yes")
    assert (question.status, task.current_state) == (QuestionStatus.ANSWERED, TaskState.RUNNING)
    assert task.generation == generation + 1


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ({}, None),
        ({"choices": Raw(b'["yes","no"]')}, "maybe"),
        ({"choices": Raw(b"[1,2]")}, True),
        ({"schema": Raw(b'{"type":"integer","minimum":1}')}, 0),
        ({"schema": Raw(b'{"$ref":"#/$defs/N","$defs":{"N":{"type":"number"}}}')}, "1"),
        ({"schema": Raw(b'{"type":"string"}'), "choices": Raw(b"[1]")}, 1),
    ],
)
def test_an_answer_must_fit_the_question(more: dict[str, Any], value: Any) -> None:
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task, **more)
    before = everything(kitchen.book)
    assert refusal(answer, kitchen, question, value) is Code.INVALID_ANSWER
    assert everything(kitchen.book) == before


def test_numbers_of_a_choice_keep_their_digits() -> None:
    kitchen = desk()
    question, _ = ask(kitchen, held(kitchen), choices=Raw(b"[1970670598291982290, 0.1]"))
    answer(kitchen, question, 1970670598291982290)
    assert bytes(question.answer or b"") == b"1970670598291982290"


def test_an_answer_with_a_stale_generation_changes_nothing() -> None:
    """S1-96."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    before = everything(kitchen.book)
    assert refusal(answer, kitchen, question, generation=task.generation - 1) is Code.STALE_GENERATION
    assert everything(kitchen.book) == before


def end_by_event(kitchen: Kitchen, task: Task) -> None:
    kitchen.fire(kitchen.token_of(task), "noted")


def end_by_cancel(kitchen: Kitchen, task: Task) -> None:
    kitchen.cancel(kitchen.token_of(task))


def end_by_failure(kitchen: Kitchen, task: Task) -> None:
    kitchen.report(task, "failed", error="x", retryable=False)


@pytest.mark.parametrize("end", [end_by_event, end_by_cancel, end_by_failure])
def test_the_question_of_an_ended_task_is_closed_with_a_cause(end: Any) -> None:
    """DX-19: the inbox shows none."""
    kitchen = desk()
    task = held(kitchen)
    question, _ = ask(kitchen, task)
    end(kitchen, task)
    assert task.current_state.is_final
    assert question.status is QuestionStatus.CLOSED
    assert question.cause
    assert refusal(answer, kitchen, question) is Code.QUESTION_CLOSED


def test_a_question_whose_attempt_was_reported_as_failed_may_be_asked_again() -> None:
    """T17b: closed meanwhile, so that nobody answers what nobody waits for; the same question afterwards."""
    kitchen = desk()
    task = held(kitchen, "sturdy")
    question, _ = ask(kitchen, task)
    kitchen.report(task, "failed", error="x", supervisor=None, attempt=None)
    assert (task.current_state, question.status, question.cause) == (
        TaskState.PENDING,
        QuestionStatus.CLOSED,
        "attempt_over",
    )
    assert refusal(answer, kitchen, question) is Code.QUESTION_CLOSED
    kitchen.claim_again(task)
    task.instance = "i"
    assert ask(kitchen, task, data=Raw(b"2")) == (question, True)
    assert (question.status, question.attempt, bytes(question.data)) == (QuestionStatus.PENDING, 2, b"2")
    assert answer(kitchen, question).ready_at is not None
