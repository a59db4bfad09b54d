"""Requests of people and programs about tokens (A.2): start, look, list, fire, pause, resume, cancel."""

from __future__ import annotations

import re
from typing import Final

from stateous_contract import limits
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import TokenView, encode
from stateous_contract.states import TokenStatus

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import parts
from stateous_control.http.answers import LIST_TYPE, Answer, answer
from stateous_control.http.calls import Call

_STATUSES: Final = tuple(status.value for status in TokenStatus)
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_CURSOR_CHARS_MAX: Final = 1_000


async def show(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.token(path_name(call)))


async def listing(plane: ControlPlane, call: Call) -> Answer:
    query = call.query
    status, parent = query.get("status"), query.get("parent")
    if status is not None and status not in _STATUSES:
        raise Refused(Code.INVALID_ARGUMENT, f"'status' must be one of: {', '.join(_STATUSES)}")
    limit = _number(query, "limit", low=1, high=limits.LIST_MAX, default=limits.LIST_DEFAULT)
    if parent is not None and not 1 <= len(parent) <= 128:
        raise Refused(Code.INVALID_ARGUMENT, "'parent' must be a token id of 1 to 128 characters")
    parent = None if parent is None else _storable(parent, "parent")
    if not wants_page(call):
        return answer(await plane.list_tokens(status=status, limit=limit, parent=parent))
    cursor = _cursor(query)
    page = await plane.page_tokens(status=status, limit=limit, cursor=cursor, parent=parent)
    return Answer(200, encode(page), media_type=LIST_TYPE.encode())


async def history(plane: ControlPlane, call: Call) -> Answer:
    """All entries, oldest first; with `after` and `limit` a part of them."""
    query = call.query
    after = _number(query, "after", low=0, high=limits.TASK_ID_MAX, default=0)
    limit = _number(query, "limit", low=1, high=limits.LIST_MAX, default=0)
    if not wants_page(call):
        return answer(await plane.history(path_name(call), after=after, limit=limit or None))
    page = await plane.page_history(
        path_name(call), after=after if "after" in query else None, limit=limit or limits.LIST_DEFAULT
    )
    return Answer(200, encode(page), media_type=LIST_TYPE.encode())


async def fire(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    payload = parts.user_object(body.values.get("payload"), "payload", Code.INVALID_PAYLOAD)
    parts.refuse_infinite(body, payload, "payload", Code.INVALID_PAYLOAD)
    key = parts.idempotency_key(call.header(b"idempotency-key"))
    token, is_duplicate = await plane.fire(path_name(call), call.params["event"], payload, key=key)
    return _duplicate(token) if is_duplicate else answer(token)


def _duplicate(token: TokenView) -> Answer:
    return Answer(200, b'{"duplicate":true,"token":' + encode(token) + b"}")


async def pause(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.pause(path_name(call)))


async def resume(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.resume(path_name(call)))


async def cancel(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.cancel(path_name(call)))


def wants_page(call: Call) -> bool:
    """Say whether the client asks for lists with counts and a cursor rather than plain arrays."""
    accept = call.header(b"accept")
    return accept is not None and LIST_TYPE in accept


def path_name(call: Call) -> str:
    """Return the token id of the path; one that no token can have is not found, whatever it is."""
    name = call.params["token"]
    if parts.TOKEN.fullmatch(name) is None:
        shown = name[:128].encode("ascii", "backslashreplace").decode()
        raise Refused(Code.TOKEN_NOT_FOUND, f"there is no token '{shown}'")
    return name


def _number(query: dict[str, str], name: str, *, low: int, high: int, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' must be a whole number from {low} to {high}")
    return int(text)


def _cursor(query: dict[str, str]) -> str | None:
    cursor = query.get("cursor")
    if cursor is None:
        return None
    if len(cursor) > _CURSOR_CHARS_MAX:
        raise Refused(Code.INVALID_ARGUMENT, "'cursor' is none that this list gave")
    return _storable(cursor, "cursor")


def _storable(text: str, name: str) -> str:
    if "\0" in text or not text.isprintable():
        raise Refused(Code.INVALID_ARGUMENT, f"'{name}' has characters that are not allowed")
    return text
