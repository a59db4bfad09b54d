"""How a request arrives: a bound on its size, counted as it comes, and on how long the whole of it may take.

uvicorn has neither. One stranger who sends header lines for ever would take the memory and the time of everybody,
before any key is looked at, and one who sends nothing would keep a connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from stateous_contract.limits import BATCH_BYTES_MAX
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
"""Request line and headers, besides what one read brings; what clients send is below 2 KiB."""

REQUEST_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX
"""All of a request, with the frames of its chunks. What a body may have is looked at where it is read."""

ARRIVAL_S: Final = 75.0
"""From the first byte of a request to its last, and from a connection to its first request; clients give up sooner."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class Arriving(HttpToolsProtocol):
    """uvicorn's connection, which is closed when a request is larger or later than that; 431 tells of a large head."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._bytes_max = HEAD_BYTES_MAX
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)  # counts anew from a request that begins or ends in this data
        if self._bytes > self._bytes_max and not self.transport.is_closing():
            if self._bytes_max == HEAD_BYTES_MAX:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes, self._bytes_max = 0, HEAD_BYTES_MAX
        self._expect()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._bytes_max = REQUEST_BYTES_MAX

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._bytes = 0
        self._expect_nothing()

    def _expect(self) -> None:
        self._expect_nothing()
        self._timer = self.loop.call_later(ARRIVAL_S, self._late)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self.flow.read_paused:  # by us: what came before it is still being answered
            self._expect()
        else:
            self.transport.abort()
