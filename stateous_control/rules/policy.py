"""How failed attempts of one task are tried again: a policy that is copied onto the task when it is made (S2-54, C20).

Chance is an argument. The number of retries stands on the task itself, as it always has.
"""

from __future__ import annotations

from typing import Final

import msgspec

BACKOFF_S_MAX_DEFAULT: Final = 3_600.0
_DOUBLINGS_MAX: Final = 60


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task says of its retries itself.

    Args:
        backoff_s: the longest wait before the first retry, doubled for each further failure; None leaves the waits to
            the control plane.
        max_backoff_s: no wait is longer; None is an hour, or `backoff_s` where that is more.
        not_retryable: names of errors after which nothing is tried again.
    """

    backoff_s: float | None = None
    max_backoff_s: float | None = None
    not_retryable: tuple[str, ...] = ()

    def delay_s(self, failures: int, chance: float) -> float | None:
        """Return how long the attempt after this many failures, 0 or more before this one, waits; None: not said here.

        `chance` in [0, 1) is spread over all of the wait, so that a herd that failed at once does not come at once.
        """
        if self.backoff_s is None:
            return None
        most = self.max_backoff_s
        if most is None:
            most = max(self.backoff_s, BACKOFF_S_MAX_DEFAULT)
        return min(most, self.backoff_s * 2.0 ** min(failures, _DOUBLINGS_MAX)) * chance

    def forbids(self, error: str) -> bool:
        """Say whether nothing is tried again after this error: its text begins with its name, ``ValueError: …``."""
        return bool(self.not_retryable) and error.partition(":")[0].strip() in self.not_retryable


OWN: Final = Policy()
"""Says nothing: the control plane's own waits, and every error is tried again."""

_read: Final = msgspec.json.Decoder(Policy).decode


def read_policy(text: str | None) -> Policy:
    """Return a policy from its row."""
    return OWN if text is None else _read(text)


def write_policy(policy: Policy) -> str | None:
    """Return a policy as its row keeps it."""
    return None if policy == OWN else msgspec.json.encode(policy).decode()
