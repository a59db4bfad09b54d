"""Rows as clients see them: a token, a time, a task's word. Reads only; the rules and the engine use it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, Raw
from stateous_contract.messages import TokenView
from stateous_contract.states import TaskStatus, status_of

from stateous_control.rules.book import Task, Token

STEP_GOES_ON: Final = "after the current step"
"""What a paused token is while a worker holds its task (S1-69)."""

_encode = msgspec.json.Encoder().encode


def token_view(token: Token, *, is_pausing: bool = False) -> TokenView:
    """Return the token as it stands on the wire (A.2); the context's values are the texts that they came as.

    `is_pausing`: it is paused, and a worker still holds its task.
    """
    return TokenView(
        token=token.name,
        state=token.state,
        status=token.status.value,
        visit=token.visit,
        context=Raw(_encode(token.context)),
        entered_at=stamp(token.entered_at),
        parent=UNSET if token.parent is None else token.parent,
        pausing=STEP_GOES_ON if is_pausing else UNSET,
    )


def stamp(at: datetime) -> str:
    """Write a time of the database's, which is UTC, with a Z; microseconds are left out when they are zero."""
    return at.isoformat().replace("+00:00", "Z")


def task_status(task: Task) -> TaskStatus:
    """Return the baseline's word for how a task stands (S3-46)."""
    return status_of(task.current_state, task.reason)
