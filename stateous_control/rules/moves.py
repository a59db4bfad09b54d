"""How tokens and tasks move: start, leave and enter a state, end. Every change of a task's state goes through `change`.

These are the steps that the other rules are made of. They check nothing that a client could get wrong, except the
context of a new token; whoever calls them has checked first. They never see a clock, a database or chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.limits import ERROR_TEXT_CHARS_MAX
from stateous_contract.states import TASK_LIFE, Move, QuestionStatus, TaskState, TokenStatus

from stateous_control.graph.document import END, JOINED, START, STARTED, TIMEOUT, Graph, State, Transition
from stateous_control.graph.routing import Unrouted
from stateous_control.graph.routing import start as route_start
from stateous_control.graph.schema import check_context, with_defaults
from stateous_control.rules.book import Book, Question, Task, Timer, Token
from stateous_control.rules.children import Birth, CannotStart, births, check_births, choose, joined
from stateous_control.rules.policy import Policy
from stateous_control.rules.queues import queue_of_state
from stateous_control.rules.views import stamp

VALUES: Final = msgspec.json.Decoder(dict[str, Raw])
"""Reads an object of a user's into its top-level values, each left as the text it came as."""

LOGGED: Final[dict[Move, str]] = {
    Move.CLAIM: "claimed",
    Move.REPORT_EVENT: "completed",
    Move.REPORT_WAITING: "waiting",
    Move.FAIL_RETRY: "attempt_failed",
    Move.FAIL_FINAL: "failed",
    Move.RELEASE: "released",
    Move.EVENT_EMITTED: "completed",
    Move.TOKEN_LEFT: "cancelled",
    Move.EXPIRE: "expired",
    Move.ASK: "question_asked",
    Move.PARK_PAUSED: "paused",
    Move.PARK_DIVERGED: "diverged",
    Move.WAIT: "wait_begun",
    Move.WAIT_OVER: "wait_over",
    Move.RESUME: "resumed",
}
"""What the log of a task calls each move: every one leaves a line (S1-108)."""


def change(
    task: Task, move: Move, *, reason: str | None = None, kind: str | None = None, **data: object
) -> None:
    """Take a task along one edge of its life (S1-11); whoever readies it afterwards calls `ready`.

    It leaves one line in the task's log, of the move's own kind or `kind`, with `data` (S1-108).

    An edge that is not drawn is a fault of ours, never a client's: the rules look before they call.
    """
    goal = TASK_LIFE.get((task.current_state, move))
    assert goal is not None, f"task {task.id} is {task.current_state}; {move} leads nowhere from there"
    assert reason is not None or goal is not TaskState.PARKED, f"task {task.id} would park without a reason"
    task.current_state = goal
    task.reason = reason
    task.ready_at = task.held_ready_at = task.lease_until = None
    task.generation += 1
    task.record(kind or LOGGED[move], **({} if reason is None else {"reason": reason}), **data)
    if task.wait is not None:
        task.wait.close()
        task.wait = None
    if task.question is not None and goal is not TaskState.PARKED:
        close(task.question, goal, reason)
        task.question = None


def close(question: Question, goal: TaskState, reason: str | None) -> None:
    """Close the question of a task that waits for it no more; the cause says why (DX-19).

    A task that is queued again may ask it again.
    """
    cause = (reason or "").removeprefix("cancelled:")
    if not goal.is_final:
        question.end(QuestionStatus.CLOSED, "attempt_over")
    else:
        question.end(QuestionStatus.CLOSED, cause if cause.startswith("token_left:") else "task_ended")


def ready(token: Token, task: Task, at: datetime) -> None:
    """Let the task be claimed from `at` on; while it or its token is to pause only the time is kept (B.5, S1-75)."""
    if token.status is TokenStatus.PAUSED or task.pause_requested_at is not None:
        task.held_ready_at = at
    else:
        task.ready_at = at
    task.is_changed = True


def start_token(book: Book, graph: Graph, *, name: str, owner: str, context: Raw | None) -> Token:
    """Start a token and queue the task of its first state, or start the children of one that is parallel (S3-79).

    `context` is an object or None; the model's defaults are filled in. Raises Refused(INVALID_CONTEXT).
    """
    machine = graph.main
    values = with_defaults(machine, values_of(context))
    check_context(machine, values)
    found = route_start(machine, values)
    if isinstance(found, Unrouted):
        raise Refused(Code.INVALID_CONTEXT, found.sentence)
    if found.target == END:
        raise Refused(Code.INVALID_CONTEXT, f"{machine.name!r} leads from {START} straight to {END}")
    token = _new_token(book, graph, Birth(name, machine, values, found), owner)
    if machine.states[found.target].is_parallel:
        try:
            check_births(book, token, machine.states[found.target], values)
        except CannotStart as cannot:
            raise Refused(Code.INVALID_CONTEXT, cannot.sentence) from None
    _begin(book, token, found.target)
    return token


