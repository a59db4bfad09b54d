"""The notify protocol: one datagram a message to the socket that systemd names.

It never fails: without a notify manager, or when the socket is gone, nothing happens. The agent calls it; routines
never see the socket, because its name is taken out of the environment (A-26, A-55).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Self

STATUS_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells the service manager how the agent is.

    Args:
        address: the socket's path, ``@name`` for an abstract one, or None where nobody listens.
        watchdog_s: how often the manager wants a sign of life, in seconds; None where it wants none.
    """

    address: str | None
    watchdog_s: float | None = None

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str], *, pid: int) -> Self:
        """Read and remove what systemd put into the environment, so that no child inherits it (A-26).

        Args:
            environment: usually ``os.environ``.
            pid: this process; a watchdog meant for another process is not ours.
        """
        address = environment.pop("NOTIFY_SOCKET", None)
        usec = environment.pop("WATCHDOG_USEC", "")
        watched = environment.pop("WATCHDOG_PID", "")
        is_ours = usec.isdecimal() and int(usec) > 0 and watched in ("", str(pid))
        return cls(address or None, int(usec) / 1e6 if is_ours else None)

    def ready(self, status: str) -> None:
        """Say that the start, or a reload, is over."""
        self._send("READY=1", f"STATUS={one_line(status)}")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(f"STATUS={one_line(text)}")

    def alive(self) -> None:
        """Answer the watchdog, when every loop of the agent has moved, whatever the control plane does."""
        self._send("WATCHDOG=1")

    def reloading(self, *, monotonic_usec: int) -> None:
        """Say that a reload begins. The clock travels in the same message, or systemd waits for ever."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_usec}")

    def stopping(self, status: str) -> None:
        """Say that the exit is certain; it cannot be taken back."""
        self._send("STOPPING=1", f"STATUS={one_line(status)}")

    def extend(self, *, seconds: float) -> None:
        """Ask for more time to stop; to be renewed within that time."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def _send(self, *lines: str) -> None:
        if self.address is None:
            return
        target = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
            door.setblocking(False)
            door.sendto("\n".join(lines).encode("utf-8", "replace"), target)


def one_line(text: str) -> str:
    """Return `text` as the single line that STATUS= may hold."""
    return " ".join(text.split())[:STATUS_CHARS_MAX]


def from_environment() -> Notifier:
    """Take the notifier out of this process's environment."""
    return Notifier.take_from(os.environ, pid=os.getpid())
