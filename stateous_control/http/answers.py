"""What goes back over the wire: a status, JSON text, a few headers. Nothing here decides anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Refusal, encode

from stateous_control.store.failures import Unavailable

JSON: Final = b"application/json"
LIST_TYPE: Final = "application/vnd.stateous.v1+json"

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. A `status` of 204 has no body and no content type."""

    status: int
    body: bytes = b""
    media_type: bytes = JSON
    headers: tuple[Header, ...] = ()


NOTHING: Final = Answer(204)


def answer(message: Any, status: int = 200) -> Answer:
    """Answer with a message, or a list of them, as compact JSON."""
    return Answer(status, encode(message))


def refusal(error: Refused) -> Answer:
    """Answer a refusal: two keys, a sentence for people and a code for programs."""
    headers: tuple[Header, ...] = ()
    if isinstance(error, Unavailable):
        headers = ((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()),)
    body = encode(Refusal(error=error.sentence, code=error.code.wire))
    return Answer(error.code.status, body, headers=headers)


UNEXPECTED: Final = refusal(
    Refused(Code.UNEXPECTED, "the control plane has made a mistake; its log says more")
)

STOPPING: Final = refusal(Refused(Code.NOT_SERVING, "the control plane stops; ask again"))
