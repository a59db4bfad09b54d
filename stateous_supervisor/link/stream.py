"""Frames as bytes: how messages of the link become bytes and back.

No I/O here; both ends bring their own socket. A frame is a u32 length (big endian) and a JSON array of
messages. What does not fit one frame becomes several; a single message that is too large is the sender's
fault. Unknown kinds are dropped, so that either side may be newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec

from stateous_supervisor.link.frames import FRAME_BYTES_MAX, Frame, ToAgent, ToHost

HEADER_BYTES: Final = 4

M = TypeVar("M")

_encoder: Final = msgspec.json.Encoder()


class _Kind(msgspec.Struct):
    kind: str = ""


_kind: Final = msgspec.json.Decoder(_Kind)
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


class LinkBroken(Exception):
    """The other side sent bytes that are no frame. The link cannot be used any more."""


class MessageTooLarge(Exception):
    """One message alone is larger than a frame may be.

    Args:
        size_bytes: how large its JSON is.
    """

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a message of {size_bytes} bytes does not fit a frame of {FRAME_BYTES_MAX} bytes")
        self.size_bytes = size_bytes


def pack(messages: Sequence[Frame]) -> bytes:
    """Write messages as one frame, or as several where one would be too large.

    Raises:
        MessageTooLarge: one message alone does not fit.
    """
    body = _encoder.encode(messages)
    if len(body) <= FRAME_BYTES_MAX:
        return len(body).to_bytes(HEADER_BYTES, "big") + body
    if len(messages) <= 1:
        raise MessageTooLarge(len(body))
    middle = len(messages) // 2
    return pack(messages[:middle]) + pack(messages[middle:])


class Unpacker(Generic[M]):
    """Collects received bytes and gives the messages of every frame that is whole.

    Args:
        kind: the union of messages that this side knows.
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[list[M]] = msgspec.json.Decoder(list[kind])
        self._single: msgspec.json.Decoder[M] = msgspec.json.Decoder(kind)
        self._known = {one.__struct_config__.tag for one in get_args(kind)}
        self._buffer = bytearray()

    def feed(self, received: bytes) -> list[M]:
        """Return the messages that `received` completes, in order.

        Raises:
            LinkBroken: a length beyond the limit, or a body that is not an array of messages, or a message of a
                known kind that is not as it should be.
        """
        buffer = self._buffer
        buffer += received
        messages: list[M] = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            body_at = start + HEADER_BYTES
            length = int.from_bytes(buffer[start:body_at], "big")
            if length > FRAME_BYTES_MAX:
                raise LinkBroken(f"a frame of {length} bytes; at most {FRAME_BYTES_MAX} are allowed")
            if len(buffer) - body_at < length:
                break
            messages += self._read(bytes(buffer[body_at : body_at + length]))
            start = body_at + length
        del buffer[:start]
        return messages

    def _read(self, body: bytes) -> list[M]:
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError:
            return self._read_known(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise LinkBroken(f"a frame is not JSON: {error}") from None

    def _read_known(self, body: bytes) -> list[M]:
        """Read one by one: a message of a kind that this side does not know is dropped, the rest counts."""
        try:
            raws = _array.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise LinkBroken(f"a frame is not an array: {error}") from None
        return [message for raw in raws for message in self._try(raw)]

    def _try(self, raw: msgspec.Raw) -> list[M]:
        try:
            return [self._single.decode(raw)]
        except msgspec.ValidationError as error:
            kind = _kind.decode(raw).kind
            if kind in self._known:
                raise LinkBroken(f"a message '{kind}' is not what it should be: {error}") from None
            return []


def from_host() -> Unpacker[ToAgent]:
    """Return what the agent reads its host's bytes with."""
    return Unpacker(ToAgent)


def from_agent() -> Unpacker[ToHost]:
    """Return what the host reads the agent's bytes with."""
    return Unpacker(ToHost)
