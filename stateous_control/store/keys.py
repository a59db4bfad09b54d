"""Keys as rows, and as the text that a caller sends. The text is never kept, only its SHA-256.

Called by the keyring of a control plane, and by the commands ``key …`` straight on the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stateous_control.rules.access import Role
from stateous_control.store.pool import Mode, Pool, Row
from stateous_control.store.statements import statements

MARK: Final = "stk"
_KEY: Final = re.compile(rf"{MARK}_([0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new key. `text` is what the caller sends, and is nowhere else."""

    id: str
    text: str
    expires_at: datetime | None


def id_of(text: str) -> str | None:
    """Return the public part of a key's text; None for what is no key."""
    match = _KEY.fullmatch(text)
    return None if match is None else match[1]


def digest_of(text: str) -> bytes:
    """Return what is kept of a key."""
    return hashlib.sha256(text.encode()).digest()


async def live_keys(pool: Pool) -> list[Row]:
    """Return the keys that may be used now."""
    return await pool.run(lambda session: session.fetch(statements.live_keys), Mode.PLAIN)


async def is_any(pool: Pool) -> bool:
    """Say whether there ever was a key: from then on nobody is let in without one."""
    return bool((await live_keys(pool))[0]["is_any"])


async def list_keys(pool: Pool) -> list[Row]:
    """Return all keys, newest first."""
    return await pool.run(lambda session: session.fetch(statements.list_keys), Mode.PLAIN)


async def make_key(
    pool: Pool,
    name: str,
    role: Role,
    *,
    owners: list[str],
    states: list[str] | None = None,
    expires_s: float | None = None,
) -> MadeKey | None:
    """Make a key; None where a key of this name is not revoked yet. `expires_s` None: never expires."""
    key_id = secrets.token_hex(6)
    text = f"{MARK}_{key_id}_{secrets.token_urlsafe(32)}"
    values = (key_id, name, role.value, sorted(set(owners)), states, digest_of(text), expires_s)
    rows = await pool.run(lambda session: session.fetch(statements.insert_key, *values), Mode.PLAIN)
    return MadeKey(key_id, text, rows[0]["expires_at"]) if rows else None


async def revoke_keys(pool: Pool, name: str) -> list[Row]:
    """Revoke the keys of this name or id and return them; none where there is nothing to revoke."""
    return await pool.run(lambda session: session.fetch(statements.revoke_keys, name), Mode.PLAIN)


async def use_keys(pool: Pool, ids: list[str]) -> None:
    """Note that keys were used."""
    await pool.run(lambda session: session.fetch(statements.use_keys, ids), Mode.BEAT)
