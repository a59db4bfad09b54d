"""How a fresh host greets and loads the folder, within limits, file by file (A-05, A-25).

A host that passes `FILE_S` on one file, or dies in it, is given up with the name of that file, so that the
next one can be started without it. Used by every kind of host.
"""

from __future__ import annotations

import platform
from typing import Final

import anyio

import stateous_supervisor
from stateous_supervisor.agent.link_end import LinkEnd, LinkEnded
from stateous_supervisor.link.frames import LINK_PROTOCOL, Hello, Loaded, Loading

HELLO_S: Final = 20.0
FILE_S: Final = 20.0


class LoadStopped(Exception):
    """The host did not get through the folder.

    Args:
        file: the file that it was in, or None where it was in none.
        reason: what happened; None where it died and the caller knows more.
    """

    def __init__(self, file: str | None, reason: str | None) -> None:
        super().__init__(reason)
        self.file = file
        self.reason = reason


async def load(link: LinkEnd) -> tuple[Hello, Loaded]:
    """Greet the host and wait until it has loaded the folder.

    Raises:
        LoadStopped: it said nothing for too long, speaks another protocol, or is gone.
    """
    link.send(
        [Hello(protocol=LINK_PROTOCOL, sdk=stateous_supervisor.__version__, python=platform.python_version())]
    )
    hello: Hello | None = None
    file: str | None = None
    limit_s = HELLO_S
    while True:
        try:
            with anyio.fail_after(limit_s):
                messages = await link.receive()
        except TimeoutError:
            doing = "did not greet" if hello is None else "did not end its import"
            raise LoadStopped(file, f"{doing} within {limit_s:g} s") from None
        except LinkEnded:
            raise LoadStopped(file, None) from None
        for message in messages:
            if isinstance(message, Hello):
                hello = _understood(message)
            elif isinstance(message, Loading):
                file, limit_s = message.file, FILE_S
            elif isinstance(message, Loaded) and hello is not None:
                return hello, message


def _understood(hello: Hello) -> Hello:
    if hello.protocol != LINK_PROTOCOL:
        spoken = f"it speaks link protocol {hello.protocol} (SDK {hello.sdk}), this agent {LINK_PROTOCOL}"
        raise LoadStopped(None, spoken)
    return hello
