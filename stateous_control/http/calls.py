"""One request as handlers see it: names from the path, query, headers, and a body that was checked on its way in."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

from stateous_contract.codes import Code, Refused
from stateous_contract.limits import BODY_BYTES_MAX, TASK_ID_MAX
from stateous_contract.scan import Fields, Malformed, NotAnObject, read_object

from stateous_control.rules.access import OPEN

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LENGTH_DIGITS_MAX: Final = 18
_AGENT: Final = re.compile(r"stateous-supervisor/([A-Za-z0-9.+_!-]{1,64})(?: |$)", re.ASCII)


class Gone(Exception):
    """The client closed its connection; nobody reads an answer."""


class Call:
    """A request. `params` are the names that the route took from the path, `access` is who asks."""

    __slots__ = ("_receive", "_scope", "access", "params")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self.access = OPEN
        self.params: dict[str, str] = scope.get("path_params", {})

    @property
    def path(self) -> str:
        return str(self._scope["path"])

    @property
    def method(self) -> str:
        return str(self._scope["method"])

    @property
    def query(self) -> dict[str, str]:
        """The query; of a repeated name the last value counts."""
        text = self._scope["query_string"].decode("latin-1")
        return dict(parse_qsl(text, keep_blank_values=True))

    @property
    def address(self) -> str:
        """Where the request came from; behind a proxy the proxy."""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    def key(self) -> str | None:
        """Return the bearer key; None for none, for two, and for anything else in that header."""
        found = [value for key, value in self._scope["headers"] if key == b"authorization"]
        if len(found) != 1:
            return None
        scheme, _, text = found[0].decode("latin-1").partition(" ")
        return text.strip() if scheme.lower() == "bearer" else None

    def header(self, name: bytes) -> str | None:
        """Return a header's value, or None where it is absent. `name` in lower case."""
        for key, value in self._scope["headers"]:
            if key == name:
                return str(value.decode("latin-1"))
        return None

    @property
    def agent_version(self) -> str | None:
        """The version of the agent that asks, from its User-Agent; None for other programs, and libraries."""
        found = _AGENT.match(self.header(b"user-agent") or "")
        return None if found is None else found[1]

    @property
    def task(self) -> int:
        """The task id of the path, which the route took for digits. Raises `Refused` where no task can have it."""
        digits = self.params["task"]
        task = id_of(digits)
        if task is None:
            raise Refused(Code.TASK_NOT_FOUND, f"there is no task {digits[:40]}")
        return task

    async def fields(self, bytes_max: int = BODY_BYTES_MAX) -> Fields:
        """Read and check the body; return its top-level fields, each as the text it came as."""
        body = await self._body(bytes_max)
        try:
            return read_object(body)
        except NotAnObject as error:
            raise Refused(Code.INVALID_BODY, str(error)) from None
        except Malformed as error:
            raise Refused(Code.BAD_REQUEST, f"the body is refused: {error}") from None

    async def _body(self, bytes_max: int) -> bytes:
        length = self.header(b"content-length")
        if length is not None and self.header(b"transfer-encoding") is None:
            is_short = len(length) <= _LENGTH_DIGITS_MAX
            if not (is_short and length.isdigit() and int(length) <= bytes_max):
                raise _too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            part = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[asyncio.Task[None]]:
        """Watch for the client's disconnect meanwhile; the task is done when it has left.

        Only after the body was read: from then on the next thing that comes is the end.
        """
        watcher = asyncio.create_task(self._until_gone())
        try:
            yield watcher
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def id_of(digits: str) -> int | None:
    """Return the id that decimal digits stand for, None where nothing can have it. Any number of zeros may lead."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(TASK_ID_MAX)) or int(digits) > TASK_ID_MAX:
        return None
    return int(digits)


def no_such_path(path: str) -> Refused:
    """Return the refusal of a path that this API does not have."""
    shown = path[:200].encode("ascii", "backslashreplace").decode()
    return Refused(Code.NOT_FOUND, f"this API has no {shown}")


def _too_large(bytes_max: int) -> Refused:
    mib = bytes_max // 1_048_576
    return Refused(Code.BODY_TOO_LARGE, f"the body is larger than {mib} MiB, the most that is read here")
