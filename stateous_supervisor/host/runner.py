"""Runs routines: `async def` on the loop, `def` in threads, one outcome for each grant whatever the routine does.

The link's thread calls `run`, `cancel`, `held` and `tick`; routines end on the loop, in their threads, or in a process
of their own, which `Apart` watches. This is the boundary where user code's exceptions are caught, all of them (A-19).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, Final

from stateous_supervisor.host import grants, shelter
from stateous_supervisor.host.attempt import PARKED, Attempt, Speaker, Stop
from stateous_supervisor.host.discovery import Routine, Served
from stateous_supervisor.host.failures import describe, is_plain, leave_out
from stateous_supervisor.host.fatal import Fault, Guard
from stateous_supervisor.host.outcomes import dropped, failed, outcome_of, parked, raised
from stateous_supervisor.host.places import Apart, Starter
from stateous_supervisor.host.streams import current, end_lines
from stateous_supervisor.host.threads import Threads
from stateous_supervisor.link.frames import (
    Answer,
    Began,
    Cancel,
    HeldUntil,
    Outcome,
    PauseTask,
    Run,
    ToHost,
    timed_out,
)
from stateous_supervisor.sdk.context import BaseContext
from stateous_supervisor.sdk.driving import drive, drive_async, line
from stateous_supervisor.sdk.endings import FeatureMissing, InputInvalid

# A cancelled routine has this long to clean up before it is cancelled again; after CANCELS_MAX it is abandoned.
CANCEL_AGAIN_S: Final = 2.0
CANCELS_MAX: Final = 3

_NEVER: Final = float("inf")

leave_out(__file__)


class Runner:
    """All attempts of one host. `running` maps a task to its attempt; `abandoned` go on although they are over.

    Args:
        loop: where `async def` routines run.
        speaker: brings frames to the agent.
        cancel_again_s: how long a cancelled routine may clean up before it is cancelled again.
        apart: runs isolated routines; without it they run here like all others.
        main: where the one `def` routine runs whose process this is; a stop then leaves it to signals.
        on_fault: called when an attempt cannot be ended in any way. `look` is called before an outcome is said.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        speaker: Speaker,
        *,
        cancel_again_s: float = CANCEL_AGAIN_S,
        apart: Apart | None = None,
        main: Starter | None = None,
        on_fault: Fault,
    ) -> None:
        self.look: Callable[[], None] = lambda: None
        self.routines: Mapping[Served, Routine] = {}
        self.running: dict[int, Attempt] = {}
        self.abandoned: set[Attempt] = set()
        self._loop = loop
        self._speaker = speaker
        self._cancel_again_s = cancel_again_s
        self._apart = apart
        self._can_abandon = main is None
        self._threads: Starter = main or Threads()
        self._starts: deque[Attempt] = deque()
        self._timed: set[Attempt] = set()
        self._next_due = _NEVER
        self._on_fault = on_fault
        self.has_worked = False

    # Called by the link's thread.

    def run(self, frames: list[Run]) -> None:
        """Start the routine of each grant."""
        are_waiting = False
        for frame in frames:
            attempt = self._admit(frame)
            if attempt is None:
                continue
            if self._apart is not None and attempt.is_isolated:
                self._apart.start(attempt, frame)
            elif attempt.routine.is_async:
                self._starts.append(attempt)
                are_waiting = True
            else:
                self._start_thread(attempt)
        if are_waiting:
            self._loop.call_soon_threadsafe(self._start_waiting)

    def take(self, frame: ToHost) -> None:
        """Do what the agent says about an attempt that runs; any other frame is not the runner's."""
        if isinstance(frame, Cancel):
            self.cancel(frame)
        elif isinstance(frame, HeldUntil):
            self.held(frame)
        elif isinstance(frame, Answer):
            self.answer(frame)
        elif isinstance(frame, PauseTask):
            self.pause(frame)

    def cancel(self, frame: Cancel) -> None:
        """Let go of an attempt (A-30). An older or newer attempt of its task is not touched (A-31)."""
        attempt = self._named(frame)
        if attempt is not None:
            self._stop(attempt, Stop(frame.cause))

    def answer(self, frame: Answer) -> None:
        """Bring an answer to the routine that waits for it; one that parks the task ends the attempt."""
        attempt = self._named(frame)
        if attempt is None or self._is_passed_on(attempt, frame):
            return
        if frame.is_parked and attempt.stop is None:
            # Stopped first: whatever the routine makes of the news, it ends parked (DX-06).
            attempt.stop = Stop(PARKED)
            self._set_due(attempt, monotonic() + self._cancel_again_s)
        attempt.answer(frame)

    def pause(self, frame: PauseTask) -> None:
        """Take note that a person asked for a pause."""
        attempt = self._named(frame)
        if attempt is not None and not self._is_passed_on(attempt, frame):
            attempt.ask_to_pause()

    def held(self, frame: HeldUntil) -> None:
        """Take note of a renewed lease."""
        until = monotonic() + frame.lease_s
        for task in frame.tasks:
            attempt = self.running.get(task)
            if attempt is not None:
                attempt.held_until = until
                self._is_passed_on(attempt, HeldUntil(tasks=[task], lease_s=frame.lease_s))

    def cancel_all(self, cause: str) -> None:
        """Let go of everything."""
        for attempt in list(self.running.values()):
            self._stop(attempt, Stop(cause))

    def tick(self, now: float) -> float:
        """Do what is due: timeouts, repeated cancels. Returns when something is due next."""
        if now >= self._next_due:
            self._next_due = _NEVER
            for attempt in list(self._timed):
                if attempt.due_at is not None and attempt.due_at <= now:
                    self._on_due(attempt)
                if attempt in self._timed and attempt.due_at is not None:
                    self._next_due = min(self._next_due, attempt.due_at)
        return self._next_due

    def settle(self, attempt: Attempt, outcome: Outcome) -> None:
        """End an isolated attempt, whose process is gone. From the thread of `Apart`."""
        if attempt.stop is not None:
            stopped = self._stopped(attempt)
            stopped.cpu_s, stopped.peak_bytes = outcome.cpu_s, outcome.peak_bytes
            outcome = stopped
        self._end(attempt, outcome)

    def look_after(self) -> None:
        """Settle what an interrupted main thread forgot; called twice a second.

        A signal handler of user code may raise anywhere in the main thread, also between a routine's return and its
        outcome.
        """
        if self._starts:
            self._loop.call_soon_threadsafe(self._start_waiting)
        for attempt in list(self.running.values()):
            if not attempt.began_at and attempt.thread is not None and not attempt.thread.is_alive():
                self._end(attempt, failed(attempt.key, "no thread for the routine: it ended before it ran"))
            future = attempt.future
            if future is None or not future.done() or attempt.is_over:
                continue
            if attempt.was_seen_done:
                text = "the host was interrupted (by a signal handler, for one) before the routine's end was seen"
                self._end(attempt, failed(attempt.key, text))
            attempt.was_seen_done = True

    @property
    def is_idle(self) -> bool:
        return not self.running and not self._starts

    def _named(self, frame: Cancel | Answer | PauseTask) -> Attempt | None:
        attempt = self.running.get(frame.task)
        return attempt if attempt is not None and attempt.attempt == frame.attempt else None

    def _is_passed_on(self, attempt: Attempt, frame: ToHost) -> bool:
        """Pass a frame on to the process of an isolated routine. False: the routine runs here."""
        if self._apart is None or not attempt.is_isolated:
            return False
        self._apart.pass_on(attempt, frame)
        return True

    def _admit(self, frame: Run) -> Attempt | None:
        """Make an attempt of a grant, or refuse it with a failed outcome."""
        read = grants.read(frame, self.routines)
        if not isinstance(read, tuple):
            self._speaker.post(read)
            return None
        grant, routine = read
        earlier = self.running.get(grant.task)
        if earlier is not None:
            if earlier.attempt >= grant.attempt:
                return None
            self._stop(earlier, Stop("attempt_over"))
        attempt = Attempt(grant, routine, self._speaker, frame.lease_s)
        attempt.is_isolated = (frame.confinement.isolation or routine.isolation) == "process"
        self.running[grant.task] = attempt
        timeout_s = frame.timeout_s if frame.timeout_s is not None else routine.timeout_s
        if timeout_s is not None:
            attempt.timeout_s = timeout_s
            self._set_due(attempt, monotonic() + timeout_s)
        return attempt

    def _start_thread(self, attempt: Attempt) -> None:
        try:
            attempt.thread = self._threads.start(partial(self._run_sync, attempt))
        except Exception as error:  # User code may have replaced what starts threads.
            self._end(attempt, failed(attempt.key, f"no thread for the routine: {describe(error).text}"))

    # Stopping.

    def _stop(self, attempt: Attempt, stop: Stop) -> None:
        if attempt.stop is not None or attempt.is_over:
            return
        attempt.stop = stop
        attempt.release()
        if self._apart is not None and attempt.is_isolated:
            self._timed.discard(attempt)
            self._apart.stop(attempt, stop.cause)
        elif attempt.routine.is_async:
            self._cancel_again(attempt)
        elif self._can_abandon:
            self._abandon(attempt)

    def _on_due(self, attempt: Attempt) -> None:
        self._timed.discard(attempt)
        if attempt.stop is None:
            self._stop(attempt, Stop("timeout", error=timed_out(attempt.timeout_s)))
        elif attempt.stop.cancels < CANCELS_MAX:
            self._cancel_again(attempt)
        else:
            self._abandon(attempt)

    def _cancel_again(self, attempt: Attempt) -> None:
        stop = attempt.stop
        if stop is not None:
            stop.cancels += 1
            self._set_due(attempt, monotonic() + self._cancel_again_s)
            self._loop.call_soon_threadsafe(attempt.cancel_routine)

    def _abandon(self, attempt: Attempt) -> None:
        """End the attempt without its routine, which may go on for ever (A-30, A-34)."""
        self.abandoned.add(attempt)
        outcome = self._stopped(attempt)
        outcome.is_abandoned = True
        self._end(attempt, outcome)

    def _stopped(self, attempt: Attempt) -> Outcome:
        stop = attempt.stop
        if stop is not None and stop.cause == PARKED:
            return parked(attempt.key)
        if stop is None or stop.error is None:
            return dropped(attempt.key, "" if stop is None else stop.cause)
        return failed(attempt.key, stop.error)

    def _set_due(self, attempt: Attempt, at: float) -> None:
        attempt.due_at = at
        self._timed.add(attempt)
        self._next_due = min(self._next_due, at)

    # On the loop.

    def _start_waiting(self) -> None:
        while self._starts:
            attempt = self._starts[0]
            if attempt.future is None:
                # Not by the loop's `create_task`: user code may have set a factory.
                attempt.future = asyncio.Task(self._run_async(attempt), loop=self._loop)
            self._starts.popleft()

    async def _run_async(self, attempt: Attempt) -> None:
        with Guard(partial(self._fail, attempt)):
            await self._run_async_def(attempt)

    async def _run_async_def(self, attempt: Attempt) -> None:
        if attempt.stop is not None:
            self._end(attempt, self._stopped(attempt))
            return
        self._begin(attempt)
        try:
            context = attempt.context()
            returned = await attempt.routine.function(*attempt.arguments(context))
            if attempt.is_strict:
                await drive_async(*context.ending(), attempt)
            outcome = self._outcome(attempt, returned, context)
        except BaseException as error:
            self._on_raised(attempt, error, can_wait=False)
        else:
            self._end(attempt, outcome)

    # In a thread.

    def _run_sync(self, attempt: Attempt) -> None:
        with Guard(partial(self._fail, attempt)):
            self._run_def(attempt)

    def _run_def(self, attempt: Attempt) -> None:
        if attempt.is_over:
            self.abandoned.discard(attempt)
            return
        self._begin(attempt)
        try:
            context = attempt.context()
            returned = attempt.routine.function(*attempt.arguments(context))
            if attempt.is_strict:
                drive(*context.ending(), attempt)
            outcome = self._outcome(attempt, returned, context)
        except BaseException as error:
            self._on_raised(attempt, error, can_wait=True)
        else:
            self._end(attempt, outcome)

    # Both.

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        """Fail an attempt whose own end was not to be had; where even that fails, so would the next one."""
        with Guard(self._on_fault):
            if not attempt.is_over:
                self._end(attempt, raised(attempt.key, describe(error), is_retryable=True))

    def _begin(self, attempt: Attempt) -> None:
        self.has_worked = True
        current.set(attempt.key)
        attempt.began_at = monotonic()
        attempt.own_line = line()
        began = Began(task=attempt.task, attempt=attempt.attempt, at=attempt.began_at)
        if self._can_abandon:
            self._speaker.post(began)
        else:
            # A routine alone in its process may hold the interpreter's lock, or die, from its first line on.
            self._speaker.post_now(began)

    def _outcome(self, attempt: Attempt, returned: Any, context: BaseContext[Any]) -> Outcome:
        self.look()
        if attempt.stop is not None:
            return self._stopped(attempt)
        outcome = outcome_of(returned, attempt.routine.ref, context)
        outcome.unmet = context.unmet()
        return outcome

    def _on_raised(self, attempt: Attempt, error: BaseException, *, can_wait: bool) -> None:
        shelter.end_if_forked(error)
        self.look()
        if attempt.stop is not None:
            self._end(attempt, self._stopped(attempt))
        elif can_wait or is_plain(error):
            is_retryable = not isinstance(error, FeatureMissing | InputInvalid)
            self._end(attempt, raised(attempt.key, describe(error), is_retryable=is_retryable))
        else:
            # Its text may take seconds; the loop must not wait for it, and this task is about to be done.
            attempt.future = None
            threading.Thread(
                target=self._on_raised, args=(attempt, error), kwargs={"can_wait": True}, daemon=True
            ).start()

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """End the attempt, once; where it is over already its routine has ended late."""
        shelter.end_if_forked(None)
        if not attempt.take_end():
            self.abandoned.discard(attempt)
            end_lines(attempt.key)
            return
        try:
            attempt.release()
            self._timed.discard(attempt)
            if self.running.get(attempt.task) is attempt:
                del self.running[attempt.task]
            end_lines(attempt.key)
            outcome.duration_s = monotonic() - attempt.began_at if attempt.began_at else 0.0
        finally:  # A signal handler of user code may raise anywhere in here; nobody else says the outcome.
            self._speaker.post(outcome)
