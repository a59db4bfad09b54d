"""One host process with routines whose bodies the tests bring, for all tests that cannot hurt it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from supervisor.host.child import BODIES, Child, child, write_folder

_tasks = itertools.count(1)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = write_folder(tmp_path_factory.mktemp("bodies"), {"bodies.py": BODIES})
    with child(folder) as started:
        yield started


@pytest.fixture
def task() -> int:
    """A task id that no other test uses."""
    return next(_tasks)
