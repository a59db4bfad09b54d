"""One control plane for all journeys that leave it alone, with short times; tokens of a test are cancelled after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control.databases import fresh, run_sql
from programs import ControlPlaneClient, ControlPlaneProgram

from journeys.folders import WORKFLOW

TIMES = ["--lease", "3", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.1"]


@pytest.fixture(scope="session")
def plane_database(postgres: str, migrated_template: str) -> Iterator[str]:
    with fresh(postgres, migrated_template) as database:
        yield database


@pytest.fixture(scope="session")
def plane_url(plane_database: str) -> Iterator[str]:
    with ControlPlaneProgram(WORKFLOW, *TIMES, "--database", plane_database) as program:
        yield program.url


@pytest.fixture
def plane(plane_url: str, plane_database: str) -> Iterator[ControlPlaneClient]:
    """A client of it. What a test leaves is cancelled, and its tokens leave their names to the next one."""
    with ControlPlaneClient(plane_url) as client:
        yield client
        for token in client.http.get("/tokens?status=active&limit=1000").json():
            client.http.post(f"/tokens/{token['token']}/cancel")
    run_sql(plane_database, "UPDATE tokens SET name = 'over-' || id WHERE name NOT LIKE 'over-%'")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Where a test puts folders: each with its ledger and its state folder beside it."""
    return tmp_path / "box"
