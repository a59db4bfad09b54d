"""When two reports say the same: a digest of what a report says, the same for every way of writing it down.

Absent, null and empty parts are one and the same; key order, white space and escapes do not matter. The instance is
no part of it, so that a journal's next owner may repeat what was said.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw
from stateous_contract.messages import Report

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def digest_of(report: Report) -> str:
    """Return the digest of a report's content, 32 hexadecimal digits."""
    said = (
        report.supervisor,
        report.kind,
        report.event,
        report.error,
        report.reason,
        report.retryable,
        _levelled(report.payload),
        _levelled(report.context),
        None if report.result is None else _decode(report.result),
        [(each.event, each.after, _levelled(each.payload)) for each in report.schedules or ()],
    )
    return blake2b(_encode(said), digest_size=16).hexdigest()


def _levelled(value: Raw | None) -> Any:
    if value is None:
        return None
    return _decode(value) or None
