"""Reads for people and lists: tokens, history, supervisors, queues. Nothing here locks or changes anything."""

from __future__ import annotations

from dataclasses import dataclass

from stateous_control.store.pool import Mode, Pool, Row, Session
from stateous_control.store.statements import statements

Owners = list[str] | None
"""Whose rows exist for the caller; None is everybody's."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of one page with the count of the whole list, both from one moment."""

    rows: list[Row]
    total: int


async def find_token(pool: Pool, owner: str, name: str) -> Row | None:
    """Return the token of exactly this name."""
    rows = await pool.run(lambda session: session.fetch(statements.find_token, owner, name), Mode.PLAIN)
    return rows[0] if rows else None


async def list_tokens(
    pool: Pool, status: str | None, parent: str | None, most: int, owners: Owners = None
) -> list[Row]:
    """Return the tokens that moved last."""
    return await pool.run(
        lambda session: session.fetch(statements.list_tokens, status, parent, most, owners), Mode.PLAIN
    )


async def page_tokens(
    pool: Pool,
    status: str | None,
    parent: str | None,
    most: int,
    before: int | None,
    *,
    owners: Owners = None,
) -> Counted:
    """Return the tokens started before token id `before`, newest first, and how many the whole list has."""

    async def read(session: Session) -> Counted:
        rows = await session.fetch(statements.page_tokens, status, parent, most, before, owners)
        total = await session.fetch(statements.count_tokens, status, parent, owners)
        return Counted(rows, total[0]["total"])

    return await pool.run(read, Mode.SNAPSHOT)


async def token_history(pool: Pool, owner: str, name: str, after: int, most: int | None) -> list[Row] | None:
    """Return a token's lines after line `after`; None if there is no such token."""

    async def read(session: Session) -> list[Row] | None:
        tokens = await session.fetch(statements.find_token, owner, name)
        if not tokens:
            return None
        return await session.fetch(statements.token_history, tokens[0]["id"], after, most)

    return await pool.run(read, Mode.SNAPSHOT)


async def page_history(pool: Pool, owner: str, name: str, after: int | None, most: int) -> Counted | None:
    """Return `most` lines, the newest ones or the first ones after line `after`, in order, with the whole count."""

    async def read(session: Session) -> Counted | None:
        tokens = await session.fetch(statements.find_token, owner, name)
        if not tokens:
            return None
        token = tokens[0]["id"]
        total = (await session.fetch(statements.count_history, token))[0]["total"]
        # The lines of a token are numbered without gaps, so the newest page begins at a known line.
        first = max(0, total - most) if after is None else after
        rows = await session.fetch(statements.token_history, token, first, most)
        return Counted(rows, total)

    return await pool.run(read, Mode.SNAPSHOT)


async def supervisors(pool: Pool, live_s: float, owners: Owners = None) -> list[Row]:
    """Return every supervisor heard of; one not heard for `live_s` counts as away."""
    return await pool.run(
        lambda session: session.fetch(statements.list_supervisors, live_s, owners), Mode.PLAIN
    )


async def queues(pool: Pool, live_s: float, owners: Owners = None) -> list[Row]:
    """Return the work of each state that has any."""
    return await pool.run(lambda session: session.fetch(statements.queue_depths, live_s, owners), Mode.PLAIN)


async def ask(pool: Pool, wait_s: float) -> None:
    """Ask the database for anything at all."""
    await pool.run(lambda session: session.fetch("SELECT 1"), Mode.PLAIN, wait_s=wait_s)
