"""The keys of this database as one control plane knows them: read every two seconds, kept in memory.

So a key costs a request no statement, and a revoked one is refused within seconds. Once there was a key, nobody is
let in without one, also after the last was revoked. Times are the database's: it says how long a key still lasts.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from typing import Final

from stateous_contract.codes import Code, Refused

from stateous_control.logs import logger
from stateous_control.rules.access import Access, Role
from stateous_control.store import keys
from stateous_control.store.failures import Unavailable
from stateous_control.store.pool import Pool, Row

READ_EVERY_S: Final = 2.0
TRUSTED_S: Final = 15.0
ASK_AGAIN_S: Final = 0.25
USED_EVERY_S: Final = 60.0

log = logger()


@dataclass(frozen=True, slots=True)
class _Key:
    access: Access
    digest: bytes
    until: float


class Keyring:
    """The live keys.

    Args:
        pool: the database.

    """

    def __init__(self, pool: Pool) -> None:
        self.is_on = False
        self._pool = pool
        self._keys: dict[str, _Key] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._used: set[str] = set()
        self._noted: dict[str, float] = {}

    async def read(self) -> None:
        """Read the keys now; raises `Unavailable`."""
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        now = asyncio.get_running_loop().time()
        rows = await keys.live_keys(self._pool)
        if rows[0]["is_any"] and not self.is_on:
            log.info("keys.required")
        # Never off again: a table that somebody emptied must not open a door that others can reach.
        self.is_on = self.is_on or rows[0]["is_any"]
        self._keys = {row["id"]: _key(row, now) for row in rows if row["id"] is not None}
        self._read_at = now

    async def run(self) -> None:
        """Read again and again, and note what was used, for ever."""
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await self.read()
                await self._note_used()
            except Unavailable:
                continue  # after TRUSTED_S nobody is let in on what was read before
            except Exception:  # the top of a loop: one bad pass must not end it
                log.exception("keys.unread")

    async def access_of(self, text: str | None) -> Access:
        """Return what the bearer of a key may do.

        Raises `Refused` (unauthorized) in one shape for no key, a wrong, expired or revoked one, and `Unavailable`
        where the keys could not be read for long.
        """
        key_id = None if text is None else keys.id_of(text)
        if text is None or key_id is None:
            raise _unauthorized()
        now = asyncio.get_running_loop().time()
        if now - self._read_at > TRUSTED_S or (
            key_id not in self._keys and now - self._read_at > ASK_AGAIN_S
        ):
            await self._read_once_more(now)
        key = self._keys.get(key_id)
        if key is None or now >= key.until or not hmac.compare_digest(key.digest, keys.digest_of(text)):
            raise _unauthorized()
        self._used.add(key_id)
        return key.access

    async def _read_once_more(self, now: float) -> None:
        """A key may be newer than what was read; those who ask meanwhile wait for the same read."""
        async with self._reading:
            if self._read_at < now:
                await self._read()

    def is_live(self, access: Access) -> bool:
        """Say whether the key of this caller may still be used; a waiting claim asks before it is given work."""
        if access.key_id is None:
            return not self.is_on
        key = self._keys.get(access.key_id)
        return key is not None and asyncio.get_running_loop().time() < key.until

    def check_live(self, access: Access) -> None:
        """Raise `Refused` (unauthorized) where the key of this caller may be used no more; a wait asks at each look."""
        if not self.is_live(access):
            raise _unauthorized()

    async def _note_used(self) -> None:
        now = asyncio.get_running_loop().time()
        self._noted = {key: at for key, at in self._noted.items() if now - at < USED_EVERY_S}
        due = sorted(self._used - self._noted.keys())
        if due:
            await keys.use_keys(self._pool, due)
            self._noted |= dict.fromkeys(due, now)
        self._used.clear()


def key_id_of(text: str | None) -> str | None:
    """Return the public part of a key, for the log; None for what is no key."""
    return None if text is None else keys.id_of(text)


def _key(row: Row, now: float) -> _Key:
    role, own = Role(row["role"]), tuple(sorted(row["owners"]))
    access = Access(
        role=role,
        own=own,
        owners=None if role is Role.ADMIN else frozenset(own),
        states=None if row["states"] is None else frozenset(row["states"]),
        key=row["name"],
        key_id=row["id"],
    )
    return _Key(access, row["digest"], float("inf") if row["left_s"] is None else now + row["left_s"])


def _unauthorized() -> Refused:
    return Refused(Code.UNAUTHORIZED, "a valid key is needed, as in 'Authorization: Bearer KEY'")
