"""One control plane for all journeys that leave it alone, with short times; tokens of a test are cancelled after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control.databases import fresh
from programs import ControlPlaneClient, ControlPlaneProgram

from journeys.folders import WORKFLOW

TIMES = ["--lease", "3", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.1"]


@pytest.fixture(scope="session")
def plane_url(postgres: str, migrated_template: str) -> Iterator[str]:
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(WORKFLOW, *TIMES, "--database", database) as program,
    ):
        yield program.url


@pytest.fixture
def plane(plane_url: str) -> Iterator[ControlPlaneClient]:
    with ControlPlaneClient(plane_url) as client:
        yield client
        for token in client.http.get("/tokens?status=active&limit=1000").json():
            client.http.post(f"/tokens/{token['token']}/cancel")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Where a test puts folders: each with its ledger and its state folder beside it."""
    return tmp_path / "box"
