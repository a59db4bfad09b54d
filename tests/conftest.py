"""One PostgreSQL for the whole run, and a fresh migrated database for each test that asks for one.

It does not write durably (`fsync` off): tests that pull the plug start a server of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from stateous_control.embedded import EmbeddedPostgres
from stateous_control.store import migrate as migrations
from stateous_control.store.pool import Pool
from stateous_control.store import migrate as migrations
from stateous_control.store.pool import Pool

IN_A_HURRY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}
TEMPLATE = "migrated"
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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a running PostgreSQL. Take `database` unless the test needs the server itself."""
    folder = Path(tempfile.mkdtemp(prefix="stateous-tests-"))
    try:
        with EmbeddedPostgres(folder, settings=IN_A_HURRY) as url:
            yield url
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def migrated_template(postgres: str) -> str:
    """The name of a database that holds the newest schema and nothing else."""
    run_sql(postgres, f"CREATE DATABASE {TEMPLATE}")
    migrate(url_of(postgres, TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database(postgres: str, migrated_template: str) -> Iterator[str]:
    """The URL of a fresh migrated database; it is dropped, with its connections, after the test."""
    yield from _fresh(postgres, f"TEMPLATE {migrated_template} STRATEGY FILE_COPY")


@pytest.fixture
def empty_database(postgres: str) -> Iterator[str]:
    """The URL of a fresh database without a schema."""
    yield from _fresh(postgres, "STRATEGY FILE_COPY")


def _fresh(postgres: str, how: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    run_sql(postgres, f"CREATE DATABASE {name} {how}")
    yield url_of(postgres, name)
    run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)")


def migrate(url: str) -> None:
    """Bring an empty database to the newest schema, with the product's own runner."""

    async def run() -> None:
        pool = Pool(url)
        try:
            await migrations.migrate(pool)
        finally:
            await pool.close()

    asyncio.run(run())
