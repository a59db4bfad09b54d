"""The wire is added to, never changed: its whole surface is a recorded file, so that a reviewer sees every difference.

After a wanted change: ``python tests/contract/test_surface.py``, which writes `surface.txt` anew, and look at the diff.
"""

from __future__ import annotations

import inspect
import typing
from difflib import unified_diff
from pathlib import Path

import msgspec
from stateous_contract import codes, health, limits, messages, states

RECORDED = Path(__file__).with_name("surface.txt")


def test_the_wire_is_as_recorded() -> None:
    recorded = RECORDED.read_text("utf-8")

    difference = "\n".join(
        unified_diff(recorded.splitlines(), surface().splitlines(), "recorded", "now", lineterm="")
    )

    assert not difference, difference


def test_a_changed_field_shows() -> None:
    class Changed(messages.Message):
        task: str
        attempt: int | None = None

    fields = [_field(field) for field in msgspec.structs.fields(Changed)]

    assert fields == ["task: str required", "attempt: int | null"]


def surface() -> str:
    """Return what `surface.txt` must be. A line that goes or changes breaks peers; a new one is an addition."""
    return "\n".join([*_messages(), *_codes(), *_limits(), *_words()]) + "\n"


def _messages() -> list[str]:
    known = {m for room in (messages, health) for _, m in inspect.getmembers(room, inspect.isclass)}
    found = [m for m in known if issubclass(m, messages.Message)]
    lines = []
    for message in sorted(found, key=lambda m: m.__name__):
        lines += [f"message {message.__name__}.{_field(f)}" for f in msgspec.structs.fields(message)]
    return lines


def _field(field: msgspec.structs.FieldInfo) -> str:
    return f"{field.encode_name}: {_type(field.type)}{' required' if field.required else ''}"


def _type(told: typing.Any) -> str:
    parts = typing.get_args(told)
    if not parts:
        return (
            str(told)
            if told is None
            else told.__name__.replace("NoneType", "null").replace("UnsetType", "absent")
        )
    name = getattr(typing.get_origin(told), "__name__", "")
    inner = [_type(part) for part in parts]
    return " | ".join(inner) if name in ("UnionType", "Union") else f"{name}[{', '.join(inner)}]"


def _codes() -> list[str]:
    return sorted(f"code {code.wire} {code.status}" for code in codes.Code)


def _limits() -> list[str]:
    return sorted(f"limit {name} = {getattr(limits, name)!r}" for name in dir(limits) if name.isupper())


def _words() -> list[str]:
    enums = [states.TaskState, states.TaskStatus, states.TokenStatus, states.Lost]
    return [f"word {enum.__name__} {member.value}" for enum in enums for member in enum]


if __name__ == "__main__":
    RECORDED.write_text(surface(), "utf-8")
