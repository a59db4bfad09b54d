"""Turns away what a browser was tricked into sending to a control plane that only this machine should reach.

There are no keys yet, so a page from elsewhere must neither read answers (by a name that it points at 127.0.0.1)
nor send requests blindly. Programs send neither `Origin` nor `Sec-Fetch-Site` and are not touched.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from stateous_contract.codes import Code, Refused

from stateous_control.http.calls import Call

_OURS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""By far the most common names of this machine; the others are looked at more closely."""


@dataclass(frozen=True)
class Strangers:
    """Which names this control plane goes by, beside this machine's own addresses.

    Args:
        names: host names, lower case, that a proxy in front may use.
    """

    names: frozenset[str] = field(default_factory=frozenset)

    def refuse(self, call: Call) -> None:
        """Raise `Refused` for a request that comes from a page of another site."""
        host = call.header(b"host")
        if host is not None and not self._is_ours(host):
            raise Refused(
                Code.BAD_REQUEST,
                f"this control plane does not go by the name {_shown(host)}; allow it with --allow-host",
            )
        origin = call.header(b"origin")
        if origin is not None and not self._is_ours(urlsplit(origin).netloc):
            raise Refused(Code.BAD_REQUEST, "requests from pages of other sites are not taken")
        if call.header(b"sec-fetch-site") in ("cross-site", "same-site"):
            raise Refused(Code.BAD_REQUEST, "requests from pages of other sites are not taken")

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host).lower().rstrip(".")
        if name in _OURS or name in self.names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _shown(host: str) -> str:
    return host[:100].encode("ascii", "backslashreplace").decode()