def _new_token(book: Book, graph: Graph, birth: Birth, owner: str) -> Token:
    return Token(
        id=next(book.token_ids),
        owner=owner,
        name=birth.name,
        graph=graph.checksum,
        workflow=birth.machine.name,
        state=START,
        status=TokenStatus.ACTIVE,
        visit=0,
        context=birth.context,
        entered_at=book.now,
        entered_by=STARTED,
        entered_payload=None,
        entered_error=None,
        seq=0,
        visits={},
        events={},
        is_new=True,
    )


def _begin(book: Book, token: Token, state: str) -> None:
    book.add_token(token)
    parent = {} if token.parent is None else {"parent": token.parent}
    book.log(token, "started", context=token.context, **parent)
    _accept(book, token, STARTED, None)
    _enter(book, token, state)


def begin_at(book: Book, token: Token, state: str, **data: object) -> None:
    """Put in a new token that begins in `state`, where another one ended; `data` says which and why."""
    book.add_token(token)
    book.log(token, "started", context=token.context, **data)
    _enter(book, token, state)


def values_of(context: Raw | None) -> dict[str, Raw]:
    """Return the top-level values of an object; none for None. Raises Refused(INVALID_CONTEXT) for anything else."""
    if context is None:
        return {}
    try:
        return VALUES.decode(context)
    except msgspec.DecodeError:
        raise Refused(Code.INVALID_CONTEXT, "the context must be a JSON object, or null") from None


def move(
    book: Book,
    token: Token,
    transition: Transition,
    payload: Raw | None,
    *,
    reporter: Task | None = None,
    error: str | None = None,
) -> None:
    """Take the token along a transition that was chosen: leave its state, then enter the next or complete.

    `payload` is kept for the next state's routine, and so is `error`, the text of a failed attempt. `reporter` is the
    task whose report brought the event, where one did.
    """
    event = transition.event
    assert event is not None
    _accept(book, token, event, payload)
    _leave(book, token, event, reporter)
    if transition.target == END:
        _end(book, token, TokenStatus.COMPLETED)
        book.log(token, "completed")
        _join(book, token)
        return
    token.entered_by, token.entered_payload = event, payload
    token.entered_error = None if error is None else error[:ERROR_TEXT_CHARS_MAX]
    _enter(book, token, transition.target)


def raise_own_event(
    book: Book, token: Token, event: str, payload: Raw | None = None, *, error: str | None = None
) -> None:
    """Route an event of the control plane's own; where it leads nowhere the token fails (B.3).

    `payload` is that of ``joined``, `error` the text of the failed attempt for ``error``.
    """
    found = choose(book, token, event, payload)
    if isinstance(found, Unrouted):
        fail_token(book, token, _why_failed(token.state, event, found, error))
    else:
        move(book, token, found, payload, error=error)


def _why_failed(state: str, event: str, unrouted: Unrouted, error: str | None) -> str:
    if event == TIMEOUT:
        return f"time ran out in {state!r}, and {unrouted.sentence}"
    if event == JOINED:
        return f"the children of {state!r} have joined, and {unrouted.sentence}"
    return f"{state!r} failed, and {unrouted.sentence}: {(error or event)[:ERROR_TEXT_CHARS_MAX]}"


def fail_token(book: Book, token: Token, reason: str) -> None:
    """End the token as failed, with a sentence for people."""
    cancel_tasks(book, token, book.live_tasks(token), "token_failed")
    _end(book, token, TokenStatus.FAILED)
    _cancel_children(book, token, "its parent failed")
    book.log(token, "failed", reason=reason)
    _join(book, token)


def cancel_token(book: Book, token: Token) -> None:
    """End the token as cancelled, with its children (S3-57)."""
    cancel_tasks(book, token, book.live_tasks(token), "token_cancelled")
    _end(book, token, TokenStatus.CANCELLED)
    _cancel_children(book, token, "its parent was cancelled")
    book.log(token, "cancelled")


def drop_held(book: Book, token: Token, reason: str) -> None:
    """Drop everything that is held for the token."""
    for held in book.held_of(token):
        held.is_deleted = True
        book.log(token, "event_dropped", event=held.event, reason=reason)


def _cancel_children(book: Book, token: Token, reason: str) -> None:
    """End what still runs of the visit; its children belong to no visit from now on (B.6)."""
    for child in book.children(token):
        child.is_current, child.is_kin_changed = False, True
        if child.status.is_final:
            continue
        drop_held(book, child, reason)
        cancel_tasks(book, child, book.live_tasks(child), "token_cancelled")
        _end(book, child, TokenStatus.CANCELLED)
        _cancel_children(book, child, "its parent was cancelled")
        book.log(child, "cancelled", reason=reason)


