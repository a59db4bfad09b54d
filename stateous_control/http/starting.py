"""Starts of tokens over HTTP: `POST /tokens`, and `POST /starts` for many at once."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.limits import BATCH_BYTES_MAX, STARTS_MAX
from stateous_contract.messages import StartResult, StartResults, StartToken
from stateous_contract.scan import Fields

from stateous_control.engine.operations import ControlPlane
from stateous_control.engine.starting import refusal
from stateous_control.http import parts
from stateous_control.http.answers import Answer, answer
from stateous_control.http.calls import Call

_decode_each: Final = msgspec.json.Decoder(list[dict[str, Raw]]).decode


async def start(plane: ControlPlane, call: Call) -> Answer:
    said = _start(await call.fields())
    said.key = parts.idempotency_key(call.header(b"idempotency-key"))
    token, is_new = await plane.start_token(said.token, said.context, key=said.key)
    return answer(token, 201 if is_new else 200)


async def start_many(plane: ControlPlane, call: Call) -> Answer:
    """Start many: one result for each, in order. What is wrong with one is said of it alone."""
    read = [_read(fields) for fields in _each(await call.fields(BATCH_BYTES_MAX))]
    good = [said for said in read if isinstance(said, StartToken)]
    done = iter(await plane.start_tokens(good) if good else ())
    results = [next(done) if isinstance(said, StartToken) else said for said in read]
    return answer(StartResults(results=results))


def _each(body: Fields) -> list[Fields]:
    try:
        starts = _decode_each(body.values.get("starts", Raw(b"null")))
    except msgspec.ValidationError:
        raise Refused(Code.INVALID_BODY, "'starts' must be a list of objects") from None
    if len(starts) > STARTS_MAX:
        raise Refused(Code.INVALID_ARGUMENT, f"'starts' may hold {STARTS_MAX:,} starts at most")
    return [Fields(values, body.is_finite) for values in starts]


def _read(body: Fields) -> StartToken | StartResult:
    try:
        said = _start(body)
        said.key = _key(body)
    except Refused as refused:
        name = parts.plain(body.values, "token")
        return refusal(name if isinstance(name, str) else None, refused)
    return said


def _key(body: Fields) -> str | None:
    key = parts.plain(body.values, "key")
    if key is None or isinstance(key, str):
        return parts.idempotency_key(key)
    raise Refused(Code.INVALID_PAYLOAD, "'key' must be a string: the idempotency key of this start")


def _start(body: Fields) -> StartToken:
    name = parts.token_name(body.values)
    context = parts.user_object(body.values.get("context"), "context", Code.INVALID_CONTEXT)
    parts.refuse_infinite(body, context, "context", Code.INVALID_CONTEXT)
    return StartToken(token=name, context=context)
