"""Rows as clients see them: a token, a time, a task's word. Reads only; the rules and the engine use it."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw
from stateous_contract.messages import TokenView
from stateous_contract.states import TaskStatus, status_of

from stateous_control.rules.book import Task, Token

_encode = msgspec.json.Encoder().encode


def token_view(token: Token) -> TokenView:
    """Return the token as it stands on the wire (A.2); the context's values are the texts that they came as."""
    return TokenView(
        token=token.name,
        state=token.state,
        status=token.status.value,
        visit=token.visit,
        context=Raw(_encode(token.context)),
        entered_at=stamp(token.entered_at),
        parent=UNSET if token.parent is None else token.parent,
    )


def stamp(at: datetime) -> str:
    """Write a time of the database's, which is UTC, with a Z; microseconds are left out when they are zero."""
    return at.isoformat().replace("+00:00", "Z")


def task_status(task: Task) -> TaskStatus:
    """Return the baseline's word for how a task stands (S3-46)."""
    return status_of(task.current_state, task.reason)
