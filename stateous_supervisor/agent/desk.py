"""The agent's socket on the box: who may read the state folder asks it how it is, to reload or to drain (A-57, A-60).

A Unix socket in the state folder, mode 0600, and only for the agent's own user and root. One line of JSON comes in,
one goes out, then it is closed; no network, no control plane. Nobody who asks can hold the agent up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream

SOCKET: Final = "agent.sock"
ASK_BYTES_MAX: Final = 4_096
ASK_S: Final = 5.0
ANSWER_S: Final = 10.0
ASKING_MAX: Final = 32
PATH_BYTES_MAX: Final = 100  # what every system allows in the address of a Unix socket

Answer = Callable[[], Awaitable[bytes]]


class Asked(msgspec.Struct):
    """What a command asks for: `status`, `reload` or `drain`."""

    ask: str


class Refusal(msgspec.Struct):
    """Why there is no answer."""

    error: str


@contextlib.contextmanager
def address(folder: Path) -> Iterator[str]:
    """Give an address of the socket in a state folder that is short enough, however long the folder's path is.

    Raises:
        OSError: the folder is not there, or this system has no shorter name for it.
    """
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


class Desk:
    """Answers at the socket.

    Args:
        folder: the state folder, which this process has locked.
        answers: what gives the answer to each question.

    `is_settled` is set once the socket can be asked, or cannot be made.
    """

    def __init__(self, folder: Path, answers: Mapping[str, Answer]) -> None:
        self._folder = folder
        self._answers = answers
        self._open = 0
        self._idle = anyio.Event()
        self.is_settled = anyio.Event()

    async def serve(self) -> None:
        """Answer until cancelled.

        Raises:
            OSError: there can be no socket in that folder.
        """
        with address(self._folder) as path:
            try:
                listener = await anyio.create_unix_listener(path, mode=0o600)
            finally:
                self.is_settled.set()
            try:
                async with listener:
                    await listener.serve(self._attend)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108  the path may be one of /proc

    async def finish(self, within_s: float) -> None:
        """Let those who have been answered read it, before the process ends."""
        with anyio.move_on_after(within_s):
            while self._open:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def _attend(self, stream: SocketStream) -> None:
        async with stream:
            peer = stream.extra(SocketAttribute.raw_socket)  # noqa: S610  no query is made here
            if self._open >= ASKING_MAX or not is_allowed(peer):
                return
            self._open += 1
            try:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
                    await self._answer(stream)
            finally:
                self._open -= 1
                self._idle.set()

    async def _answer(self, stream: SocketStream) -> None:
        line = b""
        with anyio.fail_after(ASK_S):
            while b"\n" not in line and len(line) <= ASK_BYTES_MAX:
                line += await stream.receive()
        try:
            asked = msgspec.json.decode(line.partition(b"\n")[0], type=Asked).ask
            answer = self._answers[asked]
        except (msgspec.DecodeError, KeyError):
            known = ", ".join(self._answers)
            said = msgspec.json.encode(
                Refusal(error=f"this agent does not know what is asked; it knows {known}")
            )
        else:
            try:
                said = await answer()
            except Exception as error:  # the boundary: a fault in an answer must not end the agent
                said = msgspec.json.encode(Refusal(error=repr(error)))
        with anyio.fail_after(ANSWER_S):
            await stream.send(said + b"\n")


def is_allowed(peer: socket.socket) -> bool:
    """Return whether the other end is the agent's own user or root; where nobody can tell, the file's mode decides."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    raw = peer.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    uid = struct.unpack("3i", raw)[1]
    return uid in (0, os.geteuid())
