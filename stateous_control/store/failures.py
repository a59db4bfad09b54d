"""What can go wrong between us and the database, as this program's own words.

Nothing here knows asyncpg: the pool translates. The engine and the HTTP door catch these.
"""

from __future__ import annotations

from stateous_contract.codes import Code, Refused


class Unavailable(Refused):
    """The database cannot answer now: gone, restarting, too slow, or locked for too long. Worth asking again.

    Args:
        sentence: what was found.
        retry_after_s: how long a client should wait before it asks again.
    """

    def __init__(self, sentence: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(Code.DATABASE_BUSY, sentence)
        self.retry_after_s = retry_after_s


class StartRefused(Exception):
    """The control plane cannot start on this database. The text is one plain sentence for a person."""
