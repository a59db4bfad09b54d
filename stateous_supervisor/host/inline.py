"""The routine host in a thread of the calling process, for `--inline`: a debugger, and unit tests (A-61).

The same runner behind the same link: the caller gets the other end of a socket pair and speaks to it as to a child
process. It protects nobody from user code: no streams, signals or environment are touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Collection
from pathlib import Path

from stateous_supervisor.host.runner import CANCEL_AGAIN_S
from stateous_supervisor.host.serve import QUIT_S, Host


class InlineHost:
    """A host in a thread. `sock` is the agent's end of the link; closing it ends the host."""

    def __init__(
        self, folder: Path, *, skip: Collection[str] = (), cancel_again_s: float = CANCEL_AGAIN_S
    ) -> None:
        self.sock, self._own = socket.socketpair()
        self._folder = folder
        self._skip = skip
        self._cancel_again_s = cancel_again_s
        self._thread = threading.Thread(target=self._serve, name="routine host", daemon=True)

    def start(self) -> None:
        """Begin to load the folder. `Hello`, `Loading` and `Loaded` come over `sock`."""
        self._thread.start()

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait until the host has ended (after `Quit`, `Drain`, or the end of the link). False: not in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        is_gone = threading.Event()

        def on_gone() -> None:
            is_gone.set()
            with contextlib.suppress(RuntimeError):
                host.loop.call_soon_threadsafe(host.loop.stop)

        host = Host(
            self._own, self._folder, skip=self._skip, on_gone=on_gone, cancel_again_s=self._cancel_again_s
        )
        host.serve()
        host.link.close()
        is_gone.wait()
        _close(host.loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs, for a bounded time, and close the loop."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=QUIT_S))
    loop.close()
