"""One PostgreSQL for the whole run, and a fresh migrated database for each test that asks for one.

It does not write durably (`fsync` off): tests that pull the plug start a server of their own.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile(
    "same", derandomize=True
)  # 'make test' draws the same examples each time, 'make prove' others

if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    # A shell that began the run in the background left this to all its programs; tests press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("conformance.promises", "conformance.play", "conformance.peer")

from control.databases import fresh, run_sql, url_of

from stateous_control.embedded import EmbeddedPostgres
from stateous_control.store import migrate as migrations
from stateous_control.store.pool import Pool

IN_A_HURRY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}
TEMPLATE = "migrated"
SLOW = ("simulation", "journeys", "packaging", "interop", "examples", "cli")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take longest, so that no core is left with one of them at the end."""
    items.sort(key=lambda item: _rank(item.path.parts))


def _rank(parts: tuple[str, ...]) -> int:
    return next((rank for rank, folder in enumerate(SLOW) if folder in parts), len(SLOW))


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
    with fresh(postgres, migrated_template) as url:
        yield url


@pytest.fixture
def empty_database(postgres: str) -> Iterator[str]:
    """The URL of a fresh database without a schema."""
    with fresh(postgres) as url:
        yield url


def migrate(url: str) -> None:
    """Bring an empty database to the newest schema, with the product's own runner."""

    async def run() -> None:
        pool = Pool(url)
        try:
            await migrations.migrate(pool)
        finally:
            await pool.close()

    asyncio.run(run())
