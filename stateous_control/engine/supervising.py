"""The changes of supervision as operations: what the book must hold, and which rule decides. It decides nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.limits import TOKEN_PATTERN
from stateous_contract.messages import Ask, Asked, Checkpoint, Park, Parked, Standing

from stateous_control.engine.gathering import Operation
from stateous_control.engine.people import TaskView, task_view
from stateous_control.rules import diverging, durable, pausing, questions, retrying, steering
from stateous_control.rules.book import Book, Question, Task
from stateous_control.rules.moves import cancel_tasks
from stateous_control.rules.views import stamp
from stateous_control.store.books import OpenBook, Wanted
from stateous_control.store.supervised import OWN_VERSION, Supervised

_TOKEN: Final = re.compile(TOKEN_PATTERN, re.ASCII)
_RETRY: Final = re.compile(r"\.retry-[0-9]+\Z")


def store(task_id: int, said: Checkpoint) -> Operation[Standing]:
    """Keep the value of a step; the answer is the value that stands."""

    def apply(opened: OpenBook) -> Standing:
        return stored(opened, task_id, said)

    place = (task_id, said.version, said.step, said.occurrence)
    wanted = Wanted(tasks={task_id}, supervision=Supervised(checkpoints={place}))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def stored(opened: OpenBook, task_id: int, said: Checkpoint) -> Standing:
    """Keep a value in a book that is open for it."""
    task = opened.task(task_id)
    value = durable.store(
        opened.book,
        task,
        said.step,
        said.occurrence,
        said.value,
        version=said.version,
        attempt=said.attempt,
        supervisor=said.supervisor,
        instance=said.instance,
    )
    return Standing(value=value, pause=durable.is_pausing(opened.book, task))


def ask(task_id: int, said: Ask) -> Operation[Asked]:
    """Ask a question and park, in one transaction."""

    def apply(opened: OpenBook) -> Asked:
        task = opened.task(task_id)
        question, is_parked = questions.ask(opened.book, task, said)
        return Asked(
            question=question.id,
            status=question.status.value,
            parked=is_parked,
            generation=task.generation,
            expires_at=stamp(question.expires_at),
            answer=UNSET if is_parked or question.answer is None else question.answer,
        )

    wanted = Supervised(named={(task_id, said.key, said.occurrence)}, asks=1)
    return Operation(Wanted(tasks={task_id}, supervision=wanted), apply, frozenset({task_id}), 1)


def park(task_id: int, said: Park) -> Operation[Parked]:
    """Park where a pause is requested; else the attempt goes on."""

    def apply(opened: OpenBook) -> Parked:
        task = opened.task(task_id)
        is_parked = pausing.park_paused(opened.book, task, said)
        return Parked(status="parked" if is_parked else "ready", generation=task.generation)

    wanted = Wanted(tasks={task_id})
    if said.step is not None and said.occurrence is not None:
        wanted.supervision.checkpoints.add((task_id, OWN_VERSION, said.step, said.occurrence))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def park_diverged(task_id: int, said: Park) -> Operation[Parked]:
    """Park a task whose replay did not come by what it had passed, until a person resumes it."""

    def apply(opened: OpenBook) -> Parked:
        task = opened.task(task_id)
        diverging.park(opened.book, task, said)
        return Parked(status="parked", generation=task.generation)

    return Operation(Wanted(tasks={task_id}), apply, frozenset({task_id}), 1)


def answer(task_id: int, question_id: int, value: Raw, generation: int, actor: str) -> Operation[TaskView]:
    """Answer a question; its task is ready in the same transaction, and nothing else resumes it."""

    def apply(opened: OpenBook) -> TaskView:
        opened.task(task_id)
        question = opened.book.questions[question_id]
        task = questions.answer(opened.book, question, value, generation=generation, actor=actor)
        return task_view(opened.book, task)

    wanted = Wanted(tasks={task_id}, supervision=Supervised(questions={question_id}))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def told(task_id: int, question_id: int) -> Operation[None]:
    """Note that people were told of a question."""
    return _note(task_id, question_id, questions.note_told)


def given_up(task_id: int, question_id: int) -> Operation[None]:
    """Note that nobody could be told of a question; the next reminder tries again."""
    return _note(task_id, question_id, questions.note_given_up)


def _note(task_id: int, question_id: int, rule: Callable[[Book, Question], None]) -> Operation[None]:
    def apply(opened: OpenBook) -> None:
        question = opened.book.questions.get(question_id)
        if question is not None:
            rule(opened.book, question)

    wanted = Wanted(tasks={task_id}, supervision=Supervised(questions={question_id}))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def pause(task_id: int, generation: int, actor: str) -> Operation[TaskView]:
    """Request a pause."""

    def rule(book: Book, task: Task) -> None:
        pausing.request_pause(book, task, generation=generation, actor=actor)

    return _steer(task_id, rule, is_pausing=True)


def resume(task_id: int, generation: int, actor: str) -> Operation[TaskView]:
    """End a pause or withdraw the request."""

    def rule(book: Book, task: Task) -> None:
        pausing.resume_task(book, task, generation=generation, actor=actor)

    return _steer(task_id, rule)


def cancel(task_id: int, generation: int, actor: str) -> Operation[TaskView]:
    """Cancel a task, and with it its token, which has no other."""

    def rule(book: Book, task: Task) -> None:
        durable.check_generation(task, generation)
        durable.check_live(task)
        token = book.tokens[task.token_id]
        if task.parent_id is None:
            steering.check_steerable(token, "cancelled")
        cancel_tasks(book, token, (task,), "user", by=actor)
        if task.parent_id is None:
            steering.cancel(book, token)

    return _steer(task_id, rule)


def _steer(
    task_id: int, rule: Callable[[Book, Task], None], *, is_pausing: bool = False
) -> Operation[TaskView]:
    def apply(opened: OpenBook) -> TaskView:
        task = opened.task(task_id)
        rule(opened.book, task)
        return task_view(opened.book, task, is_pausing=is_pausing)

    return Operation(Wanted(tasks={task_id}, needs_timers=True), apply, frozenset({task_id}), 1)


def retry(
    task_id: int, owner: str, name: str, *, generation: int, is_copying: bool, actor: str
) -> Operation[TaskView]:
    """Begin a new token called `name` where a task ended."""

    def apply(opened: OpenBook) -> TaskView:
        task = opened.task(task_id)
        taken = opened.book.named.get((owner, name.lower()))
        retrying.check(opened.book, task, generation)
        if taken is not None:
            raise Refused(Code.INVALID_TOKEN_ID, f"the token id {taken.name!r} is taken; name another one")
        _, fresh = retrying.retry(opened.book, task, name, is_copying=is_copying, actor=actor)
        return task_view(opened.book, fresh)

    wanted = Wanted(
        tasks={task_id}, names={(owner, name)}, starts=1, moves=1, supervision=Supervised(retried={task_id})
    )
    return Operation(wanted, apply, frozenset({task_id, (owner, name.lower())}), 1)


def retry_routine(task_id: int, *, generation: int, is_copying: bool, actor: str) -> Operation[TaskView]:
    """Begin a routine without a graph anew."""

    def apply(opened: OpenBook) -> TaskView:
        task = opened.task(task_id)
        retrying.check(opened.book, task, generation)
        return task_view(
            opened.book, retrying.retry_routine(opened.book, task, is_copying=is_copying, actor=actor)
        )

    wanted = Wanted(tasks={task_id}, starts=1, supervision=Supervised(retried={task_id}))
    return Operation(wanted, apply, frozenset({task_id}), 1)


def retry_name(token: str, task: int) -> str:
    """Return the id that a retry's token gets where nobody names one."""
    suffix = f".retry-{task}"
    name = _RETRY.sub("", token)[: 128 - len(suffix)] + suffix
    assert _TOKEN.fullmatch(name), name
    return name
