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
from stateous_contract.states import TASK_LIFE, Move, TaskState, TokenStatus

from stateous_control.graph.document import END, START, STARTED, TIMEOUT, Graph, Transition
from stateous_control.graph.routing import Unrouted, route
from stateous_control.graph.routing import start as route_start
from stateous_control.graph.schema import check_context, with_defaults
from stateous_control.rules.book import Book, Task, Timer, Token
from stateous_control.rules.views import stamp

VALUES: Final = msgspec.json.Decoder(dict[str, Raw])
"""Reads an object of a user's into its top-level values, each left as the text it came as."""


def change(task: Task, move: Move, *, reason: str | None = None) -> None:
    """Take a task along one edge of its life (S1-11); whoever readies it afterwards calls `ready`.

    An edge that is not drawn is a fault of ours, never a client's: the rules look before they call.
    """
    goal = TASK_LIFE.get((task.current_state, move))
    assert goal is not None, f"task {task.id} is {task.current_state}; {move} leads nowhere from there"
    assert reason is not None or goal is not TaskState.PARKED, f"task {task.id} would park without a reason"
    task.current_state = goal
    task.reason = reason
    task.ready_at = task.held_ready_at = task.lease_until = None
    task.generation += 1
    task.is_changed = True


def ready(token: Token, task: Task, at: datetime) -> None:
    """Let the task be claimed from `at` on; while its token is paused only the time is kept (B.5)."""
    if token.status is TokenStatus.PAUSED:
        task.held_ready_at = at
    else:
        task.ready_at = at
    task.is_changed = True


def start_token(book: Book, graph: Graph, *, name: str, owner: str, context: Raw | None) -> Token:
    """Start a token and queue the task of its first state (S3-79).

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
    token = Token(
        id=next(book.token_ids),
        owner=owner,
        name=name,
        graph=graph.checksum,
        workflow=machine.name,
        state=START,
        status=TokenStatus.ACTIVE,
        visit=0,
        context=values,
        entered_at=book.now,
        entered_by=STARTED,
        entered_payload=None,
        entered_error=None,
        seq=0,
        visits={},
        events={},
        is_new=True,
    )
    book.tokens[token.id] = token
    book.log(token, "started", context=values)
    _accept(book, token, STARTED, None)
    _enter(book, token, found.target)
    return token


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
        return
    token.entered_by, token.entered_payload = event, payload
    token.entered_error = None if error is None else error[:ERROR_TEXT_CHARS_MAX]
    _enter(book, token, transition.target)


def raise_own_event(book: Book, token: Token, event: str, *, error: str | None = None) -> None:
    """Route ``timeout`` or ``error``, the control plane's own events; where it leads nowhere the token fails (B.3).

    `error` is the text of the failed attempt, for ``error`` only.
    """
    found = route(book.machine(token), token.state, event, context=token.context, counts=token.events)
    if isinstance(found, Unrouted):
        fail_token(book, token, _why_failed(token.state, event, found, error))
    else:
        move(book, token, found, None, error=error)


def _why_failed(state: str, event: str, unrouted: Unrouted, error: str | None) -> str:
    if event == TIMEOUT:
        return f"time ran out in {state!r}, and {unrouted.sentence}"
    return f"{state!r} failed, and {unrouted.sentence}: {(error or event)[:ERROR_TEXT_CHARS_MAX]}"


def fail_token(book: Book, token: Token, reason: str) -> None:
    """End the token as failed, with a sentence for people."""
    cancel_tasks(book, token, book.live_tasks(token), "token_failed")
    _end(book, token, TokenStatus.FAILED)
    book.log(token, "failed", reason=reason)


def cancel_token(book: Book, token: Token) -> None:
    """End the token as cancelled (S3-57)."""
    cancel_tasks(book, token, book.live_tasks(token), "token_cancelled")
    _end(book, token, TokenStatus.CANCELLED)
    book.log(token, "cancelled")


def cancel_tasks(book: Book, token: Token, tasks: Iterable[Task], cause: str) -> None:
    """Cancel tasks whose token needs them no more; `cause` says why, for whoever still works on them."""
    for task in tasks:
        change(task, Move.TOKEN_LEFT, reason=f"cancelled:{cause}")
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


def _enter(book: Book, token: Token, name: str) -> None:
    """Begin a new visit: exactly one task, in the same book as the move (S3-01, S3-02, S3-03)."""
    state = book.machine(token).states[name]
    token.visits[name] = token.visit = token.visits.get(name, 0) + 1
    token.state, token.entered_at = name, book.now
    book.log(token, "entered", state=name, visit=token.visit)
    assert not state.is_parallel, f"{name!r} is parallel; such a graph is not served"
    task = Task(
        id=next(book.task_ids),
        token_id=token.id,
        state=_served_as(book, token),
        visit=token.visit,
        current_state=TaskState.PENDING,
        attempt=0,
        failures=0,
        retries=state.retries,
        generation=1,
        ready_at=book.now,
        is_new=True,
    )
    book.add_task(task)
    book.log(token, "task_queued", task=task.id, state=name)
    if state.timeout_s is not None:
        set_timer(book, token, TIMEOUT, state.timeout_s)


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


def _drop_timers(book: Book, token: Token) -> None:
    for timer in book.timers_of(token):
        timer.is_deleted = True
