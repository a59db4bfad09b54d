"""Reads and writes what supervision adds to a book: questions, checkpoints, retries. Plain tasks cost nothing here.

Called by `books.py` and `writing.py`; it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw
from stateous_contract.states import ANSWER_PREFIX, QuestionStatus

from stateous_control.rules.book import Book, Checkpoint, CheckpointPlace, Question
from stateous_control.store.columns import columns, raw_of, text_of
from stateous_control.store.pool import Row, Session
from stateous_control.store.statements import statements
from stateous_control.store.waiting import Awaited, read_awaited, write_awaited

OWN_VERSION: Final = 0
"""Stands for the version of the task itself in the place of a checkpoint that is to be read."""


@dataclass(slots=True)
class Supervised:
    """What a book is to hold beyond tokens and tasks; the open questions of its tasks are always there.

    `questions` are ids, `named` task, key and occurrence, `checkpoints` places, `asks` how many questions may be asked,
    `retried` the tasks whose retries matter, `awaited` what it is to hold of waits and signals,
    `start_keys` owners and idempotency keys of starts.
    """

    questions: set[int] = field(default_factory=set)
    named: set[tuple[int, str, int]] = field(default_factory=set)
    checkpoints: set[CheckpointPlace] = field(default_factory=set)
    retried: set[int] = field(default_factory=set)
    asks: int = 0
    awaited: Awaited = field(default_factory=Awaited)
    start_keys: set[tuple[str, str]] = field(default_factory=set)

    def add(self, other: Supervised) -> None:
        """Take in what another operation of the same transaction wants."""
        self.questions |= other.questions
        self.named |= other.named
        self.checkpoints |= other.checkpoints
        self.retried |= other.retried
        self.asks += other.asks
        self.awaited.add(other.awaited)
        self.start_keys |= other.start_keys


async def read_supervised(session: Session, wanted: Supervised, book: Book) -> None:
    """Read what is wanted, and the open questions of the tasks in the book, which may end with them."""
    asking = [task.id for task in book.tasks.values() if (task.reason or "").startswith(ANSWER_PREFIX)]
    if asking or wanted.questions or wanted.named:
        rows = await session.fetch(
            statements.read_questions, asking, sorted(wanted.questions), *columns(wanted.named, 3)
        )
        for row in rows:
            _take_in(book, _question(row))
    if wanted.checkpoints:
        rows = await session.fetch(statements.read_checkpoints, *columns(wanted.checkpoints, 4))
        for row in rows:
            place = (row["task_id"], row["version"], row["step"], row["occurrence"])
            book.checkpoints[place] = Checkpoint(row["seq"], Raw(row["value"].encode()))
    await read_awaited(session, wanted.awaited, book)
    if wanted.start_keys:
        rows = await session.fetch(statements.read_start_keys, *columns(wanted.start_keys, 2))
        book.starts = {(row["owner"], row["key"]): (row["digest"], row["began"]) for row in rows}
    if wanted.retried:
        rows = await session.fetch(statements.read_retries, sorted(wanted.retried))
        book.retries = {row["retried_from"]: row["id"] for row in rows}


def _take_in(book: Book, question: Question) -> None:
    task = book.tasks.get(question.task_id)
    if task is None:
        return
    book.questions[question.id] = question
    if question.status is QuestionStatus.PENDING:
        task.question = question


async def write_supervised(session: Session, book: Book) -> None:
    """Write what has changed."""
    questions = book.questions.values()
    fresh = [_whole(question) for question in questions if question.is_new]
    if fresh:
        await session.fetch(statements.insert_questions, *columns(fresh, 18))
    changed = [_changed(question) for question in questions if question.is_changed and not question.is_new]
    if changed:
        await session.fetch(statements.update_questions, *columns(changed, 16))
    passed = [
        (*place, checkpoint.seq, text_of(checkpoint.value))
        for place, checkpoint in book.checkpoints.items()
        if checkpoint.is_new
    ]
    if passed:
        await session.fetch(statements.insert_checkpoints, *columns(passed, 6), book.now)
    await write_awaited(session, book)
    if book.starts_new:
        keys = [(owner, key, *book.starts[owner, key], is_token) for owner, key, is_token in book.starts_new]
        await session.fetch(statements.insert_start_keys, *columns(keys, 5))
    copied = [
        (task.retried_from, task.id)
        for task in book.tasks.values()
        if task.is_new and task.retried_from is not None and task.saved_bytes
    ]
    if copied:
        await session.fetch(statements.copy_saved, *columns(copied, 2))


def _question(row: Row) -> Question:
    return Question(
        id=row["id"],
        task_id=row["task_id"],
        key=row["key"],
        occurrence=row["occurrence"],
        data=Raw(row["data"].encode()),
        schema=raw_of(row["schema"]),
        choices=raw_of(row["choices"]),
        status=QuestionStatus(row["status"]),
        attempt=row["attempt"],
        asked_by=row["asked_by"],
        asked_at=row["asked_at"],
        expires_at=row["expires_at"],
        remind_s=row["remind_s"],
        answer=raw_of(row["answer"]),
        answered_by=row["answered_by"],
        answered_at=row["answered_at"],
        cause=row["cause"],
        tellings=row["tellings"],
        notify_at=row["notify_at"],
        notify_tries=row["notify_tries"],
    )


def _whole(question: Question) -> tuple[Any, ...]:
    return (
        question.id,
        question.task_id,
        question.key,
        question.occurrence,
        text_of(question.data),
        text_of(question.schema),
        text_of(question.choices),
        question.status.value,
        question.attempt,
        question.asked_by,
        question.asked_at,
        question.expires_at,
        question.remind_s,
        text_of(question.answer),
        question.answered_by,
        question.answered_at,
        question.cause,
        question.notify_at,
    )


def _changed(question: Question) -> tuple[Any, ...]:
    return (
        question.id,
        question.status.value,
        text_of(question.answer),
        question.answered_by,
        question.answered_at,
        question.cause,
        question.tellings,
        question.notify_at,
        question.notify_tries,
        text_of(question.data),
        text_of(question.schema),
        text_of(question.choices),
        question.attempt,
        question.asked_by,
        question.asked_at,
        question.expires_at,
    )
