"""Below httpx: a request leaves as one write, and whether an idle connection was closed is asked of the socket alone.

httpcore writes the head and the body of a request apart, so that a server on the same machine wakes for a head without
its body; and each look at an idle connection goes through three libraries. A step of a routine waits for both (ADR 46).
What is wrapped is httpcore's own: no protocol, TLS or proxy is ours. Called by `client`.
"""

from __future__ import annotations

import select
from typing import Any, Final

GATHERED_BYTES_MAX: Final = 65_536


def gather(transport: Any) -> None:
    """Have the connections of a transport of httpx gather what they write.

    httpx hands no backend through. With a release that keeps it elsewhere, requests go out as httpcore sends them.
    """
    pool = getattr(transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    if pool is not None and backend is not None:
        pool._network_backend = Backend(backend)  # noqa: SLF001


class Backend:
    """What httpcore opens connections with, around its own."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    async def connect_tcp(self, *args: Any, **options: Any) -> Stream:
        return Stream(await self._backend.connect_tcp(*args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Stream:
    """A connection of httpcore's that is written to when somebody begins to wait for an answer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._unsent = b""
        self._poll = select.poll()
        self._poll.register(stream.get_extra_info("socket"), select.POLLIN)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 httpcore's own
        """Keep what is to be written until somebody reads; a large body is not copied."""
        if len(self._unsent) + len(buffer) <= GATHERED_BYTES_MAX:
            self._unsent += buffer
        else:
            await self._flush(timeout)
            await self._stream.write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 httpcore's own
        """Write what was kept, and wait for what comes back."""
        await self._flush(timeout)
        received: bytes = await self._stream.read(max_bytes, timeout)
        return received

    async def start_tls(self, *args: Any, **options: Any) -> Stream:
        return Stream(await self._stream.start_tls(*args, **options))

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """Return what is asked of the connection; `is_readable` is true of an idle one that was closed over there."""
        if info == "is_readable":
            return bool(self._poll.poll(0))
        return self._stream.get_extra_info(info)

    async def _flush(self, timeout: float | None) -> None:  # noqa: ASYNC109 httpcore's own
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            await self._stream.write(unsent, timeout)
