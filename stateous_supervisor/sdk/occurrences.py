"""Events as routines return them: ``events.passed(result)``.

A contract makes one class for each event; a routine returns an instance. Nothing is validated here, so that an
occurrence can be made anywhere; the host checks what a routine returns.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, get_args, overload

P = TypeVar("P")


class Occurrence(Generic[P]):
    """One event that happened, with its payload.

    Args:
        payload: an instance of the event's model; nothing for an event without one.
    """

    name: ClassVar[str]
    payload: P

    @overload
    def __init__(self: Occurrence[None]) -> None: ...
    @overload
    def __init__(self, payload: P) -> None: ...
    def __init__(self, payload: Any = None) -> None:
        self.payload = payload

    @classmethod
    def payload_model(cls) -> Any:
        """Return the model of the payload, or None for an event without one."""
        for each in cls.__mro__:
            for base in each.__dict__.get("__orig_bases__", ()):
                if getattr(base, "__origin__", None) is Occurrence:
                    model = get_args(base)[0]
                    return None if model is type(None) or isinstance(model, TypeVar) else model
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Occurrence):
            return NotImplemented
        return type(self) is type(other) and bool(self.payload == other.payload)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.payload!r})"
