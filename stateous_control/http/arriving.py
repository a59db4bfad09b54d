"""How a request arrives: bounds on its size, on how long the whole of it may take, and on what is said of bad ones.

uvicorn has none. One stranger who sends header lines for ever would take the memory and the time of everybody,
before any key is looked at, and one who sends nothing would keep a connection for ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from stateous_contract.limits import BATCH_BYTES_MAX
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stateous_control.logs import logger

log = logger("stateous.control.http")

HEAD_BYTES_MAX: Final = 64 * 1024
"""Request line and headers, besides what one read brings; what clients send is below 2 KiB."""

REQUEST_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX
"""All of a request, with the frames of its chunks. What a body may have is looked at where it is read."""

ARRIVAL_S: Final = 75.0
"""From the first byte of a request to its last, and from a connection to its first request; clients give up sooner."""

TOLD_EVERY_S: Final = 60.0

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)

_faults_alone: Final = logging.getLogger("stateous.control.uvicorn")
_faults_alone.setLevel(logging.ERROR)  # its warnings are one a request, of whoever sends them


class Malformed:
    """Counts what is no HTTP request, and tells of it: of the first at once, of those after it once a minute.

    Nothing that a stranger sent is in the log, only the address of the last one.
    """

    def __init__(self) -> None:
        self._count = 0
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def count(self, loop: asyncio.AbstractEventLoop, address: str | None) -> None:
        self._count += 1
        self._address = address
        if self._timer is None:
            self._tell(loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._count:
            log.warning("requests.malformed", count=self._count, address=self._address)
            self._count = 0
            self._timer = loop.call_later(TOLD_EVERY_S, self._tell, loop)


def arriving() -> type[HttpToolsProtocol]:
    """Return the kind of connection of one server, which counts for all of them what is malformed."""
    return type("Arriving", (Arriving,), {"malformed": Malformed()})


class Arriving(HttpToolsProtocol):
    """uvicorn's connection, which is closed when a request is larger or later than that; 431 tells of a large head."""

    malformed: Malformed

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _faults_alone
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

    def send_400_response(self, msg: str) -> None:
        self.malformed.count(self.loop, self.client[0] if self.client else None)
        super().send_400_response(msg)

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
