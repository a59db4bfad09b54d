"""A certificate authority for the tests of this folder, and its certificate in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(file)
    return file