def _join(book: Book, child: Token) -> None:
    """Let the parent have ``joined`` if this child's end was what it waited for (B.6)."""
    if child.parent_id is None:
        return
    parent = book.tokens[child.parent_id]
    # A child of a paused parent is paused as well, so it does not end; whatever ends it comes after the resume.
    payload = joined(book, parent, child) if parent.status is TokenStatus.ACTIVE else None
    if payload is not None:
        raise_own_event(book, parent, JOINED, payload)


def cancel_tasks(
    book: Book, token: Token, tasks: Iterable[Task], cause: str, *, by: str | None = None
) -> None:
    """Cancel tasks whose token needs them no more; `cause` says why, for whoever still works on them.

    `by` is the person who did it to the task itself.
    """
    data = {} if by is None else {"by": by}
    for task in tasks:
        change(task, Move.TOKEN_LEFT, reason=f"cancelled:{cause}", **data)
        book.log(token, "task_cancelled", task=task.id)


def set_timer(book: Book, token: Token, event: str, after_s: int, *, payload: Raw | None = None) -> None:
    """Set a timer of the state that the token is in; ``timeout`` is the state's own."""
    due_at = book.now + timedelta(seconds=after_s)
    kind: Literal["timeout", "timer"] = "timeout" if event == TIMEOUT else "timer"
    book.add_timer(Timer(None, token.id, kind, event, payload, due_at, book.now, is_new=True))
    book.log(token, "timer_set", event=event, due_at=stamp(due_at))


def _accept(book: Book, token: Token, event: str, payload: Raw | None) -> None:
    token.events[event] = token.events.get(event, 0) + 1
    book.log(token, "event_accepted", event=event, payload=payload, state=token.state)


def _leave(book: Book, token: Token, event: str, reporter: Task | None) -> None:
    """End the tasks of the visit: done where their state emits the event and they were begun, else cancelled (B.1)."""
    is_emitted = event in book.machine(token).states[token.state].emits
    for task in book.live_tasks(token):
        if is_emitted and task.current_state is not TaskState.PENDING:
            change(task, Move.REPORT_EVENT if task is reporter else Move.EVENT_EMITTED)
            book.log(token, "task_done", task=task.id)
        else:
            cancel_tasks(book, token, (task,), f"token_left:{event}")
    _drop_timers(book, token)
    _cancel_children(book, token, f"its parent left {token.state!r} on {event!r}")


def _enter(book: Book, token: Token, name: str) -> None:
    """Begin a new visit: exactly one task, or the children of a parallel state, in the same book as the move.

    S3-01, S3-02, S3-03. Whether the children can start was checked before.
    """
    state = book.machine(token).states[name]
    token.visits[name] = token.visit = token.visits.get(name, 0) + 1
    token.state, token.entered_at = name, book.now
    book.log(token, "entered", state=name, visit=token.visit)
    if not state.is_parallel:
        _queue_task(book, token, state)
    if state.timeout_s is not None:
        set_timer(book, token, TIMEOUT, state.timeout_s)
    if state.is_parallel:
        _start_children(book, token, state)


def _queue_task(book: Book, token: Token, state: State) -> None:
    task = Task(
        id=next(book.task_ids),
        token_id=token.id,
        state=queue_of_state(_served_as(book, token), state.version),
        visit=token.visit,
        current_state=TaskState.PENDING,
        attempt=0,
        failures=0,
        retries=state.retries,
        generation=1,
        ready_at=book.now,
        version=state.version,
        policy=Policy(state.backoff_s, state.max_backoff_s, state.not_retryable),
        is_new=True,
    )
    book.add_task(task)
    book.log(token, "task_queued", task=task.id, state=state.name)


def _start_children(book: Book, token: Token, state: State) -> None:
    graph, root = book.graphs[token.graph], book.root(token)
    for member in (token, root):
        if not member.has_children:
            member.has_children = member.is_kin_changed = True
    for birth in list(births(graph, token.name, state, token.visit, token.context)):
        book.log(token, "branch_started", workflow=birth.machine.name, token=birth.name)
        child = _new_token(book, graph, birth, token.owner)
        child.parent, child.parent_id, child.root_id = token.name, token.id, root.id
        child.is_current = True
        _begin(book, child, birth.transition.target)


def _served_as(book: Book, token: Token) -> str:
    """The name under which supervisors claim the token's state (A.3)."""
    if token.workflow == book.graphs[token.graph].workflow:
        return token.state
    return f"{token.workflow}/{token.state}"


def _end(book: Book, token: Token, status: TokenStatus) -> None:
    """Whatever way a token ends, its timers and its memory go with it."""
    _drop_timers(book, token)
    book.memory_cleared.add(token.id)
    token.status, token.paused_at = status, None
    token.is_changed = True


def end_anchor(book: Book, token: Token, task: Task, status: TokenStatus) -> None:
    """End what stands for the token of a routine that was started without one, with its first task."""
    if not token.graph and task.parent_id is None:
        _end(book, token, status)


def _drop_timers(book: Book, token: Token) -> None:
    for timer in book.timers_of(token):
        timer.is_deleted = True
