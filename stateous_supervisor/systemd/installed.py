"""A unit file that stands on the box, read as far as its agent is concerned. Pure: texts in, values out.

`doctor` compares it with `stateous.yaml`; nothing else reads unit files.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SPAN: Final = re.compile(r"([0-9.]+)\s*([a-z]*)")
UNITS_S: Final = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    "ms": 0.001,
}
STOP_S: Final = 90.0  # the manager's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledUnit:
    """What a unit says, with its drop-ins.

    Args:
        program: the first word of its ExecStart.
        arguments: the other words.
        user: its User; None where it has none.
        is_dynamic: whether systemd makes up the user.
        stop_s: how long a stop may take, in seconds; infinite where nothing limits it.
        state_directory: the name below /var/lib; None where it has none.
        credentials: the file of each credential, by id.
        keeps_privileges: whether routines may gain privileges (`sudo`).
    """

    program: str | None
    arguments: tuple[str, ...]
    user: str | None
    is_dynamic: bool
    stop_s: float
    state_directory: str | None
    credentials: dict[str, str]
    keeps_privileges: bool


def read(texts: Iterable[str]) -> InstalledUnit:
    """Read a unit file and its drop-ins, in the order in which they count."""
    found = _directives(texts)
    command = _words((found.get("ExecStart") or [""])[-1])
    stop = found.get("TimeoutStopSec") or found.get("TimeoutSec")
    credentials = [value.partition(":") for value in found.get("LoadCredential", [])]
    return InstalledUnit(
        program=command[0].lstrip("@-:+!") if command else None,
        arguments=tuple(command[1:]),
        user=_last(found, "User"),
        is_dynamic=_is_yes(_last(found, "DynamicUser")),
        stop_s=STOP_S if not stop else seconds(stop[-1]),
        state_directory=(_last(found, "StateDirectory") or "").split(" ")[0] or None,
        credentials={name: path.replace("%%", "%") for name, _, path in credentials},
        keeps_privileges=not _is_yes(_last(found, "NoNewPrivileges")),
    )


def seconds(span: str) -> float:
    """Return the seconds of a time span as systemd writes it: `90`, `2min 30s`, `infinity`."""
    if span.strip() in ("infinity", "0"):
        return math.inf
    return sum(float(number) * UNITS_S.get(unit, 1.0) for number, unit in SPAN.findall(span.lower()))


def _directives(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each directive; an empty one takes back those before it."""
    found: dict[str, list[str]] = {}
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            name, sign, value = line.strip().partition("=")
            if not sign or line.lstrip().startswith(("#", ";")):
                continue
            values = found.setdefault(name.strip(), [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()
    return found


def _last(found: dict[str, list[str]], name: str) -> str | None:
    values = found.get(name)
    return values[-1] if values else None


def _is_yes(value: str | None) -> bool:
    return (value or "").lower() in ("yes", "true", "on", "1")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word.replace("%%", "%").replace("$$", "$") for word in words]
