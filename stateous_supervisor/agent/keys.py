"""Every key of `stateous.yaml`: what it may hold, its default, and one line about it.

Pure. `stateous.yaml.example`, the environment's names and the sentences about faults come from this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from stateous_contract.limits import DURATION_PATTERN, DURATION_S_MAX

from stateous_supervisor.agent.proxies import parse_no_proxy, parse_proxy

TASKS_MAX: Final = 100_000  # the control plane's limits say what is really served
_HOST: Final = re.compile(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Plain = str | int | float | bool | None
Parse = Callable[[Plain], object]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `parse` raises ValueError with "must be …"; `example` shows the default.

    `of_text` makes a value of what the environment or the command line says, where all is text.
    """

    name: str
    parse: Parse
    default: object
    about: str
    example: str = "null"
    of_text: Callable[[str], Plain] = str

    @property
    def variable(self) -> str:
        """The environment's name for it (A-02)."""
        return "STATEOUS_" + self.name.replace(".", "_").upper()


def whole(low: int, high: int) -> Parse:
    """Return a parser of whole numbers in that range. A text is none, not even one of digits (A-03)."""

    def parse(value: Plain) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            quoted = ", without quotes" if isinstance(value, str) and _DIGITS.fullmatch(value) else ""
            raise ValueError(f"must be a whole number from {low} to {high}{quoted}")
        return value

    return parse


def number_of(given: str) -> Plain:
    """Return the number that digits stand for, and any other text as it is."""
    return int(given) if _DIGITS.fullmatch(given) else given


def one_of(*words: str) -> Parse:
    def parse(value: Plain) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError("must be one of " + ", ".join(words))
        return value

    return parse


def text(chars_max: int) -> Parse:
    def parse(value: Plain) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= chars_max or not value.isprintable():
            raise ValueError(f"must be text of 1 to {chars_max} printable characters")
        return value

    return parse


def optional(parse: Parse) -> Parse:
    def parse_or_none(value: Plain) -> object:
        return None if value is None else parse(value)

    return parse_or_none


def flag(value: Plain) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false" + (", without quotes" if value in ("true", "false") else ""))


def duration_s(value: Plain) -> float:
    """Return the seconds of `30s`, `10m`, `2h`, `1d`."""
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value) or len(value) > 12:
        raise ValueError("must be a duration such as 30s, 10m, 2h or 1d")
    seconds = int(value[:-1]) * _UNITS[value[-1]]
    if seconds > DURATION_S_MAX:
        raise ValueError("must be at most 3650d")
    return float(seconds)


def duration_text(seconds: float) -> str:
    """Return seconds as `duration_s` reads them, in the largest unit that they fill: `90s`, `30m`."""
    unit = max((unit for unit, size in _UNITS.items() if seconds % size == 0), key=_UNITS.__getitem__)
    return f"{seconds // _UNITS[unit]:.0f}{unit}"


def url(value: Plain) -> str:
    """Return the URL without a trailing slash."""
    must = "must be a URL such as http://127.0.0.1:8080 or https://example.com/prefix"
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        port = parts.port
    except ValueError:
        raise ValueError(must) from None
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc.removesuffix(":")
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or not parts.netloc.isascii():
        raise ValueError(must + ("; a name or password in it is not allowed" if "@" in parts.netloc else ""))
    whole_url = str(value)
    if parts.query or parts.fragment or not whole_url.isprintable() or " " in whole_url:
        raise ValueError(must)
    return whole_url.rstrip("/")


def address(value: Plain) -> str:
    """Return `HOST:PORT`; a port alone is loopback."""
    given = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(given, str):
        host, _, port = given.rpartition(":")
        if port.isdigit() and 0 < int(port) < 65_536 and (not host or _HOST.fullmatch(host)):
            return f"{host or '127.0.0.1'}:{port}"
    raise ValueError("must be PORT or HOST:PORT")


PATH: Final = optional(text(4096))

KEYS: Final = {
    key.name: key
    for key in (
        Key(
            "url",
            url,
            None,
            "Where the control plane is. The one key that must be given.",
            "http://127.0.0.1:8080",
        ),
        Key(
            "tasks",
            whole(1, TASKS_MAX),
            4,
            "How many routines run at once, 1 to 1000; more where it allows.",
            "4",
            of_text=number_of,
        ),
        Key("name", optional(text(128)), None, "The name in histories. Default: the host name."),
        Key("token_file", PATH, None, "A file with the bearer key for the control plane."),
        Key("ca_file", PATH, None, "A file with certificates to trust in place of the system's."),
        Key("client_cert", PATH, None, "A file with the client certificate."),
        Key("client_key", PATH, None, "A file with the key of the client certificate."),
        Key("proxy", optional(parse_proxy), None, "A proxy to go through. Default: the proxy variables."),
        Key(
            "no_proxy",
            optional(parse_no_proxy),
            None,
            "Hosts, suffixes and networks without a proxy, by commas or spaces.",
        ),
        Key("state_dir", PATH, None, "Where outbox and journal stand. Default: below ~/.local/state."),
        Key(
            "drain_timeout",
            optional(duration_s),
            None,
            "How long a stop waits for routines. Default: for ever.",
        ),
        Key(
            "python",
            PATH,
            None,
            "The interpreter of the routine host, relative to this folder. Default: ours.",
        ),
        Key(
            "log.format",
            one_of("auto", "console", "json"),
            "auto",
            "auto: console on a terminal, else json.",
            "auto",
        ),
        Key(
            "log.level",
            one_of("debug", "info", "warning", "error"),
            "info",
            "The least level that is shown.",
            "info",
        ),
        Key(
            "metrics.listen",
            optional(address),
            None,
            "Where metrics are served: PORT (loopback) or HOST:PORT.",
        ),
    )
}

ROUTINE_KEYS: Final = {
    key.name: key
    for key in (
        Key(
            "isolation",
            optional(one_of("thread", "process")),
            None,
            "process: in a process of its own. Default: as the routine is marked, else thread.",
        ),
        Key(
            "timeout", optional(duration_s), None, "After how long a routine is ended and its attempt failed."
        ),
        Key(
            "tasks",
            optional(whole(1, TASKS_MAX)),
            None,
            "How many tasks of this state run at once. Default: tasks.",
        ),
        Key(
            "memory_mb",
            optional(whole(16, 1_048_576)),
            None,
            "With isolation: process, the most memory that a routine may have, in MB.",
        ),
        Key(
            "grace",
            duration_s,
            5.0,
            "With isolation: process, how long a stop waits between SIGTERM and SIGKILL.",
            "5s",
        ),
        Key("fence", flag, False, "Whether to stop the routine when its lease cannot be proven.", "false"),
    )
}
