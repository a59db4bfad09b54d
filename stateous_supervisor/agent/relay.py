"""Carries the calls of routines to the control plane, and the answers back. It knows rows, not what they are for.

A call joins the line of its attempt behind the notes that were said before it, and is sent again until there is a
definite answer. Nothing of it is on disk: a routine that waits for an answer dies with its process. Called by the
loop over hosts (`take`) and by the delivery (`settle`).
"""

from __future__ import annotations

from typing import Final

import anyio
import msgspec
from msgspec import Raw
from stateous_contract.codes import Code
from stateous_contract.limits import GRANT_BYTES_MAX

from stateous_supervisor.agent import calls
from stateous_supervisor.agent.assignment import Assignment, Lost, Parked, Parking, Phase
from stateous_supervisor.agent.control_plane import ControlPlane, Result
from stateous_supervisor.agent.outbox import Envelope
from stateous_supervisor.agent.roster import RUNNING, Roster
from stateous_supervisor.link import frames

NOT_IMPLEMENTED: Final = 501
TOO_LARGE: Final = "answer_too_large"
LEAVE_S: Final = 10.0  # a host abandons a routine that stays longer
LOOK_S: Final = 0.05
# Refusals that say that the attempt is over, with the cause that the routine and the log are told.
OVER: Final = {
    Code.ATTEMPT_OVER.wire: "attempt_over",
    Code.TASK_NOT_HELD.wire: "attempt_over",
    Code.TASK_NOT_FOUND.wire: "not_found",
    Code.TASK_CANCELLED.wire: "cancelled",
    Code.TASK_OVER.wire: "attempt_over",
}

_encode: Final = msgspec.json.Encoder().encode


class Relay:
    """What is between the routines' calls and the delivery. The envelope of a call has its id, below 0."""

    def __init__(self, control_plane: ControlPlane, roster: Roster) -> None:
        self._control_plane = control_plane
        self._roster = roster

    def take(self, call: frames.Call) -> None:
        """Send what a routine asks, unless its attempt is over or the control plane has no such thing."""
        assignment = self._roster.assignments.get((call.task, call.attempt))
        why = calls.missing(call.call, self._control_plane.terms.features)
        if assignment is None or assignment.phase not in RUNNING:
            self._refuse(call, Code.ATTEMPT_OVER.status, Code.ATTEMPT_OVER.wire, "the attempt is over")
        elif why is not None:
            self._refuse(call, NOT_IMPLEMENTED, calls.FEATURE_MISSING, why)
        else:
            self._send(call, assignment)

    def _send(self, call: frames.Call, assignment: Assignment) -> None:
        a, body = assignment, calls.body_of(call)
        if calls.ROWS[call.call].parks:
            self._roster.happen(a.key, Parking(is_out=True))
        envelope = Envelope(-call.id, a.task, a.attempt, a.state, a.token, a.identity, call.call, body)
        self._roster.pass_on(envelope)

    def settle(self, envelope: Envelope, result: Result) -> None:
        """Take the answer to a call to its routine; what the roster sent goes to the roster."""
        if envelope.id > 0:
            self._roster.settle(envelope, result)
            return
        key = (envelope.task, envelope.attempt)
        if calls.ROWS[envelope.kind].parks:
            self._roster.happen(key, Parking(is_out=False))
        cause = OVER.get(result.code or "") if result.status >= 400 else None
        if cause is not None:
            self._roster.happen(key, Lost(cause))
        elif result.parked:
            self._roster.happen(key, Parked(envelope.kind, calls.unmet(envelope.kind, envelope.body)))
        self._roster.tell_host([_answer(envelope, result)])

    async def until_all_left(self) -> None:
        """Wait, for a bounded time, until parked routines have left; the end of a host cuts them short (S1-44)."""
        with anyio.move_on_after(LEAVE_S):
            while any(a.phase is Phase.PARKED for a in self._roster.assignments.values()):  # noqa: ASYNC110 at a stop only
                await anyio.sleep(LOOK_S)

    def _refuse(self, call: frames.Call, status: int, code: str, sentence: str) -> None:
        body = Raw(_encode({"code": code, "error": sentence}))
        answer = frames.Answer(id=call.id, task=call.task, attempt=call.attempt, status=status, body=body)
        self._roster.tell_host([answer])


def _answer(envelope: Envelope, result: Result) -> frames.Answer:
    if result.status < 400 and isinstance(result.value, Raw):
        body = bytes(result.value)
        if len(body) > GRANT_BYTES_MAX:
            text = f"the answer is {len(body):,} bytes of JSON; at most {GRANT_BYTES_MAX:,} are taken"
            return _answer(envelope, msgspec.structs.replace(result, status=413, code=TOO_LARGE, error=text))
    else:
        body = _encode({"code": result.code or str(result.status), "error": result.error or ""})
    return frames.Answer(
        id=-envelope.id,
        task=envelope.task,
        attempt=envelope.attempt,
        status=result.status,
        body=Raw(body),
        is_parked=result.parked,
        is_pausing=result.pause,
    )
