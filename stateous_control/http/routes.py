"""Which path leads to which handler. The only module that knows Starlette."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import durable, house, people, routines, starting, tasks, tokens, waits
from stateous_control.http.answers import Answer
from stateous_control.http.calls import Call, no_such_path
from stateous_control.http.door import Door, Endpoint, Handler
from stateous_control.http.rights import OPEN_PATHS


class _Digits(Convertor[str]):
    """Decimal digits as text: their number is judged later, it may be far too large."""

    regex = "[0-9]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("digits", _Digits())

# The busiest come first: the router tries them in this order.
ROUTES: Final[tuple[tuple[str, Mapping[str, Handler]], ...]] = (
    ("/tasks/messages", {"POST": tasks.messages}),
    ("/tasks/claim", {"POST": tasks.claim}),
    ("/tasks/heartbeat", {"POST": tasks.heartbeat}),
    ("/tasks/{task:digits}/report", {"POST": tasks.report}),
    ("/tasks/{task:digits}/note", {"POST": tasks.note}),
    ("/tasks/{task:digits}/memory", {"PUT": tasks.memory}),
    ("/tasks/{task:digits}/checkpoints", {"PUT": durable.checkpoint, "GET": people.checkpoints}),
    ("/tasks/{task:digits}/questions", {"POST": durable.ask}),
    ("/tasks/{task:digits}/park", {"POST": durable.park}),
    ("/tasks/{task:digits}/signals/{name}", {"POST": waits.signal_task}),
    ("/tasks/{task:digits}/children", {"POST": routines.spawn}),
    ("/tasks", {"GET": people.tasks, "POST": routines.start}),
    ("/tasks/{task:digits}", {"GET": people.task}),
    ("/tasks/{task:digits}/log", {"GET": people.log}),
    ("/tasks/{task:digits}/pause", {"POST": people.pause}),
    ("/tasks/{task:digits}/resume", {"POST": people.resume}),
    ("/tasks/{task:digits}/cancel", {"POST": people.cancel}),
    ("/tasks/{task:digits}/retry", {"POST": people.retry}),
    ("/questions", {"GET": people.questions}),
    ("/questions/{question:digits}", {"GET": people.question}),
    ("/questions/{question:digits}/answer", {"POST": people.give_answer}),
    ("/tokens", {"GET": tokens.listing, "POST": starting.start}),
    ("/starts", {"POST": starting.start_many}),
    ("/tokens/{token}", {"GET": tokens.show}),
    ("/tokens/{token}/history", {"GET": tokens.history}),
    ("/tokens/{token}/events/{event}", {"POST": tokens.fire}),
    ("/tokens/{token}/signals/{name}", {"POST": waits.signal_token}),
    ("/tokens/{token}/pause", {"POST": tokens.pause}),
    ("/tokens/{token}/resume", {"POST": tokens.resume}),
    ("/tokens/{token}/cancel", {"POST": tokens.cancel}),
    ("/health", {"GET": house.health}),
    ("/ready", {"GET": house.ready}),
    ("/workflow", {"GET": house.workflow}),
    ("/supervisors", {"GET": house.supervisors}),
    ("/queues", {"GET": house.queues}),
    ("/metrics", {"GET": house.metrics}),
)


async def _nowhere(_plane: ControlPlane, call: Call) -> Answer:
    raise no_such_path(call.path)


class _Nowhere:
    """Answers whatever the router has no route for."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handlers = {cast("str", scope["method"]): _nowhere, "GET": _nowhere}
        await self._door.serve("", handlers, scope, receive, send)


def make_app(door: Door) -> ASGIApp:
    """Return the ASGI app of a control plane."""
    routes = [Route(path, Endpoint(door, path, handlers)) for path, handlers in ROUTES]
    nowhere = _Nowhere(door)
    router = Router(routes, default=nowhere, redirect_slashes=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # The router redirects before anybody is asked for a key; with keys there is no such path instead.
        is_keyed = door.keyring is not None and door.keyring.is_on
        is_redirect = scope["path"].endswith("/") and scope["path"].rstrip("/") not in OPEN_PATHS
        await (nowhere if is_keyed and is_redirect else router)(scope, receive, send)

    return app
