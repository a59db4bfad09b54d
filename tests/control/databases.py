"""Fresh databases for tests, quickly: each is a file copy of a template."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

_numbers = itertools.count(1)


def run_sql(url: str, *statements: str) -> None:
    """Run statements one by one, each in its own transaction."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def url_of(server: str, database: str) -> str:
    """Return the URL of another database of the same server."""
    return server.replace("postgresql:///stateous?", f"postgresql:///{database}?", 1)


@contextmanager
def fresh(server: str, template: str | None = None) -> Iterator[str]:
    """Yield the URL of a new database; it is dropped, with its connections, afterwards."""
    name = f"test_{next(_numbers)}"
    of = f"TEMPLATE {template}" if template else ""
    run_sql(server, f"CREATE DATABASE {name} {of} STRATEGY FILE_COPY")
    try:
        yield url_of(server, name)
    finally:
        run_sql(server, f"DROP DATABASE {name} WITH (FORCE)")
