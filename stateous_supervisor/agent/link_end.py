"""The agent's end of the link: a non-blocking socket, read and written without ever waiting on a write.

What the host does not read is kept; beyond `UNSENT_BYTES_MAX` the host counts as stalled and gets no more
work. Used by hosts in a child process and by the one inside this process.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Final

import anyio
import anyio.lowlevel

from stateous_supervisor.agent.wake import Wake
from stateous_supervisor.link.frames import Frame, ToAgent
from stateous_supervisor.link.stream import LinkBroken, from_host, pack

RECEIVE_BYTES: Final = 262_144
UNSENT_BYTES_MAX: Final = 8 * 1_048_576


class LinkEnded(Exception):
    """Nothing more will come over the link."""


class LinkEnd:
    """One end of a socket pair. `serve` must run while it is used; it sends what did not go at once."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._unpacker = from_host()
        self._unsent = bytearray()
        self._wake = Wake()
        self._serving = anyio.CancelScope()
        self._is_over = False

    @property
    def is_stalled(self) -> bool:
        return len(self._unsent) > UNSENT_BYTES_MAX

    def send(self, messages: Sequence[Frame]) -> None:
        """Send messages as one frame: now, as far as the socket takes it, the rest when it takes more."""
        if self._is_over:
            return
        was_idle = not self._unsent
        self._unsent += pack(messages)
        if was_idle and not self._push():
            self._wake.ring()

    async def receive(self) -> list[ToAgent]:
        """Return the next messages, at least one.

        Raises:
            LinkEnded: the other side is gone, or sent what is no frame.
        """
        while True:
            try:
                received = self._sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            except OSError as error:
                raise LinkEnded(f"its link broke: {error.strerror}") from None
            if not received:
                raise LinkEnded("it closed its link")
            try:
                messages = self._unpacker.feed(received)
            except LinkBroken as error:
                raise LinkEnded(f"it broke its link: {error}") from None
            if messages:
                return messages

    async def serve(self) -> None:
        """Send what `send` left over, for ever."""
        with self._serving:
            while True:
                await self._wake.wait()
                while self._unsent and not self._is_over:
                    await anyio.wait_writable(self._sock)
                    if self._push():
                        break

    def finish(self) -> None:
        """The other side is known to be gone: what it sent is still read, then the link ends."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Close the socket, once nobody waits on it any more."""
        self._is_over = True
        self._serving.cancel()
        await anyio.lowlevel.checkpoint()
        self._sock.close()

    def _push(self) -> bool:
        """Send as much as goes; return whether all went or nothing ever will."""
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:  # the host is gone; `receive` says so
            self._unsent.clear()
        return True
