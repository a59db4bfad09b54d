"""What the host keeps of one isolated routine: its link, its two pipes of output, its keeper's socket, and its end.

Everything here runs in the thread of `Isolation`, and nothing waits. A `Cell` turns what comes into frames for the
agent; the outcome is held back until the process is gone, so that it carries what the routine cost.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from stateous_supervisor.host.attempt import Attempt, Speaker
from stateous_supervisor.host.orders import End, Ended, Ends, Started
from stateous_supervisor.host.outcomes import failed
from stateous_supervisor.host.pipes import DRAIN_READS_MAX, OutputPipe, line_of
from stateous_supervisor.link.frames import (
    FAULT_MARK,
    FRAME_BYTES_MAX,
    Began,
    Call,
    Frame,
    Logged,
    Noted,
    Outcome,
    Remembered,
    Run,
    ToAgent,
)
from stateous_supervisor.link.stream import LinkBroken, Unpacker, from_host, pack

READ_BYTES: Final = 65_536
# A process that has said its outcome may take this long to end.
LEAVE_S: Final = 3.0
# How long after SIGKILL the keeper may take to say that nothing is left.
BURY_S: Final = 5.0

_NEVER: Final = float("inf")
_MARK: Final = FAULT_MARK.encode()


class Cell:
    """One isolated routine, from `opened` to `close`. `due_at` is when it is settled whatever its process does."""

    def __init__(self, attempt: Attempt, frame: Run, speaker: Speaker) -> None:
        self.attempt = attempt
        self.frame = frame
        self.due_at = _NEVER
        self.is_hatched = False
        self.is_gone = True
        self.pid: int | None = None
        self._speaker = speaker
        self._link: socket.socket | None = None
        self._keeper: socket.socket | None = None
        self._pipes: list[OutputPipe] = []
        self._from_routine: Unpacker[ToAgent] = from_host()
        self._from_keeper: Unpacker[Started | Ended] = Unpacker(Started | Ended)
        self._unsent = bytearray()
        self._selector: selectors.BaseSelector | None = None
        self._outcome: Outcome | None = None
        self._ended: Ended | None = None
        self._fault = ""

    @contextmanager
    def opened(self, selector: selectors.BaseSelector) -> Iterator[Ends]:
        """Make sockets and pipes, watch our ends, and give the far ones, which are closed afterwards.

        Raises:
            OSError: there are no more descriptors; everything is closed then.
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            ours.callback(self._forget)
            self._link, link = _closing(ours, theirs, *socket.socketpair())
            self._keeper, keeper = _closing(ours, theirs, *socket.socketpair())
            far: list[int] = []
            for level in ("info", "warning"):
                read, write = os.pipe()
                ours.callback(os.close, read)
                theirs.callback(os.close, write)
                far.append(write)
                self._pipes.append(OutputPipe(read, level, self._print))
            for end in (self._link.fileno(), self._keeper.fileno(), *(pipe.fileno() for pipe in self._pipes)):
                os.set_blocking(end, False)
            yield Ends(link.fileno(), far[0], far[1], keeper.fileno())
            ours.pop_all()
        self._selector = selector
        selector.register(self._link, selectors.EVENT_READ, self._on_link)
        selector.register(self._keeper, selectors.EVENT_READ, self._on_keeper)
        for pipe in self._pipes:
            selector.register(pipe, selectors.EVENT_READ, lambda pipe=pipe: self._on_pipe(pipe))
        self.is_hatched = True
        self.is_gone = False

    def _forget(self) -> None:
        self._link = self._keeper = None
        self._pipes.clear()

    @property
    def is_over(self) -> bool:
        """Whether the process is gone, and its outcome can be settled."""
        return self.is_hatched and (self._ended is not None or self._keeper is None)

    def say(self, message: Frame) -> None:
        """Send a frame to the routine. One that does not read gets no more."""
        if self._link is not None and len(self._unsent) < FRAME_BYTES_MAX:
            self._unsent += pack([message])
            self._push()

    def end(self, grace_s: float) -> None:
        """Have the keeper end the routine and all that it started."""
        self.due_at = min(self.due_at, monotonic() + grace_s + BURY_S)
        if self._keeper is not None:
            with contextlib.suppress(OSError):
                self._keeper.send(pack([End(grace_s=grace_s)]))

    def outcome(self) -> Outcome:
        """Return how the attempt ended: what the routine said, or why it said nothing."""
        self._drain()
        ended, outcome = self._ended, self._outcome
        if outcome is None:
            outcome = failed(self.attempt.key, self._death(ended))
        if ended is not None:
            outcome.cpu_s, outcome.peak_bytes = round(ended.cpu_s, 4), ended.peak_bytes
        return outcome

    def finish(self, selector: selectors.BaseSelector) -> None:
        """The attempt is settled: let go of all but the keeper, which ends what the routine left running."""
        if self._link is not None:
            selector.unregister(self._link)
            self._link.close()
            self._link = None
        for pipe in self._pipes:
            with contextlib.suppress(KeyError):
                selector.unregister(pipe)
            pipe.close()
        self._pipes.clear()
        if self._ended is None:
            self.end(self.frame.confinement.grace_s)

    def close(self, selector: selectors.BaseSelector) -> None:
        """The keeper is gone too."""
        if self._keeper is not None:
            selector.unregister(self._keeper)
            self._keeper.close()
            self._keeper = None

    def let_go(self) -> None:
        """Close everything in a fork of this process."""
        for end in (self._link, self._keeper, *self._pipes):
            if end is not None:
                end.close()

    # What comes.

    def _on_link(self) -> None:
        self._push()
        if not self._read_link() and self._link is not None and self._selector is not None:
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None

    def _read_link(self) -> bool:
        """Read once. False: the routine has closed its end, or said what nobody can read."""
        if self._link is None:
            return False
        try:
            received = self._link.recv(READ_BYTES)
            for message in self._from_routine.feed(received):
                self._take(message)
        except BlockingIOError:
            return True
        except LinkBroken as error:
            self._fault = f"it broke its link: {error}"
            return False
        except OSError:
            return False
        return bool(received)

    def _take(self, message: ToAgent) -> None:
        """Pass on what belongs to this attempt; after its outcome nothing does, after its loss only its end (A-30)."""
        attempt = self.attempt
        if isinstance(message, Logged):
            self._speaker.say(message)
        if self._outcome is not None or not isinstance(message, Began | Noted | Remembered | Call | Outcome):
            return
        if (message.task, message.attempt) != attempt.key:
            return
        if isinstance(message, Outcome):
            self._outcome = message
            self.due_at = min(self.due_at, monotonic() + LEAVE_S)
        elif isinstance(message, Began):
            attempt.began_at = message.at
            self._speaker.post(message)
        elif attempt.stop is None:
            self._speaker.post(message)

    def _on_keeper(self) -> None:
        try:
            received = self._keeper.recv(READ_BYTES) if self._keeper is not None else b""
            for message in self._from_keeper.feed(received):
                if isinstance(message, Ended):
                    self._ended = message
                else:
                    self.pid = message.pid
        except BlockingIOError:
            return
        except (OSError, LinkBroken):
            received = b""
        if not received:
            self.is_gone = True
            if self._selector is not None:
                self.close(self._selector)

    def _on_pipe(self, pipe: OutputPipe) -> None:
        if not pipe.read() and self._selector is not None:
            self._selector.unregister(pipe)

    def _drain(self) -> None:
        """Read what the process left in its link and its pipes. Somebody it started may write on for ever."""
        reads = 0
        while self._link is not None and reads < DRAIN_READS_MAX and self._read_link_again():
            reads += 1
        for pipe in self._pipes:
            pipe.drain()

    def _read_link_again(self) -> bool:
        if self._link is None:
            return False
        with contextlib.suppress(OSError):
            return bool(self._link.recv(1, socket.MSG_PEEK)) and self._read_link()
        return False

    def _push(self) -> None:
        if self._unsent and self._link is not None:
            with contextlib.suppress(OSError):
                del self._unsent[: self._link.send(self._unsent)]
            if self._selector is not None:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
                self._selector.modify(self._link, wanted, self._on_link)

    def _print(self, level: str, line: bytes) -> None:
        if line.startswith(_MARK):
            self._fault = line[len(_MARK) :].decode("utf-8", "replace")
        self._speaker.say(line_of(self.attempt.key, level, line))

    def _death(self, ended: Ended | None) -> str:
        """Say why there is no outcome."""
        if ended is None:
            gone = "its keeper was killed" if self.is_hatched else "it was not started"
            return f"the routine's process gave no result: {gone}"
        if ended.code >= 0:
            why = f": {self._fault}" if self._fault else ""
            return f"the routine's process ended with exit code {ended.code} before it gave a result{why}"
        why = f"the routine's process was killed by signal {-ended.code} ({_name(-ended.code)})"
        if ended.is_out_of_memory:
            return f"{why}, out of memory"
        return f"{why}, maybe out of memory" if -ended.code == signal.SIGKILL else why


def _closing(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack, near: socket.socket, far: socket.socket
) -> tuple[socket.socket, socket.socket]:
    ours.callback(near.close)
    theirs.callback(far.close)
    return near, far


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
