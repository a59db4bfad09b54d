"""For this folder's tests: a runner for coroutines, and one database that is emptied between tests.

Making a database costs half a second, emptying one a few milliseconds; here are a hundred tests.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from control.databases import run_sql, url_of

NAME = "engine"
TABLES = [
    "task_log",
    "checkpoints",
    "questions",
    "waits",
    "start_keys",
    "gone_tasks",
    "signals",
    "history",
    "memory",
    "idempotency_keys",
    "held_events",
    "timers",
    "leases",
    "tasks",
    "tokens",
    "claim_requests",
    "supervisors",
    "control_planes",
    "keys",
]

# The log of tasks cannot be emptied; for that a test's database is opened by its owner, and closed again.
UNLOCKED = "ALTER TABLE task_log DISABLE TRIGGER ALL; "
LOCKED = "; ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_rows; ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_all"


@pytest.fixture(scope="session")
def engine_database(postgres: str, migrated_template: str) -> str:
    run_sql(postgres, f"CREATE DATABASE {NAME} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    return url_of(postgres, NAME)


@pytest.fixture
def database(engine_database: str) -> Iterator[str]:
    """The URL of a migrated database without a row."""
    yield engine_database
    run_sql(
        engine_database,
        f"ALTER DATABASE {NAME} RESET ALL; {UNLOCKED}"
        # Only what a test filled to the brim is worth new files.
        f"DO $$ BEGIN IF (SELECT count(*) FROM tokens) > 500 THEN TRUNCATE {', '.join(TABLES)}; END IF; END $$; "
        + "; ".join(f"DELETE FROM {table}" for table in TABLES)
        + LOCKED
        + "; UPDATE settings SET graph = NULL, log_kept_s = NULL, seen_at = now(), no_sweep_before = '-infinity'; DELETE FROM graphs"
        + "; ALTER SEQUENCE task_ids RESTART; ALTER SEQUENCE token_ids RESTART",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    call: Any = functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(call())
    return True
