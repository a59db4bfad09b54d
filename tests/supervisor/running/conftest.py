"""A managed agent for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeControlPlane, serving
from supervisor.folders import make_folder
from supervisor.running.managed import Managed


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    fake = FakeControlPlane()
    with serving(fake) as url:
        box = Managed(fake, make_folder(tmp_path / "folder", url=url, checksum=fake.graph.checksum))
        yield box
        box.manager.door.close()
    assert box.undocumented == []  # whatever real agents log in these tests is in the documented table
