"""With keys the agreement is the same: the golden exchanges, played with a key on a control plane that asks for one.

The key bears the name that the exchanges expect of who answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.peer import conformance_client, peer  # noqa: F401 - fixtures
from conformance.suite import test_exchange  # noqa: F401
from control.databases import fresh
from control.http.keyed import make_key
from programs import ControlPlaneProgram

WORKFLOW = Path(__file__).parents[2] / "contract/conformance/workflow.json"
TIMES = ["--lease", "3", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.3"]


@pytest.fixture(scope="module")
def keyed_database(postgres: str, migrated_template: str) -> Iterator[str]:
    with fresh(postgres, migrated_template) as database:
        yield database


@pytest.fixture(scope="module")
def control_plane_key(keyed_database: str) -> str:
    return make_key(keyed_database, "ann", "admin")


@pytest.fixture(scope="module")
def control_plane(keyed_database: str, control_plane_key: str) -> Iterator[str]:
    with ControlPlaneProgram(WORKFLOW, *TIMES, "--database", keyed_database) as program:
        yield program.url
