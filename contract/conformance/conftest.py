"""`pytest contract/conformance --control-plane URL`: the suite against any control plane that serves workflow.json."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--control-plane", metavar="URL", help="a control plane that serves conformance/workflow.json"
    )


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> str:
    url = request.config.getoption("--control-plane")
    if not url:
        pytest.exit("say which control plane: --control-plane URL", returncode=4)
    return str(url)
