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


class TooManyFailures(Refused):
    """An address failed to show a valid key too often.

    Args:
        retry_after_s: how long it is to wait.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(Code.TOO_MANY_FAILURES, "too many requests without a valid key; ask again later")
        self.retry_after_s = retry_after_s


NOTHING: Final = Answer(204)


def answer(message: Any, status: int = 200) -> Answer:
    """Answer with a message, or a list of them, as compact JSON."""
    return Answer(status, encode(message))


def refusal(error: Refused) -> Answer:
    """Answer a refusal: two keys, a sentence for people and a code for programs."""
    headers: tuple[Header, ...] = ()
    if isinstance(error, Unavailable | TooManyFailures):
        headers = ((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()),)
    elif error.code is Code.UNAUTHORIZED:
        headers = ((b"www-authenticate", b'Bearer realm="stateous"'),)
    body = encode(Refusal(error=error.sentence, code=error.code.wire, **error.told))
    return Answer(error.code.status, body, headers=headers)


UNEXPECTED: Final = refusal(
    Refused(Code.UNEXPECTED, "the control plane has made a mistake; its log says more")
)

STOPPING: Final = refusal(Refused(Code.NOT_SERVING, "the control plane stops; ask again"))
