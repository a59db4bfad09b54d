"""What workers and people ask about tasks, questions and checkpoints, as one caller sees it.

A part of the control plane with a name of its own: `ControlPlane.supervision`. What is not the caller's does not exist.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from msgspec import Raw
from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import (
    Ask,
    Asked,
    Checkpoint,
    Park,
    Parked,
    Signalled,
    Spawn,
    Spawned,
    Standing,
    Start,
)
from stateous_contract.states import TaskState

from stateous_control.engine import routines, supervising, waiting
from stateous_control.engine.gathering import Operation
from stateous_control.engine.keyring import Keyring
from stateous_control.engine.people import (
    Page,
    QuestionView,
    TaskView,
    checkpoint_view,
    log_view,
    page_of,
    question_row_view,
    task_row_view,
)
from stateous_control.engine.watching import Watching
from stateous_control.rules.access import Access
from stateous_control.rules.routines import ANCHOR
from stateous_control.store import people
from stateous_control.store.people import QuestionFilter, TaskFilter
from stateous_control.store.pool import Pool
from stateous_control.store.reading import Counted

ANYBODY: Final = "anonymous"
Answer = TypeVar("Answer")


class Run(Protocol):
    """Carries out one operation as the caller."""

    def __call__(self, operation: Operation[Answer], /) -> Awaitable[Answer]: ...


class Supervision:
    """Supervision as one caller sees it.

    Args:
        pool: the database, for reads. run: carries out a change. access: who asks. watching: who waits for a task.
        keyring: says whether the key of a caller that waits is still good. live_s: a supervisor not heard is away.

    """

    def __init__(
        self,
        pool: Pool,
        run: Run,
        access: Access,
        watching: Watching,
        keyring: Keyring,
        *,
        live_s: float,
    ) -> None:
        self._pool = pool
        self._run = run
        self._access = access
        self._watching = watching
        self._keyring = keyring
        self._live_s = live_s

    # What workers ask.

    async def ask(self, task: int, said: Ask) -> Asked:
        """Ask people and park; the same again answers the same."""
        return await self._run(supervising.ask(task, said))

    async def park(self, task: int, said: Park) -> Parked:
        """Park where a pause is requested, where a replay diverged, or until something ends the wait."""
        if said.wait.kind == "pause":
            return await self._run(supervising.park(task, said))
        if said.wait.kind == "nondeterminism":
            return await self._run(supervising.park_diverged(task, said))
        return await self._run(waiting.park(task, said))

    async def store(self, task: int, said: Checkpoint) -> Standing:
        """Keep the value of a step; the first one stands for ever."""
        return await self._run(supervising.store(task, said))

    async def spawn(self, task: int, said: Spawn) -> Spawned:
        """Start a child of a task; the same step again is given the same child."""
        return (await self._run(routines.spawn(task, said)))[0]

    # What people ask about tasks.

    async def start(self, said: Start, key: str | None) -> tuple[TaskView, bool]:
        """Start a routine without a graph, or find what the same key began; the flag says whether it is new."""
        self._access.check_owner()
        task, is_new = await self._run(routines.start(self._access.place(), said, key))
        return await self.task(task), is_new

    async def task(self, task: int, *, wait_s: float = 0.0, after_generation: int | None = None) -> TaskView:
        """Return a task; with `wait_s` wait until it is over, or its generation is above the one named.

        Raises `Refused`: unauthorized, where the caller's key was revoked or expired meanwhile.
        """

        async def look() -> TaskView:
            self._keyring.check_live(self._access)
            row = await people.find_task(self._pool, task, self._access.bounds, self._live_s)
            if row is None:
                raise _no_task(task)
            return task_row_view(row, is_owner_shown=self._access.sees_several)

        def is_enough(view: TaskView) -> bool:
            if after_generation is not None and view.generation > after_generation:
                return True
            return TaskState(view.current_state).is_final

        return await self._watching.until(task, look, is_enough, wait_s)

    async def tasks(self, wanted: TaskFilter, *, limit: int, cursor: str | None) -> Page:
        """Return a page of tasks, newest first."""
        page = await people.page_tasks(self._pool, wanted, limit, _read_cursor("tasks", cursor), self._live_s)
        views = [task_row_view(row, is_owner_shown=self._access.sees_several) for row in page.rows]
        is_more = len(page.rows) == limit
        return page_of(views, page, _write_cursor("tasks", page.rows[-1]["id"]) if is_more else None)

    async def log(self, task: int, *, limit: int, before: int | None) -> Page:
        """Return the newest lines of a task's log in order; the cursor asks for those before (S1-112)."""
        page = await people.page_log(self._pool, task, self._access.bounds, limit, before)
        if page is None:
            raise _no_task(task)
        first = page.rows[0]["sequence_num"] if page.rows else 1
        return page_of([log_view(row) for row in page.rows], page, str(first) if first > 1 else None)

    async def checkpoints(self, task: int, *, version: int, after: int, limit: int) -> Page:
        """Return the checkpoints of one version after `after`, in order."""
        page = await people.page_checkpoints(
            self._pool, task, self._access.bounds, version=version, after=after, most=limit
        )
        if page is None:
            raise _no_task(task)
        cursor = str(page.rows[-1]["seq"]) if _goes_on(page, limit) else None
        return page_of([checkpoint_view(row) for row in page.rows], page, cursor)

    async def pause(self, task: int, generation: int, actor: str | None) -> TaskView:
        """Request a pause of a task; a worker observes it at its next durable point."""
        return await self._run(supervising.pause(task, generation, self._actor(actor)))

    async def resume(self, task: int, generation: int, actor: str | None) -> TaskView:
        """End the pause of a task, or withdraw the request."""
        return await self._run(supervising.resume(task, generation, self._actor(actor)))

    async def cancel(self, task: int, generation: int, actor: str | None = None) -> TaskView:
        """End a task for good, with its token."""
        return await self._run(supervising.cancel(task, generation, self._actor(actor)))

    async def retry(
        self, task: int, generation: int, *, token: str | None, is_copying: bool, actor: str | None
    ) -> TaskView:
        """Begin a new token where a task ended, or its routine anew; the answer is the new task."""
        place = await people.place_of_task(self._pool, task, self._access.bounds)
        if place is None:
            raise _no_task(task)
        if place["token"].startswith(ANCHOR):
            return await self._retry_routine(task, generation, token, is_copying=is_copying, actor=actor)
        name = token or supervising.retry_name(place["token"], task)
        return await self._run(
            supervising.retry(
                task,
                place["owner"],
                name,
                generation=generation,
                is_copying=is_copying,
                actor=self._actor(actor),
            )
        )

    async def _retry_routine(
        self, task: int, generation: int, token: str | None, *, is_copying: bool, actor: str | None
    ) -> TaskView:
        if token is not None:
            raise Refused(
                Code.INVALID_ARGUMENT, f"task {task} has no token, so its retry takes no 'token' either"
            )
        actor = self._actor(actor)
        return await self._run(
            supervising.retry_routine(task, generation=generation, is_copying=is_copying, actor=actor)
        )

    async def signal(
        self, task: int, name: str, payload: Raw | None, *, key: str | None, actor: str | None
    ) -> Signalled:
        """Send a signal to a task: it ends a wait, or is kept for one."""
        return await self._run(waiting.signal_task(task, name, payload, key=key, actor=self._actor(actor)))

    async def signal_token(
        self, token: str, name: str, payload: Raw | None, *, key: str | None, actor: str | None
    ) -> Signalled:
        """Send a signal to whichever task of a token waits for it first."""
        owner = self._access.place()
        actor = self._actor(actor)
        return await self._run(waiting.signal_token(owner, token, name, payload, key=key, actor=actor))

    # What people ask about questions.

    async def question(self, question: int) -> QuestionView:
        """Return a question."""
        row = await people.find_question(self._pool, question, self._access.bounds)
        if row is None:
            raise _no_question(question)
        return question_row_view(row, is_owner_shown=self._access.sees_several)

    async def questions(self, wanted: QuestionFilter, *, limit: int, cursor: str | None) -> Page:
        """Return a page of questions, newest first."""
        page = await people.page_questions(self._pool, wanted, limit, _read_cursor("questions", cursor))
        views = [question_row_view(row, is_owner_shown=self._access.sees_several) for row in page.rows]
        is_more = _goes_on(page, limit)
        return page_of(views, page, _write_cursor("questions", page.rows[-1]["id"]) if is_more else None)

    async def answer(self, question: int, value: Raw, generation: int, actor: str | None) -> QuestionView:
        """Answer a question; the answer is durable before anything resumes (S1-59)."""
        task = await people.task_of_question(self._pool, question, self._access.bounds)
        if task is None:
            raise _no_question(question)
        await self._run(supervising.answer(task, question, value, generation, self._actor(actor)))
        return await self.question(question)

    @property
    def owners(self) -> list[str] | None:
        """The caller's owners, for a filter; None is all."""
        return self._access.bounds[0]

    def _actor(self, named: str | None) -> str:
        """Return who acts: the key's name; without keys whoever the request says it is."""
        return self._access.key or named or ANYBODY


def _no_task(task: int) -> Refused:
    return Refused(Code.TASK_NOT_FOUND, f"there is no task {task}")


def _no_question(question: int) -> Refused:
    return Refused(Code.QUESTION_NOT_FOUND, f"there is no question {question}")


def _goes_on(page: Counted, limit: int) -> bool:
    """Say whether more may come after a page: it is full, or was cut short by its bytes (`found` were there)."""
    return bool(page.rows) and (len(page.rows) == limit or page.rows[0]["found"] > len(page.rows))


def _write_cursor(name: str, last: int) -> str:
    return base64.urlsafe_b64encode(f"{name}:{last}".encode()).decode().rstrip("=")


def _read_cursor(name: str, cursor: str | None) -> int | None:
    if cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (ValueError, UnicodeError):
        text = ""
    found = re.fullmatch(rf"{name}:([0-9]{{1,19}})", text, re.ASCII)
    if found is None or int(found[1]) > limits.TASK_ID_MAX:
        raise Refused(Code.INVALID_ARGUMENT, "'cursor' is none that this list has given")
    return int(found[1])
