"""Requests of supervisors about their work (A.3 to A.8): claim, heartbeat, report, note, memory, messages."""

from __future__ import annotations

import asyncio

from stateous_contract.codes import Code, Refused
from stateous_contract.limits import BATCH_BYTES_MAX
from stateous_contract.messages import ClaimRequest, Grant, Grants, encode

from stateous_control.engine.operations import ControlPlane
from stateous_control.http import parts
from stateous_control.http.answers import NOTHING, Answer, answer
from stateous_control.http.bundles import read_bundle
from stateous_control.http.calls import Call, Gone
from stateous_control.http.routines import read_routines
from stateous_control.rules.access import Right


async def claim(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    request = parts.claim(body)
    request.routines = read_routines(parts.plain(body.values, "routines"))
    if request.withdraw and request.request is None:
        raise Refused(Code.INVALID_ARGUMENT, "'withdraw' needs 'request', the id of the claim to take back")
    async with call.watched() as watcher:
        grants = await _claim_unless_gone(plane, request, watcher, call.agent_version)
    if not grants:
        return NOTHING
    return answer(grants[0]) if request.max is None else answer(Grants(tasks=grants))


async def _claim_unless_gone(
    plane: ControlPlane, request: ClaimRequest, watcher: asyncio.Task[None], version: str | None
) -> list[Grant]:
    """Claim, and stop claiming when the client has left: a dead agent's poll must not take work."""
    claiming = asyncio.ensure_future(plane.claim(request, watcher.done, version=version))
    try:
        await asyncio.wait((claiming, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not claiming.done():
            claiming.cancel()
            await asyncio.wait((claiming,))
            raise Gone
        return claiming.result()
    finally:
        claiming.cancel()


async def heartbeat(plane: ControlPlane, call: Call) -> Answer:
    return answer(await plane.heartbeat(parts.heartbeat(await call.fields())))


async def report(plane: ControlPlane, call: Call) -> Answer:
    """Take the outcome that a supervisor reports, or one from outside, which names none."""
    outcome = parts.report(await call.fields())
    if outcome.supervisor is not None:
        call.access.check_right(Right.WORK)
    return answer(await plane.report(call.task, outcome))


async def note(plane: ControlPlane, call: Call) -> Answer:
    values = (await call.fields()).values
    text = parts.note_text(parts.plain(values, "text"))
    attempt = parts.attempt(values, Code.INVALID_ARGUMENT)
    await plane.note(call.task, text, attempt=attempt)
    return NOTHING


async def memory(plane: ControlPlane, call: Call) -> Answer:
    body = await call.fields()
    key = parts.memory_key(parts.plain(body.values, "key"))
    value = parts.memory_value(body.values.get("value"), body)
    attempt = parts.attempt(body.values, Code.INVALID_ARGUMENT)
    await plane.remember(call.task, key, None if bytes(value) == b"null" else value, attempt=attempt)
    return NOTHING


async def messages(plane: ControlPlane, call: Call) -> Answer:
    bundle = read_bundle(await call.fields(BATCH_BYTES_MAX))
    if not bundle.good.messages:
        return answer(bundle.merge([]))
    results = await plane.messages(bundle.good)
    return Answer(200, encode(bundle.merge(results.results)))
