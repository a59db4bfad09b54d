"""The host's end of the link. One thread reads and writes it, and nothing else does.

That thread runs no user code and takes no Python signal, so a frame is always whole. What is there goes out as one
frame. It also keeps the time for the host: pulses, timeouts, repeated cancels. The end of the link ends the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
from collections import Counter, deque
from time import monotonic
from typing import Final, Protocol

from stateous_supervisor.host.fatal import Guard
from stateous_supervisor.link.frames import Frame, Logged, ToHost
from stateous_supervisor.link.stream import LinkBroken, from_agent, pack

RECEIVE_BYTES: Final = 262_144
PULSE_S: Final = 0.5
# Unsent log lines beyond this are dropped and counted: a routine that prints for ever must not fill the memory.
LOG_LINES_MAX: Final = 5_000


class Owner(Protocol):
    """What the link's thread calls. None of it may wait."""

    def on_messages(self, messages: list[ToHost]) -> None: ...
    def on_pulse(self) -> None: ...
    def on_tick(self, now: float) -> float: ...
    def on_end(self) -> None: ...
    def on_fault(self, error: BaseException) -> None: ...


class _Awaited:
    """A frame whose sender waits until it is in the socket pair."""

    __slots__ = ("frame", "sent")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.sent = threading.Lock()
        self.sent.acquire()


class Link:
    """Frames to and from the agent. `start` begins the thread; `loop` is the one whose turns make frames, if any."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop | None, owner: Owner) -> None:
        self._sock = sock
        # Taken before user code runs, which may replace them in the class.
        self._recv, self._send_some = sock.recv, sock.send
        self._loop = loop
        self._owner = owner
        self._unpacker = from_agent()
        self._queue: deque[Frame | _Awaited] = deque()
        self._unsent = memoryview(b"")
        self._waiters: list[_Awaited] = []
        self._logs_dropped: Counter[tuple[int | None, int | None]] = Counter()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._is_woken = False
        self._is_turn_open = False
        self._is_over = False
        self._is_gone = False
        self._loop_thread = threading.get_ident()

    def start(self) -> None:
        """Begin to read and write. Called in the loop's thread."""
        self._sock.setblocking(False)
        threading.Thread(target=self._live, name="link", daemon=True).start()

    def post(self, frame: Frame) -> None:
        """Send `frame` soon: from the loop with all of this turn, from another thread at once."""
        self._queue.append(frame)
        if self._loop is None or threading.get_ident() != self._loop_thread:
            self.wake()
        elif not self._is_turn_open:
            self._is_turn_open = True
            self._loop.call_soon(self._end_turn)

    def post_now(self, frame: Frame) -> None:
        """Return when `frame` is in the socket pair. Never called in the link's own thread."""
        awaited = _Awaited(frame)
        self._queue.append(awaited)
        self.wake()
        if not self._is_gone:
            awaited.sent.acquire()

    def say(self, line: Logged) -> None:
        """Send a log line soon, or drop and count it when too many wait."""
        if len(self._queue) >= LOG_LINES_MAX:
            self._logs_dropped[line.task, line.attempt] += 1
        else:
            self.post(line)

    def wake(self) -> None:
        """Have the link's thread look."""
        if not self._is_woken and not self._is_gone:
            self._is_woken = True
            with contextlib.suppress(BlockingIOError):  # It is full of wakes.
                os.write(self._wake_write, b"\0")

    def close(self) -> None:
        """Send what is there, then end the thread and the link. From any thread."""
        self._is_over = True
        self.wake()

    def let_go(self) -> None:
        """In a forked child, which has no such thread: say nothing, and make nobody wait."""
        self._is_gone = True
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):  # User code may have closed every descriptor that there is.
            self._sock.close()

    def _end_turn(self) -> None:
        self._is_turn_open = False
        self.wake()

    def _live(self) -> None:
        with Guard(self._owner.on_fault):  # A host whose link says nothing would be kept for ever.
            self._serve()
        self._leave()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        pulse_at = monotonic() + PULSE_S
        due_at = pulse_at
        while True:
            wait_s = max(0.0, min(pulse_at, due_at) - monotonic())
            ready = dict(poll.poll(wait_s * 1_000 + 1))
            self._clear_wake()
            if ready.get(self._sock.fileno(), 0) & ~select.POLLOUT and not self._receive():
                break
            now = monotonic()
            if now >= pulse_at:
                pulse_at = now + PULSE_S
                self._owner.on_pulse()
            due_at = self._owner.on_tick(now)
            if not self._send():
                break
            if self._is_over and not self._queue and not self._unsent:
                break
            poll.modify(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def _leave(self) -> None:
        """Let go of the link, and of everybody who waits for it."""
        self._is_gone = True
        self._close()
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, _Awaited):
                self._waiters.append(item)
        for waiter in self._waiters:
            waiter.sent.release()
        self._owner.on_end()
        for end in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(end)

    def _clear_wake(self) -> None:
        if self._is_woken:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4_096)
            # Cleared after the read and before the queue is looked at: a frame that comes now wakes again.
            self._is_woken = False

    def _receive(self) -> bool:
        """Read what is there. Returns False at the end of the link."""
        try:
            received = self._recv(RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not received:
            return False
        try:
            messages = self._unpacker.feed(received)
        except LinkBroken:
            return False
        if messages:
            self._owner.on_messages(messages)
        return True

    def _send(self) -> bool:
        """Write what is there and fits. Returns False at the end of the link."""
        while True:
            if not self._unsent and not self._take():
                return True
            try:
                sent = self._send_some(self._unsent)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            self._unsent = self._unsent[sent:]
            if not self._unsent:
                for waiter in self._waiters:
                    waiter.sent.release()
                self._waiters.clear()

    def _take(self) -> bool:
        """Make one frame of everything in the queue."""
        frames: list[Frame] = []
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, _Awaited):
                self._waiters.append(item)
                item = item.frame
            frames.append(item)
        if self._logs_dropped:
            dropped, self._logs_dropped = self._logs_dropped, Counter()
            frames += [_dropped(number, *owner) for owner, number in dropped.items()]
        if frames:
            self._unsent = memoryview(pack(frames))
        return bool(frames)


def _dropped(number: int, task: int | None, attempt: int | None) -> Logged:
    text = f"{number} log lines were dropped: too many at once"
    return Logged(level="warning", text=text, task=task, attempt=attempt)
