"""Questions to people: asking parks the task, answering ends its wait; each is one change of one book (S1-36 … S1-67).

A question is named by its key and occurrence within its task, so that loops and changed code never mix answers. Only
the answer that stands is ever handed to the routine, on the first resume and on every replay.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import Raw
from stateous_contract.canonical import canonical_text
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Ask
from stateous_contract.states import ANSWER_PREFIX, Move, QuestionStatus, TaskState

from stateous_control.graph.schema import SchemaInvalid, compile_alone
from stateous_control.graph.values import decode
from stateous_control.rules.book import Book, Question, Task
from stateous_control.rules.durable import check_durable, check_generation
from stateous_control.rules.holding import check_attempt, is_of
from stateous_control.rules.moves import change
from stateous_control.rules.pausing import end_wait
from stateous_control.rules.views import stamp


def ask(book: Book, task: Task, said: Ask) -> tuple[Question, bool]:
    """Ask and park; return the question, and whether the attempt is parked for it (S1-36, S1-43).

    The same again answers the same. A question that an earlier attempt asked and somebody answered parks nothing.
    Raises Refused: ATTEMPT_OVER, TASK_NOT_HELD, TASK_CANCELLED, TASK_OVER, INVALID_QUESTION.
    """
    check_attempt(task, said.attempt)
    question = book.question_of(task, said.key, said.occurrence)
    if question is not None and question.attempt == said.attempt and _is_asker(task, said):
        return question, True
    check_durable(task, said.supervisor, said.instance)
    if question is None:
        _check_schema(said)
        question = _new(book, task, said)
    elif question.status is QuestionStatus.ANSWERED:
        return question, False
    else:
        # An attempt asked this, was reported as failed by somebody else, and asks again.
        _check_schema(said)
        _ask_again(book, task, question, said)
    _park(book, task, question, said.locked_decisions)
    return question, True


def _is_asker(task: Task, said: Ask) -> bool:
    """Whether this is the asker once more: the task has left its hands by asking."""
    return task.current_state is not TaskState.RUNNING and is_of(task, said.supervisor, said.instance)


def _new(book: Book, task: Task, said: Ask) -> Question:
    question = Question(
        id=next(book.question_ids),
        task_id=task.id,
        key=said.key,
        occurrence=said.occurrence,
        data=said.data,
        schema=said.schema,
        choices=said.choices,
        status=QuestionStatus.PENDING,
        attempt=task.attempt,
        asked_by=said.supervisor,
        asked_at=book.now,
        expires_at=book.now + timedelta(seconds=said.ttl_s),
        remind_s=None if said.remind_s is None else max(1, round(said.remind_s)),
        notify_at=book.now,
        is_new=True,
    )
    book.questions[question.id] = task.question = question
    return question


def _ask_again(book: Book, task: Task, question: Question, said: Ask) -> None:
    question.status, question.cause = QuestionStatus.PENDING, None
    question.data, question.schema, question.choices = said.data, said.schema, said.choices
    question.attempt, question.asked_by, question.asked_at = task.attempt, said.supervisor, book.now
    question.expires_at = book.now + timedelta(seconds=said.ttl_s)
    question.notify_at, question.notify_tries = book.now, 0
    question.is_changed = True
    task.question = question


def _park(book: Book, task: Task, question: Question, decisions: Raw) -> None:
    task.new_decisions = decisions
    change(
        task,
        Move.ASK,
        reason=f"{ANSWER_PREFIX}{question.key}",
        question=question.id,
        key=question.key,
        occurrence=question.occurrence,
        attempt=task.attempt,
        by=task.supervisor,
    )
    token = book.tokens[task.token_id]
    book.log(token, "question_asked", task=task.id, question=question.id, question_key=question.key)


def _check_schema(said: Ask) -> None:
    if said.schema is None:
        return
    try:
        compile_alone(decode(said.schema))
    except SchemaInvalid as error:
        raise Refused(Code.INVALID_QUESTION, f"the question's schema is none: {error}") from None


def answer(book: Book, question: Question, value: Raw, *, generation: int, actor: str) -> Task:
    """Store the answer, and let the task go on if it waits for just this one (S1-56, S1-57, S1-61).

    Raises Refused: ALREADY_ANSWERED, QUESTION_CLOSED, STALE_GENERATION, INVALID_ANSWER.
    """
    task = book.tasks[question.task_id]
    _check_open(book, question)
    check_generation(task, generation)
    _check_value(question, value)
    question.status, question.answer = QuestionStatus.ANSWERED, value
    question.answered_by, question.answered_at, question.notify_at = actor, book.now, None
    question.is_changed = True
    task.question = None
    task.saved_bytes += len(bytes(value)) + len(question.key.encode()) + 40
    line = {
        "question": question.id,
        "key": question.key,
        "occurrence": question.occurrence,
        "by": actor,
        "answer": value,
    }
    token = book.tokens[task.token_id]
    book.log(
        token, "question_answered", task=task.id, question=question.id, question_key=question.key, by=actor
    )
    if task.current_state is TaskState.PARKED and task.reason == f"{ANSWER_PREFIX}{question.key}":
        end_wait(book, token, task, "question_answered", **line)
    else:
        task.generation += 1
        task.record("question_answered", **line)
    return task


def _check_open(book: Book, question: Question) -> None:
    if question.status is QuestionStatus.ANSWERED:
        assert question.answered_at is not None
        told = {"answered_by": question.answered_by or "", "answered_at": stamp(question.answered_at)}
        sentence = f"question {question.id} was answered by {told['answered_by']} at {told['answered_at']}"
        raise Refused(Code.ALREADY_ANSWERED, sentence, told)
    if question.status is not QuestionStatus.PENDING:
        raise Refused(
            Code.QUESTION_CLOSED,
            f"question {question.id} is {question.status.value} ({question.cause}); nobody waits for its answer",
        )
    if question.expires_at < book.now:
        raise Refused(
            Code.QUESTION_CLOSED, f"question {question.id} has expired at {stamp(question.expires_at)}"
        )


def _check_value(question: Question, value: Raw) -> None:
    answered = decode(value)
    if answered is None:
        raise Refused(Code.INVALID_ANSWER, "null is no answer")
    if question.choices is not None:
        choices = decode(question.choices)
        if canonical_text(answered) not in map(canonical_text, choices):
            shown = ", ".join(msgspec.json.encode(choice).decode()[:40] for choice in choices[:10])
            raise Refused(Code.INVALID_ANSWER, f"the answer must be one of: {shown}")
    if question.schema is not None:
        problems = compile_alone(decode(question.schema))(answered)
        if problems:
            raise Refused(Code.INVALID_ANSWER, f"the answer breaks the schema: {'; '.join(problems)}")


def note_told(book: Book, question: Question) -> None:
    """Note that people were told of an open question, and when they are reminded (T22); the generation stays."""
    if question.status is not QuestionStatus.PENDING:
        return
    kind = "question_told" if question.tellings == 0 else "reminder_sent"
    question.tellings += 1
    _remind_later(book, question)
    book.tasks[question.task_id].record(kind, question=question.id, times=question.tellings)


def note_given_up(book: Book, question: Question) -> None:
    """Note that nobody could be told of an open question for as long as is tried; the next reminder tries again."""
    if question.status is not QuestionStatus.PENDING:
        return
    book.tasks[question.task_id].record("question_untold", question=question.id, tries=question.notify_tries)
    _remind_later(book, question)


def _remind_later(book: Book, question: Question) -> None:
    after_s = question.remind_s
    question.notify_at = None if after_s is None else book.now + timedelta(seconds=after_s)
    question.notify_tries = 0
    question.is_changed = True
