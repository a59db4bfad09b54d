"""The fake that the agent's tests use keeps the same promises as the control plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.suite import *  # noqa: F403
from fakes import FakeControlPlane, serving


@pytest.fixture(scope="module")
def control_plane() -> Iterator[str]:
    with serving(FakeControlPlane(lease_s=2.0, retry_delay_s=0.2)) as url:
        yield url
