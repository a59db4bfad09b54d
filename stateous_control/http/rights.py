"""Which right each route asks for. What is not in the table asks for the widest one: a new route is closed until it is.

The right is judged before the path's ids are looked at, so its refusal tells nothing about them (S1-120).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stateous_control.rules.access import Right

OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""Answered without a key."""

_RIGHTS: Final[Mapping[tuple[str, str], Right]] = {
    ("POST", "/tasks/messages"): Right.WORK,
    ("POST", "/tasks/claim"): Right.WORK,
    ("POST", "/tasks/heartbeat"): Right.WORK,
    # From outside an operator may; for a supervisor only one of its keys, which the handler asks for.
    ("POST", "/tasks/{task:digits}/report"): Right.REPORT,
    ("POST", "/tasks/{task:digits}/note"): Right.WORK,
    ("PUT", "/tasks/{task:digits}/memory"): Right.WORK,
    ("PUT", "/tasks/{task:digits}/checkpoints"): Right.WORK,
    # People look at them, and workers read what does not fit a grant.
    ("GET", "/tasks/{task:digits}/checkpoints"): Right.REPLAY,
    ("POST", "/tasks/{task:digits}/questions"): Right.WORK,
    ("POST", "/tasks/{task:digits}/park"): Right.WORK,
    ("POST", "/tasks/{task:digits}/signals/{name}"): Right.STEER,
    ("POST", "/tasks/{task:digits}/children"): Right.WORK,
    ("GET", "/tasks"): Right.READ,
    ("POST", "/tasks"): Right.STEER,
    ("GET", "/tasks/{task:digits}"): Right.READ,
    ("GET", "/tasks/{task:digits}/log"): Right.READ,
    ("POST", "/tasks/{task:digits}/pause"): Right.STEER,
    ("POST", "/tasks/{task:digits}/resume"): Right.STEER,
    ("POST", "/tasks/{task:digits}/cancel"): Right.STEER,
    ("POST", "/tasks/{task:digits}/retry"): Right.STEER,
    ("GET", "/questions"): Right.READ,
    ("GET", "/questions/{question:digits}"): Right.READ,
    ("POST", "/questions/{question:digits}/answer"): Right.STEER,
    ("GET", "/tokens"): Right.READ,
    ("POST", "/tokens"): Right.STEER,
    ("POST", "/starts"): Right.STEER,
    ("GET", "/tokens/{token}"): Right.READ,
    ("GET", "/tokens/{token}/history"): Right.READ,
    ("POST", "/tokens/{token}/events/{event}"): Right.STEER,
    ("POST", "/tokens/{token}/signals/{name}"): Right.STEER,
    ("POST", "/tokens/{token}/pause"): Right.STEER,
    ("POST", "/tokens/{token}/resume"): Right.STEER,
    ("POST", "/tokens/{token}/cancel"): Right.STEER,
    ("GET", "/workflow"): Right.KNOW,
    ("GET", "/supervisors"): Right.READ,
    ("GET", "/queues"): Right.READ,
    ("GET", "/metrics"): Right.READ,
}


def right_of(method: str, path: str) -> Right:
    """Return the right that a request needs; `path` is the route's, with its placeholders."""
    return _RIGHTS.get(("GET" if method == "HEAD" else method, path), Right.RULE)
