"""What a control plane says of itself: its health, its limits, and the features that it offers."""

from __future__ import annotations

import msgspec

from stateous_contract.messages import Message


class Limits(Message):
    """What this control plane accepts at most."""

    body_bytes_max: int = 0
    batch_bytes_max: int = 0
    depth_max: int = 0
    claim_max: int = 0
    heartbeat_max: int = 0
    messages_max: int = 0
    wait_s_max: float = 0.0


class Health(Message):
    """`GET /health`. The first two fields are the baseline's; the rest say what goes beyond it."""

    workflow: str
    checksum: str
    protocol: int | None = None
    features: list[str] = msgspec.field(default_factory=list)
    limits: Limits | None = None
    lease_s: float | None = None
    heartbeat_s: float | None = None
    now: str | None = None
    as_of: str | None = None
    alarms: list[str] | None = None
    version: str | None = None
    unroutable: int | None = None


FEATURES = (
    "wait",
    "batch",
    "release",
    "versions",
    "questions",
    "checkpoints",
    "signals",
    "routines",
    "children",
    "bulk_start",
)
AUTH = "auth"  # listed only where keys are asked for
