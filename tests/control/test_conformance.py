"""The control plane keeps its promises: the real program, started as people start it, on a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.suite import *  # noqa: F403
from control.databases import fresh
from programs import ControlPlaneProgram

WORKFLOW = Path(__file__).parents[2] / "contract/conformance/workflow.json"


@pytest.fixture(scope="module")
def control_plane(postgres: str, migrated_template: str) -> Iterator[str]:
    with fresh(postgres, migrated_template) as database:
        times = ["--lease", "3", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.3"]
        with ControlPlaneProgram(WORKFLOW, *times, "--database", database) as program:
            yield program.url
