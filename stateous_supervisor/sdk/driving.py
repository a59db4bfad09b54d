"""Who grants the wishes of a course: the two thin drivers, one for `def` routines and one for `async def`.

While a step's function runs, `step_key` is its key, and no other durable call can be made from inside it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from contextvars import ContextVar
from time import monotonic, sleep
from typing import Any, Final, Protocol, TypeVar, cast

from stateous_supervisor.sdk.durable import Course, OwnLine, Quiet, Reply, Rest, Send, Wish, Work
from stateous_supervisor.sdk.replay import Replay

T = TypeVar("T")

LOOK_S: Final = 1.0

_step: ContextVar[Work | None] = ContextVar("step", default=None)


class Caller(Protocol):
    """What brings calls to the control plane and knows whether the attempt still counts.

    `call` returns at once. The future gets a `Reply`, or raises what ends the routine: `Parked`, `AttemptLost`.
    `check_held` raises the same where the attempt is over already, so that nothing is begun any more (DX-06, S2-49).
    `works` counts steps under way, which a lost attempt may still finish. `rest_s` returns for how long to wait where
    a step rests before it is tried again: in a host as long as is asked, in a test not at all. `own_line` is where the
    routine itself runs, as `line` says it; `is_strict` holds it to what it passed.
    """

    works: int
    own_line: object

    @property
    def is_strict(self) -> bool: ...

    def call(self, kind: str, body: bytes) -> Future[Reply]: ...
    def is_pausing(self) -> bool: ...
    def check_held(self) -> None: ...
    def rest_s(self, seconds: float) -> float: ...


def step_key() -> str:
    """Return the key of the step that runs here. Raises RuntimeError: none does."""
    step = _step.get()
    if step is None:
        raise RuntimeError("step_key is there while a step's function runs, and not outside of one")
    return step.key


def line() -> object:
    """Return where this is called: the task of the loop that runs in this thread, or the thread's number."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return threading.get_ident()


def drive(course: Course[T], replay: Replay, caller: Caller) -> T:
    """Follow a course in this thread, and return what it returns."""
    _check(caller)
    got: Any = None
    error: BaseException | None = None
    try:
        while True:
            wish = course.send(got) if error is None else course.throw(error)
            got = error = None
            try:
                got = _granted(wish, replay, caller)
            except BaseException as raised:
                error = raised
    except StopIteration as ended:
        return cast("T", ended.value)
    finally:
        error = None  # or it and this frame would keep each other


async def drive_async(course: Course[T], replay: Replay, caller: Caller) -> T:
    """Follow a course on the running loop, and return what it returns."""
    _check(caller)
    got: Any = None
    error: BaseException | None = None
    try:
        while True:
            wish = course.send(got) if error is None else course.throw(error)
            got = error = None
            try:
                got = await _granted_async(wish, replay, caller)
            except BaseException as raised:
                error = raised
    except StopIteration as ended:
        return cast("T", ended.value)
    finally:
        error = None


def _granted(wish: Wish, replay: Replay, caller: Caller) -> Any:
    match wish:
        case Send():
            return caller.call(wish.call, wish.body).result()
        case Work():
            return _worked(wish, caller)
        case Rest():
            return _rested(monotonic() + caller.rest_s(wish.seconds), caller)
        case Quiet():
            return _quiet(replay)
        case OwnLine():
            return caller.own_line == line()


async def _granted_async(wish: Wish, replay: Replay, caller: Caller) -> Any:
    match wish:
        case Send():
            return await asyncio.wrap_future(caller.call(wish.call, wish.body))
        case Work():
            return await _worked_async(wish, caller)
        case Rest():
            return await asyncio.sleep(caller.rest_s(wish.seconds))
        case Quiet():
            return await _quiet_async(replay)
        case OwnLine():
            return await _is_own_line(caller)


def _quiet(replay: Replay) -> None:
    while not replay.is_quiet:  # whoever ended the last step may have begun another one since
        quiet = threading.Event()
        replay.when_quiet(quiet.set)
        quiet.wait()


async def _quiet_async(replay: Replay) -> None:
    while not replay.is_quiet:
        quiet = asyncio.Event()
        replay.when_quiet(quiet.set)
        await quiet.wait()


async def _is_own_line(caller: Caller) -> bool:
    is_own = caller.own_line == line()
    if is_own:
        await asyncio.sleep(0)
    return is_own


def _worked(work: Work, caller: Caller) -> Any:
    caller.check_held()
    before = _step.set(work)
    caller.works += 1
    try:
        made = work.function()
    finally:
        caller.works -= 1
        _step.reset(before)
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise TypeError(
            f"the step {work.name!r} returned an awaitable; the steps of a def routine are plain functions"
        )
    return made


def _rested(until: float, caller: Caller) -> None:
    """Wait, and look each second whether the attempt still counts."""
    while (left_s := until - monotonic()) > 0:
        sleep(min(left_s, LOOK_S))
        caller.check_held()


async def _worked_async(work: Work, caller: Caller) -> Any:
    caller.check_held()
    before = _step.set(work)
    caller.works += 1
    try:
        made = work.function()
        return await _value(made, work) if inspect.isawaitable(made) else made
    finally:
        caller.works -= 1
        _step.reset(before)


async def _value(made: Awaitable[T], work: Work) -> T:
    try:
        async with asyncio.timeout(work.timeout_s) as limit:
            return await made
    except TimeoutError:
        if not limit.expired():
            raise  # the function's own
    raise TimeoutError(f"the step {work.name!r} was not done within {work.timeout_s:g} s, and was cancelled")


def _check(caller: Caller) -> None:
    caller.check_held()
    step = _step.get()
    if step is not None:
        raise RuntimeError(
            f"a durable call inside the step {step.name!r}: a step is done as a whole, so make the call beside it"
        )
