"""How often an address may fail to show a valid key. Pure: the time is an argument; memory is bounded.

Who shows a valid key is never held up, also not behind the address of one that guesses: 256 random bits cannot be
guessed, and the limit is there for the load and the log.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import Final

BURST: Final = 20
PER_S: Final = 1.0
ADDRESSES_MAX: Final = 10_000
IPV6_PREFIX: Final = 64


class FailureLimit:
    """Failures left by address: `BURST` at once, and one more each second."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def fail(self, address: str, now: float) -> int | None:
        """Count a failure; return the whole seconds to wait where it was one too many, else None."""
        place = _network(address)
        left, at = self._left.pop(place, (float(BURST), now))
        left = min(float(BURST), left + (now - at) * PER_S)
        is_over = left < 1
        self._left[place] = (left if is_over else left - 1, now)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        return math.ceil((1 - left) / PER_S) if is_over else None

    def __len__(self) -> int:
        return len(self._left)


def _network(address: str) -> str:
    """One owner of an IPv6 network has all of its addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
