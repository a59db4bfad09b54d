"""One host for all tests that only hurt a process of their own; task ids that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor.host.child import BODIES, child, write_folder
from supervisor.isolation.cells import Box

_tasks = itertools.count(1)


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = write_folder(tmp_path_factory.mktemp("isolated"), {"bodies.py": BODIES})
    with child(folder) as started:
        yield Box(started)


@pytest.fixture
def own_box(tmp_path: Path) -> Iterator[Box]:
    with child(write_folder(tmp_path / "folder", {"bodies.py": BODIES})) as started:
        yield Box(started)


@pytest.fixture
def task() -> int:
    return 10 * next(_tasks)
