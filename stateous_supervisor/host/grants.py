"""Reads what the agent gives a host to run: a grant and the routine that it is for, or what refuses it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from stateous_contract.messages import Grant

from stateous_supervisor.host.discovery import Routine, Served, find
from stateous_supervisor.link.frames import Logged, Outcome, Run

_grants: Final = msgspec.json.Decoder(Grant)


class _Named(msgspec.Struct):
    """As much of a grant as a refusal of it needs."""

    task: int
    attempt: int


def read(frame: Run, routines: Mapping[Served, Routine]) -> tuple[Grant, Routine] | Outcome | Logged:
    """Return a grant with its routine; of one that nothing here can run, what to tell the agent of it."""
    # A copy, so that a routine that runs for hours does not keep the whole frame in memory.
    text = bytes(frame.grant)
    try:
        grant = _grants.decode(text)
        return grant, find(routines, grant)
    except (msgspec.DecodeError, RecursionError) as error:
        return _refused(text, f"the grant cannot be read: {error}")
    except LookupError as error:
        return _refused(text, str(error))


def _refused(text: bytes, error: str) -> Outcome | Logged:
    try:
        named = msgspec.json.decode(text, type=_Named)
    except (msgspec.DecodeError, RecursionError):
        return Logged(level="error", text=error)
    return Outcome(task=named.task, attempt=named.attempt, outcome="failed", error=error)
