"""Waits and children as routines make them: plain calls for `def`, awaited ones for `async def`, with one meaning.

Each has a course of `waits.py` followed. Whatever waits parks: no slot, connection or memory is held (S2-24, S2-25).
"""

# ruff: noqa: ASYNC109  these timeouts are the control plane's, and no task waits here for as long
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, overload

from stateous_supervisor.sdk import waits
from stateous_supervisor.sdk.calls import Calls
from stateous_supervisor.sdk.driving import drive, drive_async
from stateous_supervisor.sdk.durable import Course
from stateous_supervisor.sdk.marks import routine_named
from stateous_supervisor.sdk.waiting import Awaited, Child, Ended, Finished, Received, Sleep, TimedOut

I = TypeVar("I")  # noqa: E741
T = TypeVar("T")


class PlainWaits(Calls):
    """The waits of a `def` routine. All raise `Parked` while nothing has come: let it through."""

    __slots__ = ()

    def sleep_for(self, name: str, duration: float | str, *, occurrence: int | None = None) -> None:
        """Sleep for a time that counts from the first park; a replay comes by once it is over (S2-09, S2-10).

        Args:
            name: names the sleep, among the names of steps.
            duration: seconds, or text such as ``"6h"``; the database's clock measures it.
            occurrence: which time this is, from 1, where the code does not come by in order.

        Raises:
            Parked: the time has not come. FeatureMissing: the control plane has no waits.
            TypeError, ValueError: an argument is not what it may be.
        """
        self._follow(waits.sleep(self._replay(), name, Sleep(duration), occurrence))

    def sleep_until(self, name: str, moment: datetime, *, occurrence: int | None = None) -> None:
        """Sleep until a moment, which has its offset from UTC; one that is past is come by at once."""
        self._follow(waits.sleep(self._replay(), name, Sleep(moment), occurrence))

    @overload
    def wait_for_signal(
        self, name: str, *, timeout: None = None, occurrence: int | None = None
    ) -> Received: ...
    @overload
    def wait_for_signal(
        self, name: str, *, timeout: float | str, occurrence: int | None = None
    ) -> Received | TimedOut: ...
    def wait_for_signal(
        self, name: str, *, timeout: float | str | None = None, occurrence: int | None = None
    ) -> Received | TimedOut:
        """Wait for a signal to this task or its token; one that was sent before is kept for it (S2-32, DX-09).

        Args:
            name: of the signal. Each signal ends one wait.
            timeout: after which time `TimedOut` comes back, which is false: seconds, or text such as ``"2d"``.
            occurrence: which wait for that signal this is, from 1, where the code does not come by in order.
        """
        return self._follow(waits.signal(self._replay(), name, timeout, occurrence))

    @overload
    def wait_for_result(self, child: Child | int, *, timeout: None = None) -> Finished: ...
    @overload
    def wait_for_result(self, child: Child | int, *, timeout: float | str) -> Finished | TimedOut: ...
    def wait_for_result(
        self, child: Child | int, *, timeout: float | str | None = None
    ) -> Finished | TimedOut:
        """Wait for the end of a child; `Finished.value` is what it returned (S2-33).

        Args:
            child: what `spawn` returned. Anything but a child of this task is refused (S2-36).
            timeout: after which time the child, and all that it started, is cancelled and `TimedOut` comes back.
        """
        return self._follow(waits.result(self._replay(), child, timeout))

    def first(
        self,
        name: str,
        *wait: Awaited,
        timeout: float | str | None = None,
        occurrence: int | None = None,
    ) -> Ended:
        """Wait for whichever of several things comes first: `Sleep`, `Signal` and `Result`.

        Of the others no signal is taken and no child is cancelled. `index` says which it was.

        Args:
            name: names the wait, among the names of steps.
            wait: what is waited for; 1 to 100.
            timeout: after which time `TimedOut` comes back.
            occurrence: which time this is, from 1, where the code does not come by in order.
        """
        return self._follow(waits.first(self._replay(), name, wait, timeout, occurrence))

    @overload
    def spawn(
        self,
        routine: Callable[[Any, I], Any],
        given: I,
        *,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child: ...
    @overload
    def spawn(
        self,
        routine: str,
        given: Any = None,
        *,
        version: int = 1,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child: ...
    def spawn(
        self,
        routine: Any,
        given: Any = None,
        *,
        version: int = 1,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child:
        """Start a routine as a child of this task, once: a replay is given the same child (S2-34).

        It runs wherever its routine is served, and is cancelled when this task ends before it (S2-38).

        Args:
            routine: one that is marked with `routine`, or its name.
            given: its input; JSON.
            version: of the routine, where it is named; a marked one has its own.
            name: names the child within this task; without it that is the routine's name.
            retries: how often it is tried again.
            occurrence: which child of that name this is, from 1, where the code does not come by in order.

        Raises:
            TypeError, ValueError: an argument is not what it may be. FeatureMissing: the control plane has no children.
        """
        whom = (*routine_named(routine, version), given)
        return self._follow(waits.spawn(self._replay(), whom, name, retries, occurrence))

    def _follow(self, course: Course[T]) -> T:
        return drive(course, self._replay(), self._caller())


class AwaitedWaits(Calls):
    """The waits of an `async def` routine: as `PlainWaits` has them, and awaited. Side by side, use `first`."""

    __slots__ = ()

    async def sleep_for(self, name: str, duration: float | str, *, occurrence: int | None = None) -> None:
        """Sleep for a time, as `PlainWaits.sleep_for` does."""
        await self._follow(waits.sleep(self._replay(), name, Sleep(duration), occurrence))

    async def sleep_until(self, name: str, moment: datetime, *, occurrence: int | None = None) -> None:
        """Sleep until a moment, as `PlainWaits.sleep_until` does."""
        await self._follow(waits.sleep(self._replay(), name, Sleep(moment), occurrence))

    @overload
    async def wait_for_signal(
        self, name: str, *, timeout: None = None, occurrence: int | None = None
    ) -> Received: ...
    @overload
    async def wait_for_signal(
        self, name: str, *, timeout: float | str, occurrence: int | None = None
    ) -> Received | TimedOut: ...
    async def wait_for_signal(
        self, name: str, *, timeout: float | str | None = None, occurrence: int | None = None
    ) -> Received | TimedOut:
        """Wait for a signal, as `PlainWaits.wait_for_signal` does."""
        return await self._follow(waits.signal(self._replay(), name, timeout, occurrence))

    @overload
    async def wait_for_result(self, child: Child | int, *, timeout: None = None) -> Finished: ...
    @overload
    async def wait_for_result(self, child: Child | int, *, timeout: float | str) -> Finished | TimedOut: ...
    async def wait_for_result(
        self, child: Child | int, *, timeout: float | str | None = None
    ) -> Finished | TimedOut:
        """Wait for the end of a child, as `PlainWaits.wait_for_result` does."""
        return await self._follow(waits.result(self._replay(), child, timeout))

    async def first(
        self,
        name: str,
        *wait: Awaited,
        timeout: float | str | None = None,
        occurrence: int | None = None,
    ) -> Ended:
        """Wait for whichever of several things comes first, as `PlainWaits.first` does."""
        return await self._follow(waits.first(self._replay(), name, wait, timeout, occurrence))

    @overload
    async def spawn(
        self,
        routine: Callable[[Any, I], Any],
        given: I,
        *,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child: ...
    @overload
    async def spawn(
        self,
        routine: str,
        given: Any = None,
        *,
        version: int = 1,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child: ...
    async def spawn(
        self,
        routine: Any,
        given: Any = None,
        *,
        version: int = 1,
        name: str | None = None,
        retries: int = 0,
        occurrence: int | None = None,
    ) -> Child:
        """Start a routine as a child of this task, as `PlainWaits.spawn` does."""
        whom = (*routine_named(routine, version), given)
        return await self._follow(waits.spawn(self._replay(), whom, name, retries, occurrence))

    async def _follow(self, course: Course[T]) -> T:
        return await drive_async(course, self._replay(), self._caller())
