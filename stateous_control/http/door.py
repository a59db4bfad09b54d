"""Between the web server and the handlers: method, refusals, faults, and what every answer carries.

The outermost boundary of the program for requests: whatever a handler raises becomes an answer here, and nothing
that went wrong inside ever reaches a client. Called by `routes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from stateous_contract.codes import Code, Refused

from stateous_control.engine.keyring import Keyring, key_id_of
from stateous_control.engine.operations import ControlPlane
from stateous_control.http.answers import STOPPING, UNEXPECTED, Answer, Header, TooManyFailures, refusal
from stateous_control.http.calls import Call, Gone, Receive, Scope, Send, no_such_path
from stateous_control.http.limiting import FailureLimit
from stateous_control.http.rights import OPEN_PATHS, right_of
from stateous_control.http.strangers import Strangers
from stateous_control.logs import logger

Handler = Callable[[ControlPlane, Call], Awaitable[Answer]]

log = logger("stateous.control.http")

_ALWAYS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
_CLOSE: Final[Header] = (b"connection", b"close")


class Door:
    """What all endpoints of one server share.

    Args:
        plane: the control plane that answers.
        strangers: tells requests that a browser was tricked into; with keys no browser can be.
        keyring: the keys that are asked for once there are any; None asks for none.
    """

    def __init__(self, plane: ControlPlane, strangers: Strangers, keyring: Keyring | None = None) -> None:
        self.plane = plane
        self.strangers = strangers
        self.keyring = keyring
        self.failures = FailureLimit()
        self.is_stopping = False

    def begin_stop(self) -> None:
        """Answer waiting claims now; from now on each answer closes its connection."""
        self.is_stopping = True
        self.plane.begin_stop()

    async def serve(
        self, path: str, handlers: Mapping[str, Handler], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request with the handler of its method; `path` is the route's, empty where there is none."""
        call = Call(scope, receive)
        try:
            answer = await self._answer(path, handlers, call)
        except Gone:
            return
        await self._send(answer, send)

    async def _answer(self, path: str, handlers: Mapping[str, Handler], call: Call) -> Answer:
        try:
            plane = await self._admit(path, call)
            handler = _find_handler(handlers, call)
            if call.access.key_id is not None and path:
                call.access.check_right(right_of(call.method, path))
            return await handler(plane, call)
        except Refused as error:
            return refusal(error)
        except Gone:
            raise
        except asyncio.CancelledError:
            # The stop does not wait longer for this one; its client asks the next control plane again.
            if not self.is_stopping:
                raise
            return STOPPING
        except Exception:
            # The boundary: a fault of ours must become an answer and a log line, never a dead connection.
            log.exception("request.failed", method=call.method, path=call.path)
            return UNEXPECTED

    async def _admit(self, path: str, call: Call) -> ControlPlane:
        """Return the control plane as this caller sees it. Raises `Refused` before anything else is looked at."""
        if self.keyring is None or not self.keyring.is_on:
            self.strangers.refuse(call)
            return self.plane
        if path in OPEN_PATHS:
            return self.plane
        try:
            call.access = await self.keyring.access_of(call.key())
        except Refused as error:
            if error.code is Code.UNAUTHORIZED:
                self._count_failure(call)
            raise
        owner = call.query.get("owner")
        if owner is not None:
            call.access = call.access.narrowed(owner)
        return self.plane.seen_by(call.access)

    def _count_failure(self, call: Call) -> None:
        wait_s = self.failures.fail(call.address, asyncio.get_running_loop().time())
        if wait_s is not None:
            raise TooManyFailures(wait_s)
        log.warning("key.refused", address=call.address, path=call.path, key=key_id_of(call.key()))

    async def _send(self, answer: Answer, send: Send) -> None:
        headers = [*_ALWAYS, *answer.headers]
        if answer.status != 204:
            headers.append((b"content-type", answer.media_type))
            headers.append((b"content-length", str(len(answer.body)).encode()))
        if self.is_stopping:
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def _find_handler(handlers: Mapping[str, Handler], call: Call) -> Handler:
    if "\0" in call.path:
        raise no_such_path(call.path)
    handler = handlers.get("GET" if call.method == "HEAD" else call.method)
    if handler is None:
        raise Refused(Code.METHOD_NOT_ALLOWED, f"{call.path} does not take {call.method[:20]}")
    return handler


class Endpoint:
    """The handlers of one path, by method."""

    def __init__(self, door: Door, path: str, handlers: Mapping[str, Handler]) -> None:
        self._door = door
        self._path = path
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door.serve(self._path, self._handlers, scope, receive, send)
